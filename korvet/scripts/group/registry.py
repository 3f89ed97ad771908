"""Calls on the registry of groups, and on the list of those somebody has to look at."""

from korvet.keys import Keys, encode_group
from korvet.scripts.call import Call, Reply, Script


class RegisterReply(Reply):
    """`version` is the group's mark."""

    error: int
    version: int


class UnregisterReply(Reply):
    """`removed` is 1 when the group was still there under that mark."""

    error: int
    removed: int


class ScheduleTickReply(Reply):
    """The group will be looked at."""

    error: int


class ClaimDueReply(Reply):
    """The caller's groups, under the moment `held_until`."""

    error: int
    groups: list[bytes]
    held_until: int


class ReleaseClaimReply(Reply):
    """`settled` is 0 when the group was scheduled meanwhile."""

    error: int
    settled: int


REGISTER = Script("group.register", RegisterReply)
UNREGISTER = Script("group.unregister", UnregisterReply)
SCHEDULE_TICK = Script("group.schedule_tick", ScheduleTickReply)
CLAIM_DUE = Script("group.claim_due", ClaimDueReply)
RELEASE_CLAIM = Script("group.release_claim", ReleaseClaimReply)


def register(keys: Keys, *, group: str) -> Call[RegisterReply]:
    """The group is known to whoever deletes topics."""
    return Call(REGISTER, (keys.groups(),), (encode_group(group),))


def unregister(keys: Keys, *, group: str, mark: bytes) -> Call[UnregisterReply]:
    """The group is known no more."""
    return Call(UNREGISTER, (keys.groups(),), (encode_group(group), mark))


def schedule_tick(keys: Keys, *, group: str, after_ms: int) -> Call[ScheduleTickReply]:
    """The group is looked at in `after_ms` at the latest."""
    return Call(SCHEDULE_TICK, (keys.groups_due(),), (encode_group(group), after_ms))


def claim_due(keys: Keys, *, hold_ms: int, limit: int) -> Call[ClaimDueReply]:
    """Groups whose moment has passed are the caller's for a while."""
    return Call(CLAIM_DUE, (keys.groups_due(),), (hold_ms, limit))


def release_claim(
    keys: Keys, *, group: str, held_until: int, after_ms: int
) -> Call[ReleaseClaimReply]:
    """A claimed group has its next moment, or none."""
    return Call(RELEASE_CLAIM, (keys.groups_due(),), (encode_group(group), held_until, after_ms))
