"""Check transactional producers that lose responses, with offsets of a group, near the last epoch.

If a response says that a transaction is committed, all its records are read and its offsets stored.
Without a response, either all of it is stored or nothing. A producer that is alone gets no error.
"""

from collections.abc import Callable, Generator
from random import Random
from typing import Any

import pytest

from korvet.base.errors import ErrorCode as E
from korvet.scripts.call import Signal
from korvet.scripts.calls.transaction import EndReply
from korvet.testing import LuaRunner
from tests.lua.transactions import ID, KEYS, TIMEOUT_MS, Coordinator, History, Logs
from tests.selection import seeds

PARTITIONS = 2
STEPS = 200
Work = Generator[None, None, Any]


class World(History):
    """A history of transactions, and the offsets of a group."""

    def __init__(self, lua: LuaRunner, random: Random) -> None:
        self.lua, self.random = lua, random
        super().__init__(Logs(lua, PARTITIONS, random.choice(["time", "dense"])).create())
        self.offsets: dict[tuple[str, int], int] = {}
        self.count = 0
        # The group has another commit, and so it does not expire.
        self.ask_group(
            lambda: KEYS.group("g").commit(
                KEYS.commit_rows([("t", 1, 1, 0, ID, "")]),
                member="",
                instance="",
                generation=-1,
                allow_member_epoch=1,
                is_registered=1,
                retention_ms=-1,
            )
        )

    def ask_group(self, make: Callable[[], Any]) -> Any:
        """Run a call; process expired deadlines first if the reply requires it."""
        while True:
            reply = self.lua.run(make())
            if reply.error != Signal.TICK_FIRST:
                return reply
            self.lua.run(KEYS.group("g").tick(retention_ms=10**12, present_ms=-1))

    def decide(self, name: str, number: int, committed: bool) -> None:
        """Note how the transaction ends; check that the decision does not change."""
        assert self.decided.setdefault((name, number), committed) == committed


class Client(Coordinator):
    """A producer that is alone: it repeats each request until it has a response."""

    def __init__(self, world: World, name: str, bump: bool) -> None:
        super().__init__(world.logs, name)
        self.world, self.random, self.bump = world, world.random, bump
        self.fresh = [10 * (n + 1) + int(name) for n in range(99)]
        self.work: Work = self._work()
        self.begun = False

    def _call(self, ask: Callable[[], Any]) -> Work:
        """Repeat a request until it has a response; a copy may arrive much later."""
        while True:
            reply = ask()
            if self.bump and self.begun and self.random.random() < 0.1:
                self.world.late.append(ask)
            yield
            if self.random.random() < 0.88:
                return reply

    def _insist(self, ask: Callable[[], Any]) -> Work:
        """Repeat a request also while the previous transaction has to be completed."""
        while True:
            reply = yield from self._call(ask)
            if reply.error != E.CONCURRENT_TRANSACTIONS:
                assert not reply.error, E(reply.error)
                return reply
            self.settle()

    def steps(self, reply: Any, committed: bool) -> list[Any]:
        """Return the steps that a broker takes, those of groups included."""
        partitions = [m for m in reply.members if m[:2] == b"p:"]
        steps = super().steps(Members(reply, partitions), committed)
        if len(partitions) < len(reply.members):
            words = (reply.marker_id, reply.marker_epoch, reply.transaction)
            names = ("producer_id", "producer_epoch", "transaction")
            call = KEYS.group("g").txn_complete(
                **dict(zip(names, words, strict=True)), committed=int(committed)
            )
            steps.insert(0, lambda: self.runner.run(call))
        return steps

    def _init(self) -> Work:
        reply = yield from self._insist(lambda: self.init())
        self.producer, self.epoch = reply.producer_id, reply.producer_epoch
        self.sequences = dict.fromkeys(range(PARTITIONS), 0)
        # A late InitProducerId fences, as it should.
        self.begun = True

    def _work(self) -> Work:
        yield from self._init()
        while True:
            yield from self._transaction()

    def _transaction(self) -> Work:
        who, number = (self.producer, self.epoch), 0
        for _ in range(self.random.randrange(1, 4)):
            partition = self.random.randrange(PARTITIONS)
            reply = yield from self._insist(lambda p=partition: self.add(*who, [p]))
            number = reply.transaction
            yield from self._append(partition, who, number)
        if self.random.random() < 0.4:
            yield from self._commit_offset(who, number)
        committed = self.random.random() < 0.65
        reply = yield from self._insist(lambda: self._finish(who, committed))
        assert self.world.decided[self.name, number] == committed
        if (reply.producer_id, reply.producer_epoch) != who:
            self.producer, self.epoch = reply.producer_id, reply.producer_epoch
            self.sequences = dict.fromkeys(range(PARTITIONS), 0)

    def _append(self, partition: int, who: tuple[int, int], number: int) -> Work:
        world = self.world
        if not self.bump:
            assert not (yield from self._call(lambda: world.logs.begin(partition, *who, number)))
        world.count += 1
        value, sequence = b"%d" % world.count, self.sequences[partition]

        def append() -> Any:
            reported = number if self.bump else 0
            reply = world.logs.append(partition, value, (*who, sequence), reported)
            if reply.stored:
                world.wrote((self.name, number), partition, value)
            return reply

        reply = yield from self._call(append)
        assert not reply.error, E(reply.error)
        self.sequences[partition] += 1

    def _commit_offset(self, who: tuple[int, int], number: int) -> Work:
        world = self.world
        add = KEYS.transaction(self.name).add_partitions(
            producer_id=who[0], producer_epoch=who[1], members=["g:g"]
        )
        yield from self._insist(lambda: self.runner.run(add))
        world.count += 1
        pend = KEYS.group("g").txn_commit(
            KEYS.commit_rows([("t", 0, world.count, -1, ID, "")]),
            member="",
            instance="",
            generation=-1,
            is_registered=1,
            producer_id=who[0],
            producer_epoch=who[1],
            transaction=number,
        )
        world.offsets[self.name, number] = world.count
        reply = yield from self._call(lambda: world.ask_group(lambda: pend))
        assert not reply.error, E(reply.error)

    def _finish(self, who: tuple[int, int], committed: bool) -> EndReply:
        reply = self.finish(*who, committed, self.bump)
        if reply.pending:
            self.world.decide(self.name, reply.transaction, committed)
            steps = self.steps(reply, committed)
            # The broker may fail between steps, and a step may be repeated much later.
            done = len(steps) if self.random.random() < 0.75 else self.random.randrange(len(steps))
            for step in steps[:done]:
                step()
            self.world.late += steps[:done:2]
        return reply


class Members:
    """A reply with the given members."""

    def __init__(self, reply: Any, members: list[bytes]) -> None:
        self.marker_id, self.marker_epoch = reply.marker_id, reply.marker_epoch
        self.transaction, self.members = reply.transaction, members


@pytest.mark.parametrize("seed", seeds(range(3), quick=1))
def test_a_lost_answer_loses_and_doubles_nothing(lua: LuaRunner, seed: int) -> None:
    random = Random(seed)
    world = World(lua, random)
    clients = [Client(world, name, bump) for name, bump in (("1", True), ("2", False), ("3", True))]
    for client in clients[::2]:
        client.init()
        near = random.choice([32_760, 32_763, 32_765])
        lua.command("HSET", KEYS.transaction(client.name).transaction, "epoch", near)
    for _ in range(STEPS):
        if world.late and random.random() < 0.1:
            world.late.pop(random.randrange(len(world.late)))()
        else:
            next(random.choice(clients).work)
        world.check()
    for late in world.late:
        late()
    lua.advance(TIMEOUT_MS * 2)
    for client in clients:
        client.settle()
    world.ended()
    stored: Any = lua.command("HGET", KEYS.group_offsets("g"), KEYS.partition("t", 0).stream)
    good = {offset for key, offset in world.offsets.items() if world.decided.get(key)}
    assert (int(stored.split()[0]) in good) if stored else not good
    assert not lua.command("EXISTS", KEYS.group("g").txn_pending)
