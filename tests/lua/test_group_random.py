"""Check invariant 5 under random interleavings.

Generations only grow, no partition has two owners in one generation, and no commit of an older
generation is stored.
"""

from random import Random

import pytest

from korvet.base.errors import ErrorCode
from korvet.scripts.calls.group import JoinReply
from korvet.testing import LuaRunner
from tests.lua.groups import KEYS, SESSION_MS, Group
from tests.selection import seeds

PARTITIONS = 4
STEPS = 200


class Client:
    """A client: it may be slow, silent, restarted, or stopped."""

    def __init__(self, group: Group, instance: str) -> None:
        self.group = group
        self.instance = instance
        self.member = ""
        self.generation = -1
        self.waiting = False
        self.joined = False
        self.synced = False
        self.owned: set[int] = set()
        self.roster: list[str] = []

    def forget(self) -> None:
        """Restart the client."""
        self.member, self.generation = "", -1
        self.waiting = self.joined = self.synced = False
        self.owned = set()

    def work(self, require_member_id: int) -> None:
        """Take the client's next step."""
        if self.waiting:
            self.look()
        elif not self.joined:
            self.join(require_member_id)
        elif not self.synced:
            self.sync()
        else:
            self.heartbeat()

    def join(self, require_member_id: int) -> None:
        reply = self.group.join(
            self.member, instance=self.instance, require_member_id=require_member_id
        )
        self._place(reply)

    def look(self) -> None:
        """Poll the waiting JoinGroup."""
        if self.waiting:
            self._place(self.group.poll_join(self.member, self.instance))

    def _place(self, reply: JoinReply) -> None:
        if reply.error == ErrorCode.MEMBER_ID_REQUIRED:
            self.member = reply.member.decode()
            return
        if reply.error:
            self.forget()
            return
        self.member = reply.member.decode()
        self.waiting = bool(reply.waiting)
        self.joined, self.synced = not reply.waiting, False
        if self.joined:
            assert reply.generation >= self.generation
            self.generation = reply.generation
            self.roster = [member.decode() for member in reply.members[::3]]
            self.owned = set()

    def sync(self) -> None:
        if not self.joined:
            return
        parts = []
        for number, member in enumerate(self.roster):
            mine = bytes(p for p in range(PARTITIONS) if p % len(self.roster) == number)
            parts.append((member, mine))
        reply = self.group.sync(self.member, self.generation, tuple(parts), instance=self.instance)
        if reply.error == ErrorCode.REBALANCE_IN_PROGRESS:
            self.joined, self.synced, self.owned = False, False, set()
        elif reply.error:
            self.forget()
        elif not reply.waiting:
            self.synced, self.owned = True, set(reply.assignment)

    def heartbeat(self) -> None:
        if self.generation >= 0:
            error = self.group.heartbeat(self.member, self.generation, self.instance)
            if error == ErrorCode.REBALANCE_IN_PROGRESS:
                self.joined = False
            elif error:
                self.forget()

    def leave(self) -> None:
        if self.member:
            self.group.leave((self.member, self.instance))
            self.forget()


@pytest.mark.parametrize("seed", seeds(range(8)))
def test_generations_grow_and_partitions_have_one_owner(lua: LuaRunner, seed: int) -> None:
    random = Random(seed)
    group = Group(lua, delay_ms=random.choice([0, 3000]))
    clients = [Client(group, random.choice(["", "", f"i{n % 3}"])) for n in range(5)]
    generation = 0
    owners: dict[tuple[int, int], str] = {}
    for step in range(STEPS):
        act(lua, group, random, random.choice(clients), step)
        described = group.describe(0)
        if described.error == ErrorCode.GROUP_ID_NOT_FOUND:
            continue
        assert described.generation >= generation, "a generation went back"
        generation = described.generation
        for other in clients:
            for partition in other.owned:
                owner = owners.setdefault((other.generation, partition), identity(other))
                assert owner == identity(other), "two owners in one generation"
        check(group)


def act(lua: LuaRunner, group: Group, random: Random, client: Client, step: int) -> None:
    """Let one client take a step, or time pass."""
    if random.random() < 0.75:
        client.work(require_member_id=random.randrange(2))
        return
    actions = [
        lambda: client.join(require_member_id=random.randrange(2)),
        client.sync,
        lambda: lua.advance(random.choice([1, 500, SESSION_MS // 4, SESSION_MS])),
        random.choice([client.leave, client.forget, group.tick]),
        *(lambda: commit(group, client, step),) * 3,
    ]
    random.choice(actions)()


def identity(client: Client) -> str:
    """Return the owner's name: a static member keeps it under every id."""
    return client.instance or client.member


def commit(group: Group, client: Client, offset: int) -> None:
    """Check that a commit is stored if and only if its generation is the group's."""
    if client.generation < 0:
        return
    before = group.committed()
    error = group.commit(
        offset, member=client.member, generation=client.generation, instance=client.instance
    )
    current = group.describe(0).generation
    assert error != ErrorCode.NONE or client.generation == current
    assert group.committed() == (before if error else offset)


def check(group: Group) -> None:
    """Check the counters against the rows, and that no removed member has a row."""
    k = KEYS.group(group.name)
    read = group.runner.command
    flat = read("HGETALL", k.members)
    members = dict(zip(flat[::2], flat[1::2], strict=True))  # type: ignore[index]
    pending = {member for member, row in members.items() if row == b"pending"}
    rows = {member: row for member, row in members.items() if member not in pending}
    state = read("HMGET", k.group, "size", "pending", "awaiting", "state")
    assert [int(text) for text in state[:3]] == [  # type: ignore[index]
        len(rows),
        len(pending),
        sum(b"a" in row.rpartition(b" ")[2] for row in rows.values()),
    ]
    for key in (k.clients, k.protocols):
        assert set(read("HKEYS", key)) == set(rows)  # type: ignore[call-overload]
    assert set(read("HVALS", k.instances)) <= set(rows)  # type: ignore[call-overload]
    timed = {name for name in read("ZRANGE", k.deadlines, 0, -1) if name[:1] != b":"}  # type: ignore[attr-defined]
    assert timed <= set(members)
    if state[3] == b"Stable":  # type: ignore[index]
        assert set(rows) <= timed
