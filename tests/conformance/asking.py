"""Requests of the cases, and the parts of responses that are compared.

A case is a coroutine that sends requests to a broker and returns the responses to compare. It runs
once for each version of its API. Generated ids, addresses, sizes and wording may differ between
brokers. They are removed from a response before it is compared.
"""

import re
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, Protocol
from uuid import UUID

import msgspec

from korvet import apis
from korvet.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from korvet.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from korvet.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from korvet.wire.schema import Message

CLIENT = "test"
TOPIC, COMPACTED, PRODUCED, ABSENT = "t", "c", "p", "absent"
"""A topic of two partitions, a compacted one, one that is produced to, and one that is absent."""
SUBSCRIBED = b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff"
"""Metadata of a consumer that subscribes to topic `t`."""
NOT_COMPARED = frozenset(
    {"throttle_time_ms", "log_dir", "partition_size", "total_bytes", "usable_bytes", "client_host"}
)
REASONS = frozenset({"error_message", "batch_index_error_message"})
PLACES = frozenset({"node_id", "host", "port", "leader_id"})
MADE_UP = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
JOIN, SYNC, METADATA = 7, 3, 12
"""API versions of the requests that prepare a case."""


class Send(Protocol):
    """A function that sends one request in one version and returns the response."""

    def __call__(self, request: Message, version: int) -> Awaitable[Any]: ...


class Member(NamedTuple):
    """A member of a group."""

    group: str
    id: str
    generation: int


class Ask:
    """A broker as seen by one case in one version."""

    def __init__(self, send: Send, case: str, key: int, version: int) -> None:
        self._send = send
        self._key = key
        self.version = version
        self.group = f"{case}-{version}"
        """A group id that no other case uses."""

    async def __call__(self, request: Message, version: int | None = None) -> Any:
        """Send a request and return the response; `version` defaults to that of the case."""
        return await self._send(request, self.version if version is None else version)

    async def topic_id(self, name: str = TOPIC) -> UUID:
        """Return the id of an existing topic."""
        wanted = MetadataRequest(topics=[MetadataRequestTopic(name=name)])
        return UUID(str((await self._send(wanted, METADATA)).topics[0].topic_id))

    async def join(self, **changes: Any) -> Any:
        """Send a JoinGroup and return the response. A new member retries with its assigned id."""
        answer = await self._send(joining(self.group, **changes), JOIN)
        if answer.error_code == 79:
            changes["member_id"] = answer.member_id
            answer = await self._send(joining(self.group, **changes), JOIN)
        return answer

    async def joined(self, **changes: Any) -> Member:
        """Join a group as its only member, before the leader's SyncGroup."""
        answer = await self.join(**changes)
        assert answer.error_code == 0, answer
        return Member(changes.get("group_id", self.group), answer.member_id, answer.generation_id)

    async def stable(self, **changes: Any) -> Member:
        """Join and synchronise a group as its only member. The group is stable."""
        member = await self.joined(**changes)
        answer = await self._send(
            SyncGroupRequest(
                group_id=member.group,
                generation_id=member.generation,
                member_id=member.id,
                assignments=[SyncGroupRequestAssignment(member_id=member.id, assignment=b"mine")],
            ),
            SYNC,
        )
        assert answer.error_code == 0, answer
        return member


def joining(group: str, **changes: Any) -> JoinGroupRequest:
    """Return a JoinGroup request of a consumer of topic `t`."""
    fields: dict[str, Any] = {
        "group_id": group,
        "session_timeout_ms": 30_000,
        "rebalance_timeout_ms": 30_000,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [JoinGroupRequestProtocol(name="range", metadata=SUBSCRIBED)],
    }
    return JoinGroupRequest(**{**fields, **changes})


Run = Callable[[Ask], Awaitable[Any]]


class Case(NamedTuple):
    """A row of the table."""

    key: int
    name: str
    versions: tuple[int, int]
    run: Run
    one_connection: bool = False
    """True if all requests use one connection, as those of a share session do."""


CASES: dict[str, Case] = {}


def case(
    api: str, since: int = 0, until: int = 99, *, one_connection: bool = False
) -> Callable[[Run], Run]:
    """Register the coroutine as a case of that API, in the given versions."""
    (row,) = (row for row in apis.TABLE if row.name == api)
    versions = (max(since, row.versions[0]), min(until, row.versions[1]))

    def register(run: Run) -> Run:
        name = f"{api}.{run.__name__}"
        assert name not in CASES, name
        CASES[name] = Case(row.key, name, versions, run, one_connection)
        return run

    return register


async def outline(case: Case, send: Send, version: int) -> Any:
    """Run a case and return the parts of its responses that are compared, as plain values."""
    return _plain(await case.run(Ask(send, case.name, case.key, version)))


def _plain(value: Any, name: str = "") -> Any:
    if isinstance(value, msgspec.Struct):
        return {
            field: _in_order(_plain(getattr(value, field), field))
            for field in value.__struct_fields__
            if field not in NOT_COMPARED and not _only_a_code(value, field)
        }
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if name in REASONS:
        return value is not None
    if name in PLACES:
        return value if value in (-1, "") else "somewhere"
    if isinstance(value, UUID):
        return "some id" if value.int else "no id"
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex()
    return MADE_UP.sub("made up", value) if isinstance(value, str) else value


def _only_a_code(value: msgspec.Struct, field: str) -> bool:
    """Return whether an error has no message. Another broker may add one."""
    return field == "error_message" and bool(
        getattr(value, "error_code", 0) and getattr(value, field) is None
    )


def _in_order(value: Any) -> Any:
    """Sort the rows of a response, whose order is free."""
    return sorted(value, key=msgspec.json.encode) if isinstance(value, list) else value
