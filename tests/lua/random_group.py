"""A group of the newer protocols whose members lose responses, revoke late, restart and leave."""

from collections.abc import Iterator
from random import Random
from typing import Any, Generic, TypeVar

from korvet.testing import LuaRunner
from tests.lua.groups import TICK_MS
from tests.lua.streams import SESSION_MS, K


class Client:
    """A member. It owns a partition, or task, until it has reported its revocation."""

    def __init__(self, name: str, instance: str, random: Random) -> None:
        self.name, self.instance = name, instance
        self.rebalance_ms = random.choice([10_000, 60_000])
        self.forget()

    def forget(self) -> None:
        """Restart without state."""
        self.epoch, self.full = 0, True
        self.held: set[str] = set()
        self.giving: set[str] = set()

    @property
    def has(self) -> set[str]:
        """Return the partitions, or tasks, that no other member may own."""
        return self.held | self.giving

    def take(self, held: set[str]) -> None:
        """Own what was assigned; the rest is to be revoked."""
        self.giving = (self.giving | self.held) - held
        self.held = held

    def give(self) -> None:
        """Revoke, and report it."""
        self.giving, self.full = set(), self.full or bool(self.giving)

    def beat(self, lost: float) -> None:
        """Send a heartbeat, of which the response is lost with that probability."""
        raise NotImplementedError


C = TypeVar("C", bound=Client)


class World(Generic[C]):
    """The group and its clients."""

    def __init__(self, lua: LuaRunner, random: Random, group: Any) -> None:
        self.lua, self.random, self.group = lua, random, group
        self.clients: list[C] = []
        self.count = self.epoch = 0

    def client(self, name: str, instance: str) -> C:
        """Return a new client."""
        raise NotImplementedError

    def resize(self) -> None:
        """Change the topics."""
        raise NotImplementedError

    def step_of_kind(self, kind: float) -> bool:
        """Take a step that only such groups have, by a number from 0.22 to 1."""
        raise NotImplementedError

    def come(self, instance: str = "") -> None:
        """Add a client."""
        self.count += 1
        self.clients.append(self.client(f"m{self.count}", instance))

    def go(self) -> None:
        """Make a client leave, stop, or rejoin with another id."""
        gone = self.clients.pop(self.random.randrange(len(self.clients)))
        if gone.instance and gone.epoch and self.random.random() < 0.6:
            self.group.beat(gone.name, -2, instance=gone.instance)
            self.come(gone.instance)
        elif self.random.random() < 0.6:
            self.group.beat(gone.name, -1, instance=gone.instance)

    def pass_time(self, ticks: int) -> None:
        """Let time pass while most members send heartbeats."""
        for _ in range(ticks):
            self.lua.advance(TICK_MS)
            self.group.tick()
            for client in self.clients:
                if self.random.random() < 0.9:
                    client.beat(0.1)

    def settle(self) -> None:
        """Let a session pass, and some heartbeats more."""
        for _ in range(SESSION_MS * 11 // 10 // TICK_MS + 14):
            self.lua.advance(TICK_MS)
            self.group.tick()
            for client in self.clients:
                client.give()
                client.beat(0)

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
        elif not self.step_of_kind(kind):
            client = random.choice(self.clients)
            if random.random() < 0.7:
                client.give()
            self.lua.advance(random.randrange(40))
            client.beat(0.1)

    def members(self) -> Iterator[C]:
        """Return the clients that the group has not removed."""
        names: Any = self.lua.command("HKEYS", K.consumer_members)
        return (client for client in self.clients if client.name.encode() in names)

    def check(self) -> None:
        """Check that the group epoch does not fall, and that the group counts its members."""
        epoch: Any = self.lua.command("HGET", K.group, "generation")
        assert int(epoch or 0) >= self.epoch
        self.epoch = int(epoch or 0)
        size: Any = self.lua.command("HGET", K.group, "size")
        assert int(size or 0) == self.lua.command("HLEN", K.consumer_members)

    def run(self) -> None:
        """Take random steps with a check after each, then settle."""
        for _ in range(140):
            self.step()
            self.check()
        if not self.clients:
            self.come()
        self.settle()
        self.check()

    def end(self) -> None:
        """Let all members leave, and check that nothing of them is left."""
        for client in self.clients:
            self.group.beat(client.name, -1, instance=client.instance)
        keys = (K.consumer_members, K.target_assignment, K.partition_owners, K.instances)
        assert not self.lua.command("EXISTS", *keys)
