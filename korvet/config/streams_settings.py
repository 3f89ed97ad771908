"""The broker settings of streams groups (KIP-1071)."""

from korvet.config.setting import INT_MAX, Setting, Whole

ROWS = (
    Setting("group.streams.session.timeout.ms", Whole(1), "45000",
        "Session timeout of the members of streams groups."),
    Setting("group.streams.min.session.timeout.ms", Whole(1), "45000",
        "The shortest session timeout that a group's own config may set."),
    Setting("group.streams.max.session.timeout.ms", Whole(1), "60000",
        "The longest session timeout that a group's own config may set."),
    Setting("group.streams.heartbeat.interval.ms", Whole(1), "5000",
        "Heartbeat interval given to the members of streams groups."),
    Setting("group.streams.min.heartbeat.interval.ms", Whole(1), "5000",
        "The shortest heartbeat interval that a group's own config may set."),
    Setting("group.streams.max.heartbeat.interval.ms", Whole(1), "15000",
        "The longest heartbeat interval that a group's own config may set."),
    Setting("group.streams.assignment.interval.ms", Whole(0), "1000",
        "The shortest time between two target assignments of a streams group."),
    Setting("group.streams.min.assignment.interval.ms", Whole(0), "0",
        "The shortest assignment interval that a group's own config may set."),
    Setting("group.streams.max.assignment.interval.ms", Whole(0), "15000",
        "The longest assignment interval that a group's own config may set."),
    Setting("group.streams.initial.rebalance.delay.ms", Whole(0), "3000",
        "How long the first target assignment of a streams group waits for more members."),
    Setting("group.streams.num.standby.replicas", Whole(0), "0",
        "Standby tasks of each task that has a changelog."),
    Setting("group.streams.max.standby.replicas", Whole(0), "2",
        "The highest number of standby tasks that a group's own config may set."),
    Setting("group.streams.max.size", Whole(1), str(INT_MAX),
        "Members a streams group may have."),
)  # fmt: skip
