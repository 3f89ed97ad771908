"""Check that silent producers expire; busy ones and open transactions do not."""

from korvet.base.errors import ErrorCode
from korvet.scripts.keys import Keys
from korvet.scripts.producer_state import CLASSES, IDS_FROM, JOB_IDS_FROM
from korvet.testing import LuaRunner
from tests.lua.partition import ID, Part
from tests.support.store_runners import Runner

KEYS = Keys()
DAY_MS = 86_400_000


def opened(runner: Runner) -> None:
    Part(runner, "record", "dense", topic="orders").create()


def send(runner: Runner, producer: int, sequence: int = 0, transaction: int = -1) -> int:
    reply = runner.run(
        KEYS.partition("orders", 0, ID).append(
            count=1,
            size=1,
            max_timestamp=1,
            producer_id=producer,
            producer_epoch=0,
            base_sequence=sequence,
            transaction=transaction,
            fields=(2, b"value", b"v"),
        )
    )
    return reply.stored if not reply.error else -reply.error


def forget(runner: Runner, silence_ms: int = DAY_MS) -> int:
    """Expire producers in a whole scan; return their number."""
    cursor, removed = b"0", 0
    while True:
        partition = KEYS.partition("orders", 0)
        reply = runner.run(
            partition.expire_producers(CLASSES, cursor=cursor, silence_ms=silence_ms)
        )
        cursor, removed = reply.cursor, removed + reply.removed
        if cursor == b"0":
            return removed


def test_a_producer_is_forgotten_a_day_after_its_last_batch(lua: LuaRunner) -> None:
    opened(lua)
    send(lua, 1)
    lua.advance(DAY_MS - 1)
    send(lua, 2)
    assert forget(lua) == 0
    lua.advance(1)
    assert forget(lua) == 1
    assert send(lua, 2, 0) == 0, "the other producer's state is stored: this is a duplicate"
    assert send(lua, 1, 7) == -ErrorCode.UNKNOWN_PRODUCER_ID, "its state has expired"


def test_a_writer_that_may_come_back_is_remembered_for_a_year(lua: LuaRunner) -> None:
    opened(lua)
    send(lua, JOB_IDS_FROM - 1)
    send(lua, IDS_FROM + 1)
    lua.advance(365 * DAY_MS)
    assert forget(lua) == 1
    assert send(lua, IDS_FROM + 1, 0) == 0, "a duplicate"
    lua.advance(366 * DAY_MS)
    assert forget(lua) == 1
    send(lua, IDS_FROM + 1)
    lua.advance(366 * DAY_MS)
    assert forget(lua, 2 * 366 * DAY_MS) == 0, "a longer retention applies to these too"


def test_a_task_of_a_job_may_be_silent_for_a_week(lua: LuaRunner) -> None:
    opened(lua)
    send(lua, JOB_IDS_FROM)
    lua.advance(6 * DAY_MS)
    assert forget(lua) == 0
    lua.advance(DAY_MS)
    assert forget(lua) == 1


def test_every_one_of_many_is_looked_at(runner: Runner) -> None:
    opened(runner)
    for producer in range(1500):
        runner.command(
            "HSET", KEYS.partition("orders", 0).producers, str(producer), "0:1:1:,,,,0-0-0"
        )
    send(runner, 5000)
    assert forget(runner) == 1500
    assert send(runner, 5000, 1) == 1


def test_an_open_transaction_keeps_its_producer(lua: LuaRunner) -> None:
    opened(lua)
    assert send(lua, 1, transaction=1) == 1
    lua.advance(2 * DAY_MS)
    assert forget(lua) == 0
