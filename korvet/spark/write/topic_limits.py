"""Check records against the limits of their topic, as a broker does."""

import time

from korvet.spark.errors import InvalidDataFrame
from korvet.spark.write.record_block import RecordBlock
from korvet.topics.table import Topic


def check_keys(topic: Topic, batch: RecordBlock) -> None:
    """Raise InvalidDataFrame if the topic needs keys and a record has none."""
    if topic.policy.compact and batch.keys.null_count:
        raise InvalidDataFrame(
            f"Topic {topic.name!r} is compacted: every record needs a key, and one has none."
        )


def check_size(topic: Topic, largest: int) -> None:
    """Raise InvalidDataFrame if the topic does not accept a record of that size."""
    if largest > topic.policy.max_message_bytes:
        raise InvalidDataFrame(
            f"A record of {largest} bytes is too large for topic {topic.name!r}, whose "
            f"max.message.bytes is {topic.policy.max_message_bytes}."
        )


def check_timestamps(topic: Topic, batch: RecordBlock) -> int:
    """Return the newest timestamp; raise InvalidDataFrame if one is out of bounds."""
    policy = topic.policy
    oldest, earliest, newest = batch.timestamp_range()
    if policy.log_append_time:
        return newest
    now_ms = int(time.time() * 1000)
    if oldest < -1 or 0 <= earliest < now_ms - policy.timestamp_before_max_ms:
        wrong = oldest if oldest < -1 else earliest
        setting = "message.timestamp.before.max.ms"
    elif newest > now_ms + policy.timestamp_after_max_ms:
        wrong, setting = newest, "message.timestamp.after.max.ms"
    else:
        return newest
    raise InvalidDataFrame(
        f"Topic {topic.name!r} does not accept timestamp {wrong} (ms): it must not be before 1970 "
        f"and within {setting} of the current time."
    )
