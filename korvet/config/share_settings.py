"""The settings of share groups (KIP-932): those of brokers, and those that only a group has."""

import re
from fractions import Fraction

import msgspec

from korvet.config.coordinator_settings import assignment_rows, heartbeat_rows
from korvet.config.setting import Flag, Kind, OneOf, Setting, SomeOf, Text, TopicName, Whole

_DURATION = re.compile(
    r"([-+]?)P(?:([-+]?\d{1,9})D)?"
    r"(?:T(?=[-+\d])(?:([-+]?\d{1,9})H)?(?:([-+]?\d{1,9})M)?(?:([-+]?\d{1,9}(?:[.,]\d{0,9})?)S)?)?",
    re.IGNORECASE,
)
BY_DURATION = "by_duration:"
DELIVERY_LIMIT = 5
"""Deliveries of a record by default."""


class OffsetReset(msgspec.Struct, frozen=True):
    """The start of a share group in a partition: one of its ends, or a duration before now."""

    kind: Kind = Kind.STRING

    def parse(self, text: str) -> str:
        if text in ("latest", "earliest") or reset_duration_ms(text) is not None:
            return text
        raise ValueError("latest, earliest or by_duration:PnDTnHnMn.nS")


def reset_duration_ms(text: str) -> int | None:
    """Return the duration of a `share.auto.offset.reset` in ms; None without a valid one."""
    match = _DURATION.fullmatch(text.removeprefix(BY_DURATION))
    if not text.startswith(BY_DURATION) or match is None or not any(match.groups()[1:]):
        return None
    sign, *parts = match.groups()
    units = (86_400_000, 3_600_000, 60_000, 1000)
    total = sum(
        Fraction((part or "0").replace(",", ".").removesuffix(".")) * unit
        for part, unit in zip(parts, units, strict=True)
    )
    total = -total if sign == "-" else total
    return int(total) if total >= 0 else None


ROWS = (
    *heartbeat_rows("share", "share groups"),
    *assignment_rows("share", "share group"),
    Setting("group.share.max.size", Whole(1, 1000), "200", "Members a share group may have."),
    Setting("group.share.record.lock.duration.ms", Whole(1000, 3_600_000), "30000",
        "How long an acquired record is locked for its member."),
    Setting("group.share.min.record.lock.duration.ms", Whole(1000, 30_000), "15000",
        "The shortest lock that a group's own config may set."),
    Setting("group.share.max.record.lock.duration.ms", Whole(30_000, 3_600_000), "60000",
        "The longest lock that a group's own config may set."),
    Setting("group.share.delivery.count.limit", Whole(2, 10), str(DELIVERY_LIMIT),
        "How often a record is delivered to a share group, at most."),
    Setting("group.share.min.delivery.count.limit", Whole(2, 5), "2",
        "The lowest limit of deliveries that a group's own config may set."),
    Setting("group.share.max.delivery.count.limit", Whole(5, 25), "10",
        "The highest limit of deliveries that a group's own config may set."),
    Setting("group.share.partition.max.record.locks", Whole(100, 10_000), "2000",
        "Records of a partition that are locked for a share group at once, at most."),
    Setting("group.share.min.partition.max.record.locks", Whole(100, 2000), "100",
        "The lowest limit of locks that a group's own config may set."),
    Setting("group.share.max.partition.max.record.locks", Whole(2000, 10_000), "4000",
        "The highest limit of locks that a group's own config may set."),
    Setting("group.share.assignors", SomeOf(("simple",)), "simple",
        "The server-side assignor of share groups, which ShareGroupDescribe names.", dynamic=False),
    Setting("group.share.max.share.sessions", Whole(1), "2000",
        "Share sessions that a broker has at once, at most."),
    Setting("errors.deadletterqueue.topic.name.prefix", Text(249), "dlq.",
        "What the name of a dead letter queue must begin with; empty: any name is allowed."),
    Setting("errors.deadletterqueue.auto.create.topics.enable", Flag(), "false",
        "Whether brokers create a group's dead letter queue if there is no such topic."),
)  # fmt: skip

GROUP_TYPES = {
    "share.record.lock.duration.ms": Whole(1000),
    "share.delivery.count.limit": Whole(2),
    "share.partition.max.record.locks": Whole(100),
}
"""Group configs whose range is limited only by the broker's bounds, as in Kafka."""

GROUP_ROWS = (
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
