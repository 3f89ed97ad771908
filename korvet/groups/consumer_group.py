"""Groups of the newer protocol (KIP-848), for the handlers that meet them."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from korvet.config.dynamic import group_resource
from korvet.errors import ErrorCode
from korvet.groups.offset_commit import Row
from korvet.re2.matcher import compiled
from korvet.scripts import group as scripts
from korvet.scripts.group import ConsumerHeartbeatReply

if TYPE_CHECKING:
    from korvet.context import Context

MAYBE_NEWER = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)
"""What a classic group says to a member of the newer protocol."""
CELLS = 10
"""What lua/group/consumer_describe.lua says of each member."""
Rows = list[tuple[str, str, str]]


def pack(items: Iterable[str]) -> bytes:
    """A list as lua/lib/pack.lua has it."""
    return pack_raw(item.encode("utf-8", "surrogateescape") for item in items)


def pack_raw(items: Iterable[bytes]) -> bytes:
    """The same of bytes."""
    return b"".join(b"%d:%s" % (len(item), item) for item in items)


def unpack(packed: bytes) -> list[str]:
    """The list that was packed."""
    found, at = [], 0
    while at < len(packed):
        colon = packed.index(b":", at)
        end = colon + 1 + int(packed[at:colon])
        found.append(packed[colon + 1 : end].decode("utf-8", "surrogateescape"))
        at = end
    return found


def timing(context: "Context", group_id: str, name: str) -> int:
    """`consumer.session.timeout.ms` or `consumer.heartbeat.interval.ms` of the group."""
    table, resource = context.services.configs, group_resource(group_id)
    own = table.explicit(resource).get(name) if table.raw(resource) else None
    return int(own) if own else context.settings.integer(f"group.{name}")


async def keep(
    context: "Context",
    group_id: str,
    rows: Sequence[Row],
    *,
    member: str,
    epoch: int,
    otherwise: ErrorCode,
    stores: bool = True,
) -> ErrorCode:
    """A member of the newer protocol committed the rows; `otherwise` if the group is none such.

    Without `stores` it is only said whether it may.
    """
    reply = await context.services.groups.run(
        group_id,
        lambda _: scripts.keep(
            context.keys, group_id, rows, member=member, epoch=epoch, stores=int(stores)
        ),
    )
    error = ErrorCode(reply.error)
    return otherwise if error == ErrorCode.GROUP_ID_NOT_FOUND else error


def wants(reply: ConsumerHeartbeatReply) -> bytes:
    """What the reply asks for, as it is given back with the topics."""
    return pack_raw((pack_raw(reply.names), pack_raw(reply.regexes)))


async def topics_for(reply: ConsumerHeartbeatReply, context: "Context") -> Rows:
    """The topics that a group's members subscribe to, by name and by pattern."""
    patterns = [(raw.decode(), compiled(raw.decode())) for raw in reply.regexes]
    names = {raw.decode() for raw in reply.names}
    rows: Rows = []
    for topic in await context.topics.all():
        matched = [text for text, pattern in patterns if pattern.matches(topic.name)]
        if matched or topic.name in names:
            rows.append(("t", topic.name, f"{topic.id}:{topic.partitions}"))
            rows += (("r", text, topic.name) for text in matched)
    return rows
