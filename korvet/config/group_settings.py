"""The settings of one consumer group, each with the broker setting it stands in for."""

import msgspec

from korvet.config.broker_settings import BROKER
from korvet.config.setting import Setting, find_setting, table

FROM_BROKER = {
    "consumer.session.timeout.ms": "group.consumer.session.timeout.ms",
    "consumer.heartbeat.interval.ms": "group.consumer.heartbeat.interval.ms",
    "group.read.mode": "group.read.mode",
}
GROUP = table(
    msgspec.structs.replace(BROKER[broker], name=name) for name, broker in FROM_BROKER.items()
)


def group_setting(name: str) -> Setting:
    """The group setting of that name, or a ConfigError naming the nearest one."""
    return find_setting(GROUP, name, "group config")
