"""Codes that a script answers in place of a Kafka error; the broker acts on them.

The numbers are outside Kafka's range and equal those of `lua/lib/codes.lua`: no client receives
one, and one that is taken for a Kafka error is an unknown number.
"""

from enum import IntEnum

from korvet.base.errors import ErrorCode


class Signal(IntEnum):
    """A signal's code."""

    TICK_FIRST = 1001
    """A deadline of the group has passed: run group.tick, then call again."""
    REGISTER_FIRST = 1002
    """The call creates the group: run group.register, then call again with `is_registered`."""
    GROUP_CHANGED = 1003
    """The group is not the one that the caller read: describe it, then call again."""
    TOPIC_CHANGED = 1004
    """The topic or the group registry changed after the caller read it: read it, decide again."""
    CONFIGS_CHANGED = 1005
    """The configs changed after the caller read them: read them, decide again."""
    START_FIRST = 1006
    """The share group has no state in the partition: resolve its start offset, then call again."""


_SIGNALS = frozenset(Signal)


def name_of(code: int) -> str:
    """Return the name of an error code or a signal."""
    return (Signal(code) if code in _SIGNALS else ErrorCode(code)).name
