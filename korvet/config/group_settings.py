"""The settings of one group; most have a broker setting that gives their default."""

import msgspec

from korvet.config.broker_settings import BROKER
from korvet.config.setting import Setting, table
from korvet.config.share_settings import GROUP_ROWS, GROUP_TYPES

FROM_BROKER = {
    "consumer.session.timeout.ms": "group.consumer.session.timeout.ms",
    "consumer.heartbeat.interval.ms": "group.consumer.heartbeat.interval.ms",
    "group.read.mode": "group.read.mode",
    "share.session.timeout.ms": "group.share.session.timeout.ms",
    "share.heartbeat.interval.ms": "group.share.heartbeat.interval.ms",
    "share.assignment.interval.ms": "group.share.assignment.interval.ms",
    "share.record.lock.duration.ms": "group.share.record.lock.duration.ms",
    "share.delivery.count.limit": "group.share.delivery.count.limit",
    "share.partition.max.record.locks": "group.share.partition.max.record.locks",
    "streams.session.timeout.ms": "group.streams.session.timeout.ms",
    "streams.heartbeat.interval.ms": "group.streams.heartbeat.interval.ms",
    "streams.assignment.interval.ms": "group.streams.assignment.interval.ms",
    "streams.initial.rebalance.delay.ms": "group.streams.initial.rebalance.delay.ms",
    "streams.num.standby.replicas": "group.streams.num.standby.replicas",
}


UNNUMBERED = {"streams.num.standby.replicas": "standby.replicas"}
"""Group configs whose bounds have other names than their broker setting."""


def _of_group(name: str, broker: Setting) -> Setting:
    """Return the group's own row of a broker setting."""
    type = GROUP_TYPES.get(name, broker.type)
    return msgspec.structs.replace(broker, name=name, type=type)


GROUP = table(
    (*(_of_group(name, BROKER[broker]) for name, broker in FROM_BROKER.items()), *GROUP_ROWS)
)


def bound(name: str, word: str) -> str | None:
    """Return the broker setting that is the `word` (min, max) of a group's config, if any."""
    kind, _, rest = name.partition(".")
    rest = UNNUMBERED.get(name, rest)
    limit = f"group.{kind}.{word}.{rest}"
    return limit if limit in BROKER else None
