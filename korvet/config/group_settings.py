"""The settings of one group; most have a broker setting that gives their default."""

import msgspec

from korvet.config.broker_settings import BROKER
from korvet.config.setting import Flag, OffsetReset, OneOf, Setting, TopicName, Whole, table

FROM_BROKER = {
    name: name if name in BROKER else f"group.{name}"
    for name in (
        "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms", "group.read.mode",
        "share.session.timeout.ms", "share.heartbeat.interval.ms", "share.assignment.interval.ms",
        "share.record.lock.duration.ms", "share.delivery.count.limit",
        "share.partition.max.record.locks",
        "streams.session.timeout.ms", "streams.heartbeat.interval.ms",
        "streams.assignment.interval.ms", "streams.initial.rebalance.delay.ms",
        "streams.num.standby.replicas",
    )
}  # fmt: skip
_TYPES = {
    "share.record.lock.duration.ms": Whole(1000),
    "share.delivery.count.limit": Whole(2),
    "share.partition.max.record.locks": Whole(100),
}
"""Group configs whose range is limited only by the broker's bounds, as in Kafka."""

UNNUMBERED = {"streams.num.standby.replicas": "standby.replicas"}
"""Group configs whose bounds have other names than their broker setting."""


def _of_group(name: str, broker: Setting) -> Setting:
    """Return the group's own row of a broker setting."""
    type = _TYPES.get(name, broker.type)
    return msgspec.structs.replace(broker, name=name, type=type)


_ROWS = (
    Setting("share.auto.offset.reset", OffsetReset(), "latest",
        "Where the group starts in a partition that it has not read: `latest`, `earliest`, or "
        "`by_duration:` and an ISO 8601 duration before now."),
    Setting(
        "share.isolation.level",
        OneOf(("read_uncommitted", "read_committed")),
        "read_uncommitted",
        "Whether the group gets records of open and aborted transactions.",
    ),
    Setting("share.renew.acknowledge.enable", Flag(), "true",
        "Whether members may renew the locks of their records."),
    Setting("share.retry.backoff.ms", Whole(0), "0",
        "How long a released record waits for its second delivery, in milliseconds. The time "
        "doubles with each further delivery; 0: it does not wait."),
    Setting("share.retry.backoff.max.ms", Whole(0), "60000",
        "The longest time that a released record waits, in milliseconds."),
    Setting("share.order", OneOf(("none", "key")), "none",
        "`key`: records of one key are delivered one after another; other keys pass them."),
    Setting("errors.deadletterqueue.topic.name", TopicName(may_be_reserved=False), "",
        "The topic for records that members reject or that are delivered too often (KIP-1191); "
        "empty: they are only archived."),
    Setting("errors.deadletterqueue.copy.record.enable", Flag(), "false",
        "Whether a dead letter has the record's key, value and headers, or only headers that say "
        "where the record is."),
)  # fmt: skip

GROUP = table((*(_of_group(name, BROKER[broker]) for name, broker in FROM_BROKER.items()), *_ROWS))


def bound(name: str, word: str) -> str | None:
    """Return the broker setting that is the `word` (min, max) of a group's config, if any."""
    kind, _, config = name.partition(".")
    config = UNNUMBERED.get(name, config)
    limit = f"group.{kind}.{word}.{config}"
    return limit if limit in BROKER else None
