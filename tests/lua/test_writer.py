"""Check writer.claim_producer_id, pin_plan and commit: producer ids, and committed epochs."""

from random import Random

import pytest

from korvet.scripts.calls.namespace import WriterClaimProducerIdReply
from korvet.scripts.keys import Keys
from korvet.testing import LuaRunner
from tests.support.store_runners import Runner

KEYS = Keys()
YEAR = 366 * 86_400_000


def claim(
    runner: Runner, slot: str, producer_id: int, writer_id: str = "w"
) -> WriterClaimProducerIdReply:
    return runner.run(
        KEYS.writer_claim_producer_id(
            writer=KEYS.writer(writer_id), slot=slot, producer_id=producer_id, keep_ms=YEAR
        )
    )


def test_asking_alone_changes_nothing(runner: Runner) -> None:
    assert claim(runner, "0.0", -1) == WriterClaimProducerIdReply(0, -1, -1)
    assert runner.command("EXISTS", KEYS.writer("w")) == 0


def test_the_first_claim_is_final_and_later_ones_get_its_id(runner: Runner) -> None:
    assert claim(runner, "0.0", 7).producer_id == 7
    assert claim(runner, "0.0", 8).producer_id == 7
    assert claim(runner, "0.0", -1).producer_id == 7
    assert claim(runner, "1.0", 8).producer_id == 8
    assert claim(runner, "0.0", 9, "other").producer_id == 9


def test_a_commit_is_never_taken_back(runner: Runner) -> None:
    committed = [
        runner.run(KEYS.writer_commit(writer=KEYS.writer("w"), epoch=epoch, keep_ms=YEAR)).committed
        for epoch in (0, 3, 1)
    ]
    assert committed == [0, 3, 3]
    assert claim(runner, "0.0", -1).committed == 3


def test_of_a_job_that_is_done_only_that_is_kept(runner: Runner) -> None:
    claim(runner, "0.0", 7)
    call = KEYS.writer_pin_partitions(
        writer=KEYS.writer("w"), topic_id="1" * 32, epoch=0, partitions=3, turn=0
    )
    assert runner.run(call).partitions == 3
    runner.run(KEYS.writer_pin_plan(writer=KEYS.writer("w"), plan=b"first", keep_ms=YEAR))
    for _ in range(2):
        done = runner.run(
            KEYS.writer_commit(writer=KEYS.writer("w"), epoch=0, keep_ms=YEAR, last=1)
        )
        assert done.committed == 0
        assert runner.command("HLEN", KEYS.writer("w")) == 2
    assert claim(runner, "0.0", -1) == WriterClaimProducerIdReply(0, -1, 0)
    assert runner.run(call).partitions == -1, "a late task"
    assert (
        runner.run(KEYS.writer_pin_plan(writer=KEYS.writer("w"), plan=b"second", keep_ms=YEAR)).plan
        == b"first"
    )
    assert 0 < int(str(runner.command("PTTL", KEYS.writer("w")))) <= YEAR


def test_a_writer_is_forgotten_in_the_end(runner: Runner) -> None:
    claim(runner, "0.0", 7)
    assert 0 < int(str(runner.command("PTTL", KEYS.writer("w")))) <= YEAR


def test_a_writer_that_claims_nothing_is_forgotten_as_well(runner: Runner) -> None:
    parts = {"partitions": 3, "turn": 0}
    runner.run(
        KEYS.writer_pin_partitions(writer=KEYS.writer("w"), topic_id="1" * 32, epoch=0, **parts)
    )
    assert 0 < int(str(runner.command("PTTL", KEYS.writer("w")))) <= YEAR
    runner.run(KEYS.writer_commit(writer=KEYS.writer("w"), epoch=0, keep_ms=5000))
    runner.run(
        KEYS.writer_pin_partitions(writer=KEYS.writer("w"), topic_id="1" * 32, epoch=1, **parts)
    )
    assert 0 < int(str(runner.command("PTTL", KEYS.writer("w")))) <= 5000


def test_the_first_plan_stays(runner: Runner) -> None:
    pin = KEYS.writer_pin_plan(writer=KEYS.writer("w"), plan=b"first", keep_ms=YEAR)
    assert runner.run(pin).plan == b"first"
    runner.run(KEYS.writer_commit(writer=KEYS.writer("w"), epoch=0, keep_ms=YEAR))
    later = runner.run(KEYS.writer_pin_plan(writer=KEYS.writer("w"), plan=b"second", keep_ms=YEAR))
    assert (later.plan, later.committed) == (b"first", 0)


def test_an_epoch_has_as_many_partitions_as_its_first_attempt_found(runner: Runner) -> None:
    def spread(epoch: int, partitions: int, topic_id: str = "1" * 32) -> tuple[int, int]:
        call = KEYS.writer_pin_partitions(
            writer=KEYS.writer("w"),
            topic_id=topic_id,
            epoch=epoch,
            partitions=partitions,
            turn=partitions - 1,
        )
        found = runner.run(call)
        return found.partitions, found.turn

    assert [spread(0, 2), spread(0, 4), spread(0, 3, "2" * 32)] == [(2, 1), (2, 1), (3, 2)]
    assert [spread(7, 4), spread(7, 6), spread(7, 4)] == [(4, 3)] * 3
    assert spread(6, 9) == (-1, 0), "an earlier epoch"
    assert spread(7, 9) == (4, 3)
    runner.run(KEYS.writer_commit(writer=KEYS.writer("w"), epoch=7, keep_ms=1000))
    assert [spread(7, 9), spread(7, 9, "3" * 32), spread(8, 9)] == [(-1, 0), (-1, 0), (9, 8)]


def test_an_epoch_that_an_older_version_began_has_no_turn(runner: Runner) -> None:
    runner.command("HSET", KEYS.writer("w"), "spread:" + "1" * 32, "5:4")
    call = KEYS.writer_pin_partitions(
        writer=KEYS.writer("w"), topic_id="1" * 32, epoch=5, partitions=6, turn=3
    )
    found = runner.run(call)
    assert (found.partitions, found.turn) == (4, 0)


class Remembered:
    """The state that a writer should have."""

    def __init__(self) -> None:
        self.tasks: dict[str, int] = {}
        self.spread: dict[str, tuple[int, int, int]] = {}
        self.plan = b""
        self.committed = -1

    def spreads(self, topic: str, epoch: int, partitions: int, turn: int) -> tuple[int, int]:
        """Return the first attempt's spread; -1 after a commit or a later epoch."""
        of = self.spread.get(topic, (-1,))[0]
        if epoch <= self.committed or epoch < of:
            return -1, 0
        if epoch > of:
            self.spread[topic] = epoch, partitions, turn
        return self.spread[topic][1:]


@pytest.mark.parametrize("seed", range(6))
def test_whatever_tasks_and_drivers_ask_a_writer_remembers_what_it_said(
    lua: LuaRunner, seed: int
) -> None:
    random, kept = Random(seed), {"w": Remembered(), "v": Remembered()}
    for step in range(150):
        name = random.choice("wv")
        mine, kind, epoch = kept[name], random.random(), random.randrange(8)
        if kind < 0.35:
            slot, id = random.choice(["0.0", "0.1", "1.0"]), random.choice([-1, step + 10])
            if id >= 0:
                mine.tasks.setdefault(slot, id)
            claimed = claim(lua, slot, id, name)
            assert (claimed.producer_id, claimed.committed) == (
                mine.tasks.get(slot, -1),
                mine.committed,
            )
        elif kind < 0.75:
            topic, words = random.choice("ab") * 32, (epoch, random.randrange(1, 5), step % 4)
            parts = dict(zip(("epoch", "partitions", "turn"), words, strict=True))
            found = lua.run(
                KEYS.writer_pin_partitions(writer=KEYS.writer(name), topic_id=topic, **parts)
            )
            assert (found.partitions, found.turn) == mine.spreads(topic, *words)
        elif kind < 0.9:
            mine.committed, last = max(mine.committed, epoch), int(random.random() < 0.2)
            done = lua.run(
                KEYS.writer_commit(writer=KEYS.writer(name), epoch=epoch, keep_ms=YEAR, last=last)
            )
            assert done.committed == mine.committed
            if last:
                mine.tasks, mine.spread = {}, {}
                assert lua.command("HLEN", KEYS.writer(name)) == 1 + bool(mine.plan)
        else:
            mine.plan = mine.plan or b"plan %d" % step
            pinned = lua.run(
                KEYS.writer_pin_plan(writer=KEYS.writer(name), plan=b"plan %d" % step, keep_ms=YEAR)
            )
            assert (pinned.plan, pinned.committed) == (mine.plan, mine.committed)
