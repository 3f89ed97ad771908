"""Streams groups whose members lose responses, revoke late, restart, and whose topics change."""

from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from korvet.base.errors import ErrorCode
from korvet.testing import LuaRunner
from tests.lua.streams import KEYS, SESSION_MS, TICK_MS, Group, held, subtopology, topology

K = KEYS.group("g")
TOPOLOGY = topology(
    subtopology("0", ["t"], sinks=["r"]),
    subtopology("1", ["u"], repartition=[("r", 0)], changelogs=["c"]),
    subtopology("2", ["t", "u"]),
)
GONE = (
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.UNRELEASED_INSTANCE_ID,
    ErrorCode.GROUP_ID_NOT_FOUND,
)


class Client:
    """A member. It owns a task until it has reported its revocation."""

    def __init__(self, world: "World", name: str, process: str, instance: str) -> None:
        self.world, self.name, self.process, self.instance = world, name, process, instance
        self.rebalance_ms = world.random.choice([10_000, 60_000])
        self.forget()

    def forget(self) -> None:
        """Restart without state."""
        self.epoch, self.full = 0, True
        self.held: set[str] = set()
        self.giving: set[str] = set()

    @property
    def has(self) -> set[str]:
        """The tasks that no other member may own."""
        return self.held | self.giving

    def beat(self, lost: float) -> None:
        """Send a heartbeat. After a lost response it has all fields again, as real clients do."""
        random, words = self.world.random, dict[str, Any](replicas=self.world.replicas)
        words["instance"] = self.instance
        if self.epoch == 0 or self.full:
            words |= {"has_process": 1, "process": self.process, "rebalance_ms": self.rebalance_ms}
        reports = self.full or random.random() < 0.3
        owned = (self.has if self.epoch else set()) if reports else None
        reply = self.world.group.beat(self.name, self.epoch, owned, **words)
        self.full = random.random() < lost
        if self.full:
            return
        if reply.error == ErrorCode.INVALID_REQUEST:
            # It still owns a task that the topology no longer has.
            self.full = True
            self.giving = set()
            self.held &= self.world.tasks()
            return
        if reply.error:
            assert reply.error in GONE
            self.forget()
            return
        self.epoch = reply.epoch
        if reply.has_assignment:
            tasks = held(reply)
            self.giving = (self.giving | self.held) - tasks
            self.held = tasks

    def give(self) -> None:
        """Revoke tasks, and report it."""
        self.giving, self.full = set(), self.full or bool(self.giving)


class World:
    """The group, its clients, and their topics."""

    def __init__(self, lua: LuaRunner, random: Random) -> None:
        self.lua, self.random = lua, random
        self.group = Group(lua, TOPOLOGY, t=random.randrange(1, 6), u=3)
        self.clients: list[Client] = []
        self.count = self.epoch = 0
        self.replicas = random.randrange(3)

    def tasks(self, kinds: str = "ab") -> set[str]:
        """Return all tasks that exist, of each kind."""
        sizes = self.group.sizes
        counts = {"0": sizes["t"], "1": max(sizes["u"], sizes["r"])}
        counts["2"] = max(sizes["t"], sizes["u"])
        return {
            f"{kind}{sub.encode().hex()}:{number}"
            for kind in kinds
            for sub, count in counts.items()
            for number in range(count)
        }

    def come(self, instance: str = "") -> None:
        """Add a client."""
        self.count += 1
        process = f"p{self.random.randrange(4)}"
        self.clients.append(Client(self, f"m{self.count}", process, instance))

    def go(self) -> None:
        """Make a client leave, stop, or rejoin with another id and maybe in another process."""
        gone = self.clients.pop(self.random.randrange(len(self.clients)))
        if gone.instance and gone.epoch and self.random.random() < 0.6:
            self.group.beat(gone.name, -2, instance=gone.instance)
            self.come(gone.instance)
        elif self.random.random() < 0.6:
            self.group.beat(gone.name, -1, instance=gone.instance)

    def resize(self) -> None:
        """Delete a topic, or create it again."""
        self.group.size("u", None if "u" in self.group.sizes else 3)

    def settle(self) -> None:
        """Let a session pass, and some heartbeats more."""
        self.group.size("u", 3)
        for _ in range(SESSION_MS * 11 // 10 // TICK_MS + 14):
            self.lua.advance(TICK_MS)
            self.group.tick()
            for client in self.clients:
                client.give()
                client.beat(0)

    def pass_time(self, ticks: int) -> None:
        """Let time pass while most members send heartbeats."""
        for _ in range(ticks):
            self.lua.advance(TICK_MS)
            self.group.tick()
            for client in self.clients:
                if self.random.random() < 0.9:
                    client.beat(0.1)

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
        elif kind < 0.24:
            self.replicas = random.randrange(3)
        elif kind < 0.28:
            self.pass_time(random.choice([1, 3, 8]))
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

    def check(self) -> None:
        """Check that no task is active twice, or twice in a process; epochs do not fall."""
        owners = Counter(task for client in self.members() for task in client.has)
        assert all(count == 1 for task, count in owners.items() if task[0] == "a")
        in_process = Counter(
            (client.process, task[1:]) for client in self.members() for task in client.has
        )
        assert all(count == 1 for count in in_process.values())
        epoch: Any = self.lua.command("HGET", K.group, "generation")
        assert int(epoch or 0) >= self.epoch
        self.epoch = int(epoch or 0)
        size: Any = self.lua.command("HGET", K.group, "size")
        assert int(size or 0) == self.lua.command("HLEN", K.consumer_members)


@pytest.mark.parametrize("seed", range(6))
def test_lost_responses_and_late_leaves_give_no_task_two_owners(lua: LuaRunner, seed: int) -> None:
    world = World(lua, Random(seed))
    for _ in range(140):
        world.step()
        world.check()
    if not world.clients:
        world.come()
    world.settle()
    world.check()
    active = [t for client in world.clients for t in client.held if t[0] == "a"]
    assert sorted(active) == sorted(world.tasks("a"))
    processes = {client.process for client in world.clients}
    replicas = min(world.replicas, len(processes) - 1)
    standby = Counter(t for client in world.clients for t in client.held if t[0] == "b")
    stateful = {task for task in world.tasks("b") if task.startswith("b31:")}
    assert standby == Counter({task: replicas for task in stateful if replicas})
    assert not any(client.giving for client in world.clients)
    for client in world.clients:
        world.group.beat(client.name, -1, instance=client.instance)
    assert not lua.command(
        "EXISTS", K.consumer_members, K.target_assignment, K.partition_owners, K.instances
    )
