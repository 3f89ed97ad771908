"""The mirror of lua/quota: token buckets that all brokers share."""

from korvet.keys import Keys
from korvet.scripts.call import Call, Reply, Script


class ChargeReply(Reply):
    """`wait_ms` is the time until the client's debt is paid, 0 for none."""

    error: int
    wait_ms: int


CHARGE = Script("quota.charge", ChargeReply)


def charge(
    keys: Keys, bucket: str, *, rate: int, burst: int, amount: int, strict: int
) -> Call[ChargeReply]:
    """Charge `amount` to a bucket, which gets `rate` a second up to `burst`, all in thousandths."""
    return Call(CHARGE, (keys.quota(bucket),), (rate, burst, amount, strict))
