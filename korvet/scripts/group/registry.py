"""Calls on the registry of groups, and on the schedule of their ticks."""

from korvet.keys import Keys
from korvet.scripts.call import Call, ErrorReply, Reply, Script, encode_group


class RegisterReply(Reply):
    """`added` is 1 if the group was not in the registry."""

    error: int
    added: int


class UnregisterReply(Reply):
    """`removed` is 1 if the group was in the registry under that mark."""

    error: int
    removed: int


class ClaimDueReply(Reply):
    """The claimed groups, and the moment at which the claim expires."""

    error: int
    groups: list[bytes]
    held_until: int


class ReleaseClaimReply(Reply):
    """`released` is 0 if the group was scheduled since the claim."""

    error: int
    released: int


REGISTER = Script("group.register", RegisterReply)
UNREGISTER = Script("group.unregister", UnregisterReply)
SCHEDULE_TICK = Script("group.schedule_tick", ErrorReply)
CLAIM_DUE = Script("group.claim_due", ClaimDueReply)
RELEASE_CLAIM = Script("group.release_claim", ReleaseClaimReply)


def register(keys: Keys, *, group: str, most: int = 0) -> Call[RegisterReply]:
    """Add the group to the registry, unless it is in it or has `most` groups."""
    return Call(REGISTER, (keys.groups(),), (encode_group(group), most))


def make_registry(keys: Keys, *, group: str = ":version", most: int = 0) -> Call[RegisterReply]:
    """Make the registry unless there is one; `group`, its version, is no encoded id."""
    return Call(REGISTER, (keys.groups(),), (group, most))


def unregister(keys: Keys, *, group: str, mark: bytes) -> Call[UnregisterReply]:
    """Remove the group from the registry if it has that mark."""
    return Call(UNREGISTER, (keys.groups(),), (encode_group(group), mark))


def schedule_tick(keys: Keys, *, group: str, after_ms: int) -> Call[ErrorReply]:
    """Schedule a tick of the group within `after_ms`."""
    return Call(SCHEDULE_TICK, (keys.groups_due(),), (encode_group(group), after_ms))


def claim_due(keys: Keys, *, hold_ms: int, limit: int) -> Call[ClaimDueReply]:
    """Claim groups that are due for `hold_ms`."""
    return Call(CLAIM_DUE, (keys.groups_due(),), (hold_ms, limit))


def release_claim(
    keys: Keys, *, group: str, held_until: int, after_ms: int
) -> Call[ReleaseClaimReply]:
    """Schedule the claimed group's next tick, or none."""
    return Call(RELEASE_CLAIM, (keys.groups_due(),), (encode_group(group), held_until, after_ms))
