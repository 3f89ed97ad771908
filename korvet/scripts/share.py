"""The mirror of lua/share: the state of share groups (KIP-932) in one partition.

Offsets are ints, times ms since 1970 of Redis's clock.
"""

from collections.abc import Sequence
from enum import IntEnum

from korvet.keys import Keys
from korvet.scripts.call import Call, ErrorReply, Reply, Script, encode_group, flat


class Acknowledge(IntEnum):
    """The types of an acknowledgement."""

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


class AcquireReply(Reply):
    """`runs` has first offset, last offset and deliveries of each acquired run.

    Read from `next` for the next call. `room` is the number of records that it can acquire above
    the end of the group's state. `wait_ms` is the time to the next expired lock, -1 for none.
    `letters` is the number of dead letters that are not copied yet. With `ordered` calls need keys.
    """

    error: int
    next: int
    room: int
    wait_ms: int
    dead_letters: int
    ordered: int
    runs: list[int]


class AcknowledgeReply(Reply):
    """Without an error, all records of the call below `next` are acknowledged; if -1, all.

    `dead_letters` is the number of dead letters that are not copied yet.
    """

    error: int
    dead_letters: int
    next: int


class ReleaseReply(Reply):
    """`released` is the number of records that the member had acquired.

    `next` is the offset to continue from in another call; -1 if all are done.
    """

    error: int
    released: int
    next: int


class DescribeReply(Reply):
    """The start and the end of the group's state, and its counters; -1 without a state.

    `runs` has five texts for each delivered run: first offset, last offset, deliveries, end of the
    lock, member. Without a member it is available again, after a delay or at once (0).
    """

    error: int
    start: int
    end: int
    epoch: int
    available: int
    acquired: int
    acknowledged: int
    archived: int
    dead_letters: int
    runs: list[bytes]


class DeadLettersReply(Reply):
    """`dead_letters` has five numbers for each run, as texts.

    They are: number of the first dead letter, first offset, last offset, deliveries, reason.
    """

    error: int
    producer_id: int
    dead_letters: list[bytes]


class CopiedReply(Reply):
    """`letters` is the number of dead letters that are not copied yet."""

    error: int
    dead_letters: int


class DeleteReply(Reply):
    """`deleted` is 1 if the group had a state."""

    error: int
    deleted: int


ACQUIRE = Script("share.acquire", AcquireReply)
ACKNOWLEDGE = Script("share.acknowledge", AcknowledgeReply)
RELEASE = Script("share.release", ReleaseReply)
DESCRIBE = Script("share.describe", DescribeReply)
DEAD_LETTERS = Script("share.dead_letters", DeadLettersReply)
DEAD_LETTERS_COPIED = Script("share.dead_letters_copied", CopiedReply)
RESET = Script("share.reset", ErrorReply)
DELETE = Script("share.delete", DeleteReply)


def acquire(
    keys: Keys,
    topic: str,
    partition: int,
    ranges: Sequence[tuple[int, int]] | Sequence[tuple[int, str]],
    *,
    group: str,
    member: str,
    topic_id: str,
    start: int,
    read_from: int,
    read_to: int,
    most: int,
    exact: int,
    lock_ms: int,
    delivery_limit: int,
    max_locks: int,
    dead_letters: int = 0,
    ordered: int = 0,
    has_keys: int = 0,
) -> Call[AcquireReply]:
    """Acquire records of `ranges`, which are all of the log's records in `read_from`..`read_to`.

    With `has_keys` they are the offset and the key's digest of each record.

    With `read_from` -1, acquire none: free expired locks, and return from where to read.
    """
    k = keys.partition(topic, partition)
    limits = (most, exact, lock_ms, delivery_limit, max_locks, dead_letters)
    bounds, order = (read_from, read_to), (ordered, has_keys)
    return Call(
        ACQUIRE,
        (k.log, k.share, k.share_runs),
        (encode_group(group), member, topic_id, start, *bounds, *limits, *order, *flat(ranges)),
    )


def acknowledge(
    keys: Keys,
    topic: str,
    partition: int,
    ranges: Sequence[tuple[int, int, int]],
    *,
    group: str,
    member: str,
    topic_id: str,
    lock_ms: int,
    delivery_limit: int,
    backoff_ms: int,
    max_backoff_ms: int,
    dead_letters: int = 0,
) -> Call[AcknowledgeReply]:
    """Acknowledge `ranges`: first offset, last offset and type, ascending."""
    k = keys.partition(topic, partition)
    limits = (lock_ms, delivery_limit, backoff_ms, max_backoff_ms, dead_letters)
    numbers = [int(number) for row in ranges for number in row]  # a type may be an enum
    return Call(
        ACKNOWLEDGE,
        (k.log, k.share, k.share_runs),
        (encode_group(group), member, topic_id, *limits, *numbers),
    )


def release(
    keys: Keys,
    topic: str,
    partition: int,
    *,
    group: str,
    member: str,
    topic_id: str,
    delivery_limit: int,
    dead_letters: int = 0,
    first: int = 0,
) -> Call[ReleaseReply]:
    """Make a step of the member's acquired records available, or archive them at the limit."""
    k = keys.partition(topic, partition)
    return Call(
        RELEASE,
        (k.log, k.share, k.share_runs),
        (encode_group(group), member, topic_id, delivery_limit, dead_letters, first),
    )


def describe(
    keys: Keys, topic: str, partition: int, *, group: str, topic_id: str, most: int
) -> Call[DescribeReply]:
    """Return the group's state, with at most `most` runs that members have acquired or had."""
    k = keys.partition(topic, partition)
    return Call(DESCRIBE, (k.log, k.share, k.share_runs), (encode_group(group), topic_id, most))


def dead_letters(
    keys: Keys,
    topic: str,
    partition: int,
    *,
    group: str,
    topic_id: str,
    producer_id: int,
    most: int,
) -> Call[DeadLettersReply]:
    """Return dead letters to copy; `producer_id` is a new one for a group without, or 0."""
    k = keys.partition(topic, partition)
    return Call(
        DEAD_LETTERS,
        (k.log, k.share, k.share_runs),
        (encode_group(group), topic_id, producer_id, most),
    )


def dead_letters_copied(
    keys: Keys, topic: str, partition: int, *, group: str, topic_id: str, to: int
) -> Call[CopiedReply]:
    """Remove the dead letters with a number below `to`."""
    k = keys.partition(topic, partition)
    return Call(
        DEAD_LETTERS_COPIED, (k.log, k.share, k.share_runs), (encode_group(group), topic_id, to)
    )


def reset(
    keys: Keys, topic: str, partition: int, *, group: str, topic_id: str, offset: int
) -> Call[ErrorReply]:
    """Move the group to `offset`, whatever its state."""
    k = keys.partition(topic, partition)
    return Call(RESET, (k.log, k.share, k.share_runs), (encode_group(group), topic_id, offset))


def delete(
    keys: Keys, topic: str, partition: int, *, group: str, topic_id: str
) -> Call[DeleteReply]:
    """Delete the group's state."""
    k = keys.partition(topic, partition)
    return Call(DELETE, (k.log, k.share, k.share_runs), (encode_group(group), topic_id))
