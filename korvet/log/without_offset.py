"""Find partitions with entries that no client reads: their ids can have no offset.

- `state_command` of each partition, in one round; then the call of `count_calls` for those whose
  log has entries at other than natural ids: no other log has entries without an offset.
"""

from collections.abc import Iterable

from korvet.keys import Keys
from korvet.scripts import log
from korvet.scripts.call import Call
from korvet.scripts.log import DropUnnumberedReply

Place = tuple[str, str, int]
"""Name and id of a topic, and a partition."""


def state_command(keys: Keys, place: Place) -> tuple[str, str, str]:
    """Return the command that reads what `count_calls` takes of a partition."""
    name, _, number = place
    return "HGET", keys.partition(name, number).log, "shifts"


def count_calls(
    keys: Keys, places: Iterable[Place], states: Iterable[bytes | None]
) -> dict[Place, Call[DropUnnumberedReply]]:
    """Return the calls that count such entries, of partitions that may have any."""
    return {
        (name, topic_id, number): log.drop_unnumbered(
            *(keys, name, number), topic_id=topic_id, after=b"", delete=0
        )
        for (name, topic_id, number), shifts in zip(places, states, strict=True)
        if shifts
    }


def sentences(places: Iterable[Place], replies: Iterable[DropUnnumberedReply]) -> list[str]:
    """Return a sentence for each partition with such entries."""
    return [
        f"{reply.entries}{' or more' * bool(reply.last)} entries of {name}-{number} have ids that "
        f"can have no offset, so no client reads them: `korvet topics repair {name} --yes` "
        "deletes them, and the program that adds them should let Redis choose ids (XADD *)"
        for (name, _, number), reply in zip(places, replies, strict=True)
        if reply.entries
    ]
