"""The leader epoch of every partition: 0, as one Redis leads them all."""

from korvet.base.errors import ErrorCode

LEADER_EPOCH = 0


def check_leader_epoch(current: int) -> ErrorCode:
    """Return the error for the epoch that a client names as current; -1: it names none."""
    if current > LEADER_EPOCH:
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    return ErrorCode.FENCED_LEADER_EPOCH if current < -1 else ErrorCode.NONE
