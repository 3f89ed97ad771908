"""The broker settings of streams groups (KIP-1071)."""

from korvet.config.heartbeat_settings import assignment_rows, heartbeat_rows
from korvet.config.setting import Setting, Whole

ROWS = (
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
