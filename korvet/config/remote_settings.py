"""Settings of tiered storage: the broker's, the topics', and which go together."""

from collections.abc import Callable

from korvet.config.setting import LONG_MAX, Flag, Setting, Text, Value, Whole, Words, long

BROKER_ROWS = (
    Setting("remote.log.storage.system.enable", Flag(), "false",
        "Whether topics may have remote.storage.enable; needs remote.storage.url. With the "
        "embedded server the default is true.", dynamic=False),
    Setting("log.remote.storage.enable", Flag(), "false",
        "Default of remote.storage.enable, for the topics that can be copied: not those with "
        "cleanup.policy=compact or offset.mode=bytes. With the embedded server it is true."),
    Setting("remote.storage.url", Text(1000), None,
        "Where segments are written: file:///DIR, s3://BUCKET/PREFIX, gs://, az:// or memory:///. "
        "With the embedded server the default is the folder `segments` of the data "
        "directory.", dynamic=False),
    Setting("remote.log.manager.task.interval.ms", long(1), "30000",
        "Interval between two passes of the copy task, in milliseconds."),
    Setting("remote.metadata.snapshot.interval.ms", long(1000), "60000",
        "Interval between two snapshots of topics, configs, users, ACLs and committed offsets."),
    Setting("remote.fetch.max.wait.ms", Whole(1), "500",
        "How long a Fetch waits for the remote store; then its response has no records."),
    Setting("remote.fetch.cache.bytes", long(0), "67108864",
        "Memory of a broker process for parts of segments in an object store.", dynamic=False),
    Setting("fetch.chunk.cache.size", long(0), str(1 << 30),
        "Bytes on the local disk for parts of segments that were read from an object store; its "
        "processes share them. 0 is no such cache; file:///DIR has none.", dynamic=False),
    Setting("fetch.chunk.cache.path", Text(1000), None,
        "Directory of that cache. The default is the folder `chunk-cache` of the data "
        "directory.", dynamic=False),
    Setting("remote.log.manager.copy.max.bytes.per.second", long(1), str(LONG_MAX),
        "Bytes a second that a broker process copies to the remote store."),
    Setting("remote.log.manager.fetch.max.bytes.per.second", long(1), str(LONG_MAX),
        "Bytes a second that a broker process reads from the remote store for consumers."),
    Setting("remote.log.reader.threads", Whole(1, 1000), "10",
        "Reads of the remote store in progress at a time in a broker process.", dynamic=False),
    Setting("remote.log.reader.max.pending.tasks", Whole(1), "100",
        "Reads of the remote store that wait for one of those threads in a broker process. A "
        "fetch that needs one more is KAFKA_STORAGE_ERROR, which consumers retry.", dynamic=False),
    Setting("remote.log.index.file.cache.total.size.bytes", long(1), str(16 << 20),
        "Memory of a broker process for the indexes of segments; one of a segment of 32 MiB has "
        "about 16 KiB."),
    Setting("remote.log.manager.copier.thread.pool.size", Whole(1, 100), "2",
        "Partitions that a broker process copies at a time; each holds a segment in memory."),
    Setting("remote.list.offsets.request.timeout.ms", long(1), "30000",
        "How long ListOffsets waits for the remote store; then the error is REQUEST_TIMED_OUT. "
        "Since version 10 the request has its own time."),
    Setting("log.remote.copy.lag.ms", long(-1), "0",
        "Default of remote.copy.lag.ms."),
    Setting("log.remote.copy.lag.bytes", long(-1), "-1",
        "Default of remote.copy.lag.bytes."),
    Setting("local.memory.bytes", long(-1), "-1",
        "Bytes of each Redis server: old records of tiered topics leave it early; -1: off. With "
        "the embedded server the default is half of the memory, a quarter if that is below 2 GiB."),
)  # fmt: skip

TOPIC_ROWS = (
    Setting("retention.consumed", Words(), "",
        "Groups, or *: records leave Redis once all of them have committed, if they are copied."),
    Setting("retention.consumed.delete", Flag(), "false",
        "Whether records that all groups of retention.consumed have committed are deleted."),
    Setting("retention.consumed.max.ms", long(-1), "-1",
        "Age in ms from which a record is no longer held for retention.consumed; -1 is no limit."),
    Setting("remote.storage.enable", Flag(), "false",
        "Whether records are copied to the remote store, and read from there once they left "
        "Redis."),
    Setting("local.retention.ms", long(-2), "-2",
        "How long copied records stay in Redis, in milliseconds; -2 is as long as retention.ms."),
    Setting("local.retention.bytes", long(-2), "-2",
        "How many bytes of copied records stay in Redis; -2 is as many as retention.bytes."),
    Setting("remote.log.copy.disable", Flag(), "false",
        "Whether no further records are copied; those that are copied stay readable."),
    Setting("remote.log.delete.on.disable", Flag(), "false",
        "Whether segments are deleted when the topic stops to be tiered; without it a topic that "
        "has segments stays tiered."),
    Setting("remote.copy.lag.ms", long(-1), "0",
        "Age in ms of its newest record at which a segment may be copied; 0 is at once, -1 is as "
        "long as local.retention.ms. It is also copied if remote.copy.lag.bytes permits it."),
    Setting("remote.copy.lag.bytes", long(-1), "-1",
        "Bytes of later records at which a segment may be copied; 0 is at once, -1 is as many as "
        "local.retention.bytes. It is also copied if remote.copy.lag.ms permits it."),
    Setting("segment.bytes", Whole(14), "1073741824",
        "Bytes of a segment of the remote store, at most 33554432."),
    Setting("segment.ms", long(1), "604800000",
        "Age of a record, in milliseconds, after which a segment with fewer bytes is copied."),
    Setting("file.delete.delay.ms", long(0), "60000",
        "Time between removal of a segment from the log and of its object, in milliseconds."),
)  # fmt: skip


def find_conflict(value: Callable[[str], Value], is_enabled: bool) -> str | None:
    """Return why a topic may not have its remote configs together, or None if it may.

    `value` returns a topic config in effect; `is_enabled`: the broker has a remote store.
    """
    for unit in ("ms", "bytes"):
        total, local = value(f"retention.{unit}"), value(f"local.retention.{unit}")
        assert isinstance(total, int) and isinstance(local, int)
        if local > total >= 0 or (local == -1 and total >= 0):
            return (
                f"Invalid value {local} for configuration local.retention.{unit}: Value must not "
                f"be more than retention.{unit} property value: {total}"
            )
        kept, lag = total if local == -2 else local, value(f"remote.copy.lag.{unit}")
        assert isinstance(lag, int)
        if lag > kept >= 0:
            return (
                f"Invalid value {lag} for configuration remote.copy.lag.{unit}: Value must not be "
                f"more than local.retention.{unit}, which is {kept}: records stay in Redis until "
                "they are copied"
            )
        if value("remote.log.copy.disable") and local not in (-2, total):
            return (
                f"When `remote.log.copy.disable` is set to true, the `local.retention.{unit}` and "
                f"`retention.{unit}` must be set to the identical value because there will be no "
                "more logs copied to the remote storage."
            )
    conflict = _find_consumed_conflict(value)
    if conflict is not None or not value("remote.storage.enable"):
        return conflict
    if not is_enabled:
        return "Tiered Storage functionality is disabled in the broker."
    cleanup = value("cleanup.policy")
    if isinstance(cleanup, tuple) and "compact" in cleanup:
        return (
            "Remote log storage only supports topics with cleanup.policy=delete or cleanup.policy "
            "being an empty list."
        )
    if value("offset.mode") == "bytes":
        return "Remote log storage does not support topics with offset.mode=bytes."
    return None


def _find_consumed_conflict(value: Callable[[str], Value]) -> str | None:
    """Return why retention.consumed has no effect with the topic's other configs, or None."""
    groups = value("retention.consumed")
    if not groups:
        return None
    assert isinstance(groups, tuple)
    if groups[0].startswith("[") and groups[-1].endswith("]"):
        return (
            "retention.consumed must be group,group without brackets: only kafka-configs takes "
            "and removes them."
        )
    cleanup, deletes = value("cleanup.policy"), value("retention.consumed.delete")
    if deletes and isinstance(cleanup, tuple) and "delete" not in cleanup:
        return "retention.consumed.delete=true needs cleanup.policy=delete."
    if not deletes and not value("remote.storage.enable"):
        return (
            "retention.consumed needs remote.storage.enable=true or retention.consumed.delete="
            "true: records that are not copied can only leave memory by deletion."
        )
    return None
