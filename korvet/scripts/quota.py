"""The mirror of lua/quota: token buckets that all brokers share."""

from korvet.keys import Keys
from korvet.scripts.call import Call, Reply, Script


class ChargeReply(Reply):
    """`wait_ms` is the time until the client's debt is paid, 0 for none."""

    error: int
    wait_ms: int


CHARGE = Script("quota.charge", ChargeReply)


def charge(
    keys: Keys, *, bucket: str, rate: float, burst: float, amount: float, strict: bool = False
) -> Call[ChargeReply]:
    """Charge `amount` to a bucket, which gets `rate` tokens a second up to `burst`."""
    thousandths = (max(1, round(rate * 1000)), round(burst * 1000), round(amount * 1000))
    return Call(CHARGE, (keys.quota(bucket),), (*thousandths, int(strict)))
