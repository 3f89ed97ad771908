"""Consumer groups whose members lose responses, revoke late, restart and commit."""

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from korvet.base.errors import ErrorCode
from korvet.groups.assignment import decode_assignment
from korvet.groups.modern import pack
from korvet.scripts.signals import Signal
from korvet.testing import LuaRunner
from tests.lua.groups import commit_call
from tests.lua.test_group_consumer_heartbeat import KEYS, SESSION_MS, TICK_MS, Group

IDS = {"t": "a" * 32, "u": "b" * 32, "v": "c" * 32}
NAMES = {id: name for name, id in IDS.items()}
K = KEYS.group("g")
GONE = (
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.FENCED_INSTANCE_ID,
)


class Client:
    """A member. It owns a partition until it has reported its revocation."""

    def __init__(self, group: Group, random: Random, name: str, instance: str) -> None:
        self.group, self.random, self.name, self.instance = group, random, name, instance
        self.topics = sorted(random.sample(sorted(IDS), random.randrange(1, 4)))
        self.rebalance_ms = random.choice([10_000, 60_000])
        self.forget()

    def forget(self) -> None:
        """Restart without state."""
        self.epoch, self.full = 0, True
        self.held: set[str] = set()
        self.giving: set[str] = set()

    @property
    def has(self) -> set[str]:
        """The partitions that no other member may own."""
        return self.held | self.giving

    def beat(self, lost: float) -> None:
        """Send a heartbeat. After a lost response it has all fields again, as real clients do."""
        words: dict[str, Any] = {"instance": self.instance}
        if self.full:
            words |= {"names": pack(self.topics), "subscription_mask": 1}
            words["rebalance_ms"] = self.rebalance_ms
        reports = self.full or self.random.random() < 0.3
        reply = self.group.beat(self.name, self.epoch, self.has if reports else None, **words)
        self.full = self.random.random() < lost
        if self.full:
            return
        if reply.error in GONE:
            self.forget()
        if reply.error:
            return
        self.epoch = reply.epoch
        if reply.has_assignment:
            assigned = decode_assignment(reply.assignment).items()
            held = {f"{topic}:{number}" for topic, numbers in assigned for number in numbers}
            self.giving = (self.giving | self.held) - held
            self.held = held

    def give(self) -> None:
        """Revoke partitions, and report it."""
        self.giving, self.full = set(), self.full or bool(self.giving)

    def commit(self, partition: str) -> int:
        """Commit at the last epoch that the client received."""
        topic, number = partition.split(":")
        row = (NAMES[topic], int(number), 5, -1, topic, "")
        call = commit_call([row], self.name, self.epoch)
        return self.group.runner.run(call).error


class World:
    """The group, its clients, and their topics."""

    def __init__(self, lua: LuaRunner, random: Random) -> None:
        self.lua, self.random, self.group = lua, random, Group(lua)
        self.clients: list[Client] = []
        self.sizes = {name: random.randrange(1, 8) for name in IDS}
        self.count = self.epoch = 0
        self.resize()

    def resize(self) -> None:
        """Change the number of partitions, create and delete topics."""
        self.group.version += 1
        self.sizes[self.random.choice(sorted(IDS))] = self.random.randrange(8)
        there = {name: (IDS[name], size) for name, size in self.sizes.items() if size}
        self.group.topics = there | {"without subscribers": ("d" * 32, 1)}

    def come(self, instance: str = "") -> None:
        """Add a client."""
        self.count += 1
        self.clients.append(Client(self.group, self.random, f"m{self.count}", instance))

    def pass_time(self, ms: int) -> None:
        """Let time pass while most members send heartbeats."""
        for _ in range(ms // TICK_MS):
            self.lua.advance(TICK_MS)
            self.group.tick()
            for client in self.clients:
                if self.random.random() < 0.9:
                    client.beat(0.1)

    def settle(self) -> None:
        """Let a session pass, and some heartbeats more."""
        for _ in range(SESSION_MS * 11 // 10 // TICK_MS + 12):
            self.lua.advance(TICK_MS)
            self.group.tick()
            for client in self.clients:
                client.give()
                client.beat(0)

    def go(self) -> None:
        """Make a client leave, stop, or rejoin with another id."""
        gone = self.clients.pop(self.random.randrange(len(self.clients)))
        if gone.instance and gone.epoch and self.random.random() < 0.6:
            self.group.beat(gone.name, -2, instance=gone.instance)
            self.come(gone.instance)
        elif self.random.random() < 0.6:
            self.group.beat(gone.name, -1, instance=gone.instance)

    def step(self) -> None:
        """Take one random step."""
        random, kind = self.random, self.random.random()
        if not self.clients or (kind < 0.1 and len(self.clients) < 6):
            self.come(random.choice(["", f"i{self.count}"]))
        elif kind < 0.15:
            self.go()
        elif kind < 0.18:
            random.choice(self.clients).forget()
        elif kind < 0.22:
            self.resize()
        elif kind < 0.25:
            self.pass_time(random.choice([TICK_MS, 3 * TICK_MS, 30_000]))
        elif kind < 0.29:
            client = random.choice(self.clients)
            named = (random.choice([client.name, ""]), client.instance)
            self.lua.run(KEYS.group("g").leave([named]))
        elif kind < 0.45:
            self.commit(random.choice(self.clients))
        else:
            client = random.choice(self.clients)
            if random.random() < 0.7:
                client.give()
            self.lua.advance(random.randrange(40))
            client.beat(0.1)

    def members(self) -> Iterator[Client]:
        """Return the clients that the group has not removed."""
        names: Any = self.lua.command("HKEYS", K.consumer_members)
        return (client for client in self.clients if client.name.encode() in names)

    def commit(self, client: Client) -> None:
        """Check that a member may commit its partitions, and at an older epoch no others."""
        held = sorted(partition for each in self.clients for partition in each.has)
        if client.epoch <= 0 or not held:
            return
        partition = self.random.choice(sorted(client.has) or held)
        if self.random.random() < 0.3:
            partition = self.random.choice(held)
        error = client.commit(partition)
        row: Any = self.lua.command("HGET", K.consumer_members, client.name)
        epoch = int(row.split()[0]) if row else -1
        holder: Any = self.lua.command("HGET", K.partition_owners, partition)
        mine = holder is not None and holder.split()[1] == client.name.encode()
        if error == Signal.TICK_FIRST:
            self.group.tick()
        elif error == ErrorCode.NONE:
            assert epoch == client.epoch or (mine and epoch > client.epoch)
        elif row and partition in client.has:
            # The member was removed and joined again after that epoch.
            assert epoch < client.epoch

    def check(self) -> None:
        """Check that no partition has two owners, and that the group epoch does not fall."""
        held = [partition for client in self.members() for partition in client.has]
        assert len(held) == len(set(held))
        epoch: Any = self.lua.command("HGET", K.group, "generation")
        assert int(epoch or 0) >= self.epoch
        self.epoch = int(epoch or 0)
        size: Any = self.lua.command("HGET", K.group, "size")
        assert int(size or 0) == self.lua.command("HLEN", K.consumer_members)


@pytest.mark.parametrize("seed", [0, 1, 2, 9])
def test_lost_responses_and_late_leaves_give_no_partition_two_owners(
    lua: LuaRunner, seed: int
) -> None:
    world = World(lua, Random(seed))
    for _ in range(140):
        world.step()
        world.check()
    if not world.clients:
        world.come()
    # Expired members are removed, and all others have converged.
    world.settle()
    wanted = {
        f"{IDS[name]}:{number}"
        for name, size in world.sizes.items()
        for number in range(size)
        if any(name in client.topics for client in world.clients)
    }
    assert sorted(p for client in world.clients for p in client.held) == sorted(wanted)
    for client in world.clients:
        assert {NAMES[partition.split(":")[0]] for partition in client.held} <= {*client.topics}
        assert not client.giving
        assert all(client.commit(partition) == ErrorCode.NONE for partition in client.held)
    assert lua.command("HLEN", K.partition_owners) == len(wanted)
    for client in world.clients:
        world.group.beat(client.name, -1, instance=client.instance)
    assert not lua.command(
        "EXISTS", K.consumer_members, K.target_assignment, K.partition_owners, K.instances
    )
