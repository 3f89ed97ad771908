"""The broker's settings for groups, committed offsets, producers and transactions."""

from korvet.config.setting import Setting, Whole


def heartbeat_rows(type_: str, groups: str) -> tuple[Setting, ...]:
    """Return the settings of the members' sessions and heartbeats."""
    return (
        *_bounded(
            type_, "session.timeout.ms", "session timeout",
            ("45000", "45000", "60000"), f"Session timeout of the members of {groups}.", lowest=1,
        ),
        *_bounded(
            type_, "heartbeat.interval.ms", "heartbeat interval",
            ("5000", "5000", "15000"), f"Heartbeat interval given to the members of {groups}.",
            lowest=1,
        ),
    )  # fmt: skip


def assignment_rows(type_: str, group: str) -> tuple[Setting, ...]:
    """Return the settings of the interval of target assignments."""
    return _bounded(
        type_, "assignment.interval.ms", "assignment interval", ("1000", "0", "15000"),
        f"The shortest time between two target assignments of a {group}.", lowest=0,
    )  # fmt: skip


def _bounded(
    type_: str, name: str, what: str, defaults: tuple[str, str, str], sentence: str, *, lowest: int
) -> tuple[Setting, ...]:
    """Return a setting, and the bounds of a group's own config of it."""
    default, least, most = defaults
    may_set = f"{what} that a group's own config may set."
    return (
        Setting(f"group.{type_}.{name}", Whole(lowest), default, sentence),
        Setting(f"group.{type_}.min.{name}", Whole(lowest), least, f"The shortest {may_set}"),
        Setting(f"group.{type_}.max.{name}", Whole(lowest), most, f"The longest {may_set}"),
    )


_GROUPS = (
    Setting("group.min.session.timeout.ms", Whole(1), "6000",
        "The shortest session timeout a group member may ask for."),
    Setting("group.max.session.timeout.ms", Whole(1), "1800000",
        "The longest session timeout a group member may ask for."),
    Setting("group.initial.rebalance.delay.ms", Whole(0), "3000",
        "How long the first rebalance of an empty group waits for more members."),
    Setting("group.max.size", Whole(1), "2000",
        "Members a group may have. A rebalance of more holds Redis for longer than 50 ms."),
    Setting("group.max.bytes", Whole(1), "8388608",
        "Bytes of the protocols of a classic group's members, and of their assignments."),
    Setting("group.subscription.max.topics", Whole(1), "1000",
        "Topics that the members of a KIP-848, share or streams group may subscribe to together."),
    Setting("group.subscription.max.partitions", Whole(1), "3000",
        "Partitions of these topics: the broker assigns them in one script."),
    Setting("group.subscription.max.bytes", Whole(1), "524288",
        "Bytes of the ids, names and patterns of the members of such a group."),
    Setting("max.groups", Whole(0), "0",
        "Groups that may exist; above it none is created. 0: any number."),
    Setting("offsets.retention.minutes", Whole(1), "10080",
        "How long the committed offsets of a group without members are kept."),
    Setting("offset.metadata.max.bytes", Whole(0), "4096",
        "The longest metadata a committed offset may carry."),
)  # fmt: skip

_CONSUMER_GROUPS = (
    *heartbeat_rows("consumer", "KIP-848 groups"),
    Setting("group.consumer.max.size", Whole(1), "1000",
        "Members a KIP-848 group may have."),
)  # fmt: skip

_PRODUCERS = (
    Setting("producer.id.expiration.ms", Whole(1), "86400000",
        "How long an idle producer's sequence numbers are kept, in milliseconds."),
    Setting("transaction.max.timeout.ms", Whole(1), "900000",
        "The longest transaction timeout a producer may ask for."),
    Setting("transactional.id.expiration.ms", Whole(1), "604800000",
        "How long an idle transactional id is kept, in milliseconds."),
    Setting("transaction.abort.timed.out.transaction.cleanup.interval.ms", Whole(1), "10000",
        "Interval between two checks for timed-out transactions, in milliseconds.", dynamic=False),
)  # fmt: skip

COORDINATION = _GROUPS + _CONSUMER_GROUPS + _PRODUCERS

STREAMS_GROUPS = (
    *heartbeat_rows("streams", "streams groups"),
    *assignment_rows("streams", "streams group"),
    Setting("group.streams.initial.rebalance.delay.ms", Whole(0), "3000",
        "How long the first target assignment of a streams group waits for more members."),
    Setting("group.streams.num.standby.replicas", Whole(0), "0",
        "Standby tasks of each task that has a changelog."),
    Setting("group.streams.max.standby.replicas", Whole(0), "2",
        "The highest number of standby tasks that a group's own config may set."),
    Setting("group.streams.max.size", Whole(1), "200",
        "Members a streams group may have."),
)  # fmt: skip
