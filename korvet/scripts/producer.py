"""The mirror of lua/producer: ids of idempotent producers."""

from korvet.keys import Keys
from korvet.scripts.call import Call, Reply, Script


class AllocateReply(Reply):
    """`producer_id` was never allocated before."""

    error: int
    producer_id: int


ALLOCATE = Script("producer.allocate", AllocateReply)


def allocate(keys: Keys) -> Call[AllocateReply]:
    """Allocate an unused producer id."""
    return Call(ALLOCATE, (keys.cluster(),))
