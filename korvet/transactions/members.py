"""Name the members of a transaction: partitions (`p:topic:0`) and groups (`g:group`)."""

from collections.abc import Iterable


def partition_member(topic: str, partition: int) -> str:
    """Return the member name of a partition."""
    return f"p:{topic}:{partition}"


def group_member(group_id: str) -> str:
    """Return the member name of a group."""
    return f"g:{group_id}"


def parse_partition_member(member: str) -> tuple[str, int]:
    """Return the topic and partition of a `partition_member` name."""
    _, topic, number = member.split(":")
    return topic, int(number)


def member_names(members: Iterable[bytes]) -> list[str]:
    """Decode and sort member names as stored in Redis."""
    return sorted(member.decode("utf-8", "surrogateescape") for member in members)
