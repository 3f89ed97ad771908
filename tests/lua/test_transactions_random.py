"""Check transactions under random interleavings.

Producers, zombies, timeouts and failing coordinators interleave. With read_committed no aborted or
open value is read, read values stay in order, and committed transactions are read whole.
"""

from random import Random

import pytest

from korvet.base.errors import ErrorCode
from korvet.testing import LuaRunner
from tests.lua.transactions import TIMEOUT_MS, Coordinator, History, Logs
from tests.selection import seeds

pytestmark = pytest.mark.slow

PARTITIONS = 2
STEPS = 250


class Client:
    """A transactional producer; its predecessors continue as zombies."""

    def __init__(self, world: History, name: str, bump: bool, random: Random) -> None:
        self.world, self.random, self.bump = world, random, bump
        self.coordinator = Coordinator(world.logs, name)
        self.coordinator.fresh = [int(name) * 100 + n for n in range(99, 0, -1)]
        self.count = 0
        self.dead = True

    def step(self) -> None:
        """Take the producer's next step, or a broker's step for it."""
        if self.dead:
            self.init()
            return
        action = self.random.choice([self.produce] * 5 + [self.end, self.end, self.die])
        action()

    def init(self) -> None:
        before = self.coordinator.view()
        reply = self.coordinator.init()
        if before.state == b"Ongoing":
            self.world.decided[self.coordinator.name, before.transaction] = False
        if reply.error:
            assert reply.error == ErrorCode.CONCURRENT_TRANSACTIONS
            self.carry_out()
            return
        self.producer, self.epoch = reply.producer_id, reply.producer_epoch
        self.number, self.sequences, self.dead = 0, dict.fromkeys(range(PARTITIONS), 0), False

    def produce(self) -> None:
        partition = self.random.randrange(PARTITIONS)
        reply = self.coordinator.add(self.producer, self.epoch, [partition])
        if reply.error:
            self.refused(reply.error)
            return
        number = reply.transaction
        if self.bump:
            reported = number
        else:
            reported = 0
            error = self.world.logs.begin(partition, self.producer, self.epoch, number)
            assert error == 0
        self.count += 1
        value = f"{self.coordinator.name}.{number}.{self.count}".encode()
        who = (self.producer, self.epoch, self.sequences[partition])
        logs = self.world.logs
        if self.random.random() < 0.1:
            # This batch arrives late: its transaction may be over.
            self.world.late.append(lambda: self.arrive(partition, value, who, reported, number))
            self.dead = True
            return
        appended = logs.append(partition, value, who, reported)
        assert appended.error == 0, ErrorCode(appended.error)
        self.world.wrote((self.coordinator.name, number), partition, value)
        self.sequences[partition] += 1

    def arrive(
        self, partition: int, value: bytes, who: tuple[int, int, int], reported: int, number: int
    ) -> None:
        reply = self.world.logs.append(partition, value, who, reported)
        if not reply.error:
            self.world.wrote((self.coordinator.name, number), partition, value)

    def end(self) -> None:
        committed = self.random.random() < 0.6
        reply = self.coordinator.finish(self.producer, self.epoch, committed, self.bump)
        if reply.error:
            self.refused(reply.error)
            return
        if reply.pending:
            self.world.decided[self.coordinator.name, reply.transaction] = committed
            steps = self.coordinator.steps(reply, committed)
            # The broker may fail between steps, and a step may be repeated much later.
            done = len(steps) if self.random.random() < 0.7 else self.random.randrange(len(steps))
            for step in steps[:done]:
                step()
            self.world.late += self.random.sample(steps[:-1], self.random.randrange(len(steps)))
            if done < len(steps):
                self.dead = True
        if self.bump and (self.producer, self.epoch) != (reply.producer_id, reply.producer_epoch):
            self.sequences = dict.fromkeys(range(PARTITIONS), 0)
            self.producer, self.epoch = reply.producer_id, reply.producer_epoch

    def refused(self, error: int) -> None:
        assert error in (
            ErrorCode.INVALID_TXN_STATE,
            ErrorCode.CONCURRENT_TRANSACTIONS,
            ErrorCode.PRODUCER_FENCED,
            ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ), ErrorCode(error)
        if error in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING):
            self.dead = True
        if error == ErrorCode.CONCURRENT_TRANSACTIONS:
            self.carry_out()

    def die(self) -> None:
        self.dead = True

    def carry_out(self) -> None:
        """Check the id for an expired deadline, as any broker."""
        before = self.coordinator.view()
        reply = self.coordinator.look()
        if reply.pending:
            key = (self.coordinator.name, reply.transaction)
            if before.state == b"Ongoing":
                self.world.decided[key] = False
            assert self.world.decided[key] == bool(reply.committed)
            for step in self.coordinator.steps(reply, bool(reply.committed)):
                step()


@pytest.mark.parametrize("mode", ["time", "dense"])
@pytest.mark.parametrize("seed", seeds(range(8)))
def test_readers_see_what_was_committed_and_nothing_else(seed: int, mode: str) -> None:
    random, runner = Random(seed), LuaRunner()
    world = History(Logs(runner, PARTITIONS, mode).create())
    clients = [Client(world, str(n + 1), n % 2 == 0, random) for n in range(4)]
    for turn in range(STEPS):
        kind = random.random()
        if kind < 0.8:
            random.choice(clients).step()
        elif kind < 0.88:
            value, partition = b"plain %d" % turn, random.randrange(PARTITIONS)
            world.logs.append(partition, value)
            world.plain.append((partition, value))
        elif kind < 0.94 and world.late:
            world.late.pop(random.randrange(len(world.late)))()
        elif kind < 0.97:
            runner.advance(random.randrange(1, TIMEOUT_MS // 2))
        else:
            random.choice(clients).carry_out()
        world.check()
    for late in world.late:
        late()
    runner.advance(TIMEOUT_MS * 2)
    for client in clients:
        client.carry_out()
    world.check()
    world.ended()
