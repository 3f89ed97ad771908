"""The broker's settings for monitoring: bounds of what /metrics and /metrics/kafka show."""

from korvet.config.setting import Setting, Whole

ROWS = (
    Setting("monitoring.max.topics", Whole(0), "1000",
        "Topics with rows of `korvet_topic_*` metrics: those with the most bytes."),
    Setting("monitoring.max.groups", Whole(0), "1000",
        "Groups with rows in /metrics and /metrics/kafka: those with the most lag."),
    Setting("monitoring.max.partitions", Whole(0), "10000",
        "Rows of group lag in /metrics, most lag first; and in /metrics/kafka also partitions with "
        "rows, by name of the topic."),
)  # fmt: skip
