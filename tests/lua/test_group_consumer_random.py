"""Consumer groups whose members lose responses, revoke late, restart and commit."""

from random import Random
from typing import Any

import pytest

from korvet.base.errors import ErrorCode
from korvet.groups.assignment import decode_assignment
from korvet.groups.modern import pack
from korvet.scripts.call import Signal
from korvet.testing import LuaRunner
from tests.lua import random_group
from tests.lua.groups import commit_call
from tests.lua.test_group_consumer_heartbeat import KEYS, TICK_MS, Group
from tests.selection import seeds

IDS = {"t": "a" * 32, "u": "b" * 32, "v": "c" * 32}
NAMES = {id: name for name, id in IDS.items()}
K = KEYS.group("g")
GONE = (
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.FENCED_INSTANCE_ID,
)


class Client(random_group.Client):
    """A member with a subscription."""

    def __init__(self, group: Group, random: Random, name: str, instance: str) -> None:
        self.group, self.random = group, random
        self.topics = sorted(random.sample(sorted(IDS), random.randrange(1, 4)))
        super().__init__(name, instance, random)

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
            self.take({f"{topic}:{number}" for topic, numbers in assigned for number in numbers})

    def commit(self, partition: str) -> int:
        """Commit at the last epoch that the client received."""
        topic, number = partition.split(":")
        row = (NAMES[topic], int(number), 5, -1, topic, "")
        call = commit_call([row], self.name, self.epoch)
        return self.group.runner.run(call).error


class World(random_group.World[Client]):
    """The group, its clients, and their topics."""

    def __init__(self, lua: LuaRunner, random: Random) -> None:
        super().__init__(lua, random, Group(lua))
        self.sizes = {name: random.randrange(1, 8) for name in IDS}
        self.resize()

    def client(self, name: str, instance: str) -> Client:
        return Client(self.group, self.random, name, instance)

    def resize(self) -> None:
        """Change the number of partitions, create and delete topics."""
        self.group.version += 1
        self.sizes[self.random.choice(sorted(IDS))] = self.random.randrange(8)
        there = {name: (IDS[name], size) for name, size in self.sizes.items() if size}
        self.group.topics = there | {"without subscribers": ("d" * 32, 1)}

    def step_of_kind(self, kind: float) -> bool:
        """Let time pass, remove a member as an administrator does, or commit."""
        random = self.random
        if kind < 0.25:
            self.pass_time(random.choice([1, 3, 30_000 // TICK_MS]))
        elif kind < 0.29:
            client = random.choice(self.clients)
            named = (random.choice([client.name, ""]), client.instance)
            self.lua.run(K.leave([named]))
        elif kind < 0.45:
            self.commit(random.choice(self.clients))
        else:
            return False
        return True

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
        """Check that no partition has two owners, either."""
        held = [partition for client in self.members() for partition in client.has]
        assert len(held) == len(set(held))
        super().check()


@pytest.mark.parametrize("seed", seeds([0, 1, 2, 9], quick=1))
def test_lost_responses_and_late_leaves_give_no_partition_two_owners(
    lua: LuaRunner, seed: int
) -> None:
    world = World(lua, Random(seed))
    world.run()
    # Expired members are removed, and all others have converged.
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
    world.end()
