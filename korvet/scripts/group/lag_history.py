"""The call that records the lag of groups."""

from korvet.keys import Keys
from korvet.scripts.call import Call, Reply, Script


class RecordLagReply(Reply):
    """`recorded` is 0 if another broker has recorded the minute."""

    error: int
    recorded: int


RECORD_LAG = Script("group.record_lag", RecordLagReply)


def record_lag(keys: Keys, shard: int, *, sample: bytes) -> Call[RecordLagReply]:
    """Record the lag of a part of the groups in this minute."""
    return Call(RECORD_LAG, (keys.lag_history(shard),), (sample,))
