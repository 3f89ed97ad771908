"""The settings of one consumer group, each with the broker setting that gives its default."""

import msgspec

from korvet.config.broker_settings import BROKER
from korvet.config.setting import table

FROM_BROKER = {
    "consumer.session.timeout.ms": "group.consumer.session.timeout.ms",
    "consumer.heartbeat.interval.ms": "group.consumer.heartbeat.interval.ms",
    "group.read.mode": "group.read.mode",
}
GROUP = table(
    msgspec.structs.replace(BROKER[broker], name=name) for name, broker in FROM_BROKER.items()
)
