"""Streams groups whose members lose responses, revoke late, restart, and whose topics change."""

from collections import Counter
from random import Random
from typing import Any

import pytest

from korvet.base.errors import ErrorCode
from korvet.testing import LuaRunner
from tests.lua import random_group
from tests.lua.streams import KEYS, Group, held, subtopology, topology
from tests.selection import seeds

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


class Client(random_group.Client):
    """A member in one of some processes."""

    def __init__(self, world: "World", name: str, process: str, instance: str) -> None:
        self.world, self.process = world, process
        super().__init__(name, instance, world.random)

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
            self.take(held(reply))


class World(random_group.World[Client]):
    """The group, its clients, and their topics."""

    def __init__(self, lua: LuaRunner, random: Random) -> None:
        super().__init__(lua, random, Group(lua, TOPOLOGY, t=random.randrange(1, 6), u=3))
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

    def client(self, name: str, instance: str) -> Client:
        return Client(self, name, f"p{self.random.randrange(4)}", instance)

    def resize(self) -> None:
        """Delete a topic, or create it again."""
        self.group.size("u", None if "u" in self.group.sizes else 3)

    def settle(self) -> None:
        """Create the topic again first."""
        self.group.size("u", 3)
        super().settle()

    def step_of_kind(self, kind: float) -> bool:
        """Change the number of standby replicas, or let time pass."""
        if kind < 0.24:
            self.replicas = self.random.randrange(3)
        elif kind < 0.28:
            self.pass_time(self.random.choice([1, 3, 8]))
        else:
            return False
        return True

    def check(self) -> None:
        """Check that no task is active twice, or twice in a process, either."""
        owners = Counter(task for client in self.members() for task in client.has)
        assert all(count == 1 for task, count in owners.items() if task[0] == "a")
        in_process = Counter(
            (client.process, task[1:]) for client in self.members() for task in client.has
        )
        assert all(count == 1 for count in in_process.values())
        super().check()


@pytest.mark.parametrize("seed", seeds(range(6), quick=1))
def test_lost_responses_and_late_leaves_give_no_task_two_owners(lua: LuaRunner, seed: int) -> None:
    world = World(lua, Random(seed))
    world.run()
    active = [t for client in world.clients for t in client.held if t[0] == "a"]
    assert sorted(active) == sorted(world.tasks("a"))
    processes = {client.process for client in world.clients}
    replicas = min(world.replicas, len(processes) - 1)
    standby = Counter(t for client in world.clients for t in client.held if t[0] == "b")
    stateful = {task for task in world.tasks("b") if task.startswith("b31:")}
    assert standby == Counter({task: replicas for task in stateful if replicas})
    assert not any(client.giving for client in world.clients)
    world.end()
