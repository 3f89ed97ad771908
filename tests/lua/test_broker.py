"""Check lua/broker and producer.allocate: live brokers, controller, leases of background tasks."""

from hypothesis import given, settings
from hypothesis import strategies as st

from korvet.config.values import STORED
from korvet.testing import LuaRunner
from tests.lua.partition import KEYS
from tests.support.redis_servers import TestServer
from tests.support.store_runners import Runner, StoreRunner


def register(
    runner: Runner, node_id: int, ttl_ms: int = 1000, silent_ms: int = 0
) -> tuple[int, dict[int, bytes]]:
    """Register a broker; return the controller and the live brokers."""
    address = b"address of %d" % node_id
    call = KEYS.broker_register(
        node_id=node_id, address=address, ttl_ms=ttl_ms, silent_ms=silent_ms
    )
    reply = runner.run(call)
    ids, places = reply.brokers[::2], reply.brokers[1::2]
    return reply.controller, dict(zip(ids, places, strict=True))  # type: ignore[arg-type]


def lease(runner: Runner, name: str, holder: str, ttl_ms: int = 1000) -> bool:
    reply = runner.run(KEYS.broker_lease(name=name, holder=holder, ttl_ms=ttl_ms))
    return reply.held == 1


def test_live_brokers_are_reported_to_each_other(runner: Runner) -> None:
    assert register(runner, 3) == (3, {3: b"address of 3"})
    controller, live = register(runner, 1)
    assert controller == 3, "the controller stays while it is registered"
    assert live == {1: b"address of 1", 3: b"address of 3"}


def test_an_expired_broker_is_removed_and_replaced_as_controller(lua: LuaRunner) -> None:
    register(lua, 1)
    register(lua, 2)
    lua.advance(900)
    assert register(lua, 2)[0] == 1
    lua.advance(200)
    assert register(lua, 2) == (2, {2: b"address of 2"})
    assert register(lua, 1)[0] == 2, "a broker that returns is not controller again"


def test_a_silent_broker_is_left_out_until_it_calls_again(lua: LuaRunner) -> None:
    def live(node_id: int) -> list[int]:
        return sorted(register(lua, node_id, ttl_ms=1000, silent_ms=300)[1])

    assert (live(1), live(2)) == ([1], [1, 2])
    seen = []
    for _ in range(6):
        lua.advance(100)
        seen.append(live(2))
    assert seen == [[1, 2]] * 3 + [[2]] * 3
    assert register(lua, 2)[0] == 1, "it is registered, and the controller"
    assert (live(1), live(2)) == ([1, 2], [1, 2])


def test_no_broker_is_silent_if_redis_did_not_answer(lua: LuaRunner) -> None:
    register(lua, 1)
    register(lua, 2)
    lua.advance(900)
    assert sorted(register(lua, 2, silent_ms=300)[1]) == [1, 2]
    assert sorted(register(lua, 2, silent_ms=300)[1]) == [2]


def test_two_brokers_with_one_node_id_are_reported_to_each_other(runner: Runner) -> None:
    def registered(address: bytes) -> bytes:
        call = KEYS.broker_register(node_id=1, address=address, ttl_ms=60_000)
        return runner.run(call).other

    assert registered(b"here") == b""
    assert registered(b"here") == b""
    assert registered(b"there") == b"here"
    assert registered(b"here") == b"there"
    assert registered(b"here") == b""


def claimed(runner: Runner, endpoints: bytes = b"") -> int:
    return runner.run(KEYS.broker_claim_id(endpoints=endpoints, ttl_ms=1000)).node_id


def test_brokers_without_a_node_id_get_the_lowest_free_ones(runner: Runner) -> None:
    register(runner, 1, ttl_ms=60_000)
    assert [claimed(runner) for _ in range(3)] == [0, 2, 3]
    assert register(runner, 1)[1] == {1: b"address of 1"}, "an id that is held is no broker"
    call = KEYS.broker_register(node_id=2, address=b"there", ttl_ms=60_000)
    assert runner.run(call).other == b""
    assert claimed(runner) == 4


def test_a_broker_gets_its_id_again_at_the_same_endpoints(lua: LuaRunner) -> None:
    register(lua, 5)
    assert claimed(lua, b"of 5") == 5
    assert claimed(lua, b"of 6") == 0
    lua.advance(1001)
    assert claimed(lua, b"of 5") == 5
    assert claimed(lua, b"of 6") == 0, "the time for which it was held has passed"


def test_an_expired_registration_at_another_address_is_not_reported(
    lua: LuaRunner,
) -> None:
    lua.run(KEYS.broker_register(node_id=1, address=b"here", ttl_ms=1000))
    lua.advance(1001)
    assert lua.run(KEYS.broker_register(node_id=1, address=b"there", ttl_ms=1000)).other == b""


def test_a_broker_that_leaves_takes_only_its_own_registration(runner: Runner) -> None:
    register(runner, 1)
    register(runner, 2)
    runner.run(KEYS.broker_unregister(node_id=2, address=b"another address"))
    assert set(register(runner, 1)[1]) == {1, 2}
    runner.run(KEYS.broker_unregister(node_id=2, address=b"address of 2"))
    assert set(register(runner, 1)[1]) == {1}


def test_the_cluster_keeps_its_first_id(runner: Runner) -> None:
    for wanted in ("first", "second"):
        reply = runner.run(KEYS.broker_init_cluster_id(cluster_id=wanted))
        assert reply.cluster_id == b"first"


def test_the_last_storage_settings_are_stored_and_a_url_stays(runner: Runner) -> None:
    def store(url: str, topics: str, memory: int) -> list[bytes | None]:
        call = KEYS.broker_set_storage(url=url, topics=topics, memory=memory)
        assert runner.run(call).error == 0
        found: list[bytes | None] = runner.command("HMGET", KEYS.cluster(), *STORED)
        return found

    assert store("", "false", -1) == [None, None, None]
    assert store("s3://old", "false", -1) == [b"s3://old", None, None]
    for _ in range(2):
        assert store("s3://new", "true", 1 << 40) == [b"s3://new", b"true", b"1099511627776"]
    assert store("", "false", -1) == [b"s3://new", b"false", b"-1"]


def test_producer_ids_are_handed_out_once(runner: Runner) -> None:
    ids = [runner.run(KEYS.producer_allocate()).producer_id for _ in range(5)]
    assert ids == sorted(set(ids)) and ids[0] >= 0


def test_a_counter_that_a_failover_set_back_gives_no_id_again(lua: LuaRunner) -> None:
    lua.command("HSET", KEYS.cluster(), "producer_ids", 100)
    given = {lua.run(KEYS.producer_allocate()).producer_id for _ in range(50)}
    lua.command("HSET", KEYS.cluster(), "producer_ids", 110)
    lua.advance(2)
    again = {lua.run(KEYS.producer_allocate()).producer_id for _ in range(50)}
    assert len(given | again) == 100 and min(again) > max(given)
    assert max(again) < 2**51, "ids from 2**51 on belong to Spark's writers"


def test_a_clock_that_goes_back_gives_no_id_again(lua: LuaRunner) -> None:
    first = lua.run(KEYS.producer_allocate()).producer_id
    lua.advance(-60_000)
    assert lua.run(KEYS.producer_allocate()).producer_id == first + 1


def test_a_duty_is_anothers_only_after_its_lease(lua: LuaRunner) -> None:
    assert lease(lua, "retention", "a")
    assert not lease(lua, "retention", "b")
    assert lease(lua, "expiry", "b"), "each task has a separate lease"
    lua.advance(999)
    assert not lease(lua, "retention", "b")
    assert lease(lua, "retention", "a"), "the holder renews it"
    lua.advance(1000)
    assert lease(lua, "retention", "b")
    assert not lease(lua, "retention", "a")


def test_a_clock_that_went_back_leaves_no_duty_to_the_dead(lua: LuaRunner) -> None:
    assert lease(lua, "retention", "dead") and lease(lua, "expiry", "a")
    lua.advance(-50_000)
    assert not lease(lua, "retention", "b"), "a lease may last that long"
    lua.advance(-3_600_000)
    assert lease(lua, "expiry", "a") and not lease(lua, "expiry", "b"), "the live holder renews it"
    assert lease(lua, "retention", "b") and not lease(lua, "retention", "dead")


def test_a_full_redis_still_knows_its_brokers_and_their_duties(redis_server: TestServer) -> None:
    with redis_server.client() as client:
        client.flushall()
        runner = StoreRunner(client)
        runner.run(KEYS.broker_init_cluster_id(cluster_id="its own"))
        client.config_set("maxmemory", 1)
        try:
            named = runner.run(KEYS.broker_init_cluster_id(cluster_id="another"))
            assert named.cluster_id == b"its own"
            assert register(runner, 1) == (1, {1: b"address of 1"})
            assert lease(runner, "retention", "a")
            assert not lease(runner, "retention", "b")
            assert lease(runner, "retention", "a")
        finally:
            client.config_set("maxmemory", 0)


def test_a_clock_that_went_back_keeps_no_dead_broker(lua: LuaRunner) -> None:
    register(lua, 1)
    register(lua, 2)
    lua.advance(-3_600_000)
    assert set(register(lua, 2)[1]) == {1, 2}, "a live broker may not have renewed yet"
    lua.advance(1001)
    assert register(lua, 2) == (2, {2: b"address of 2"})


@settings(max_examples=30, deadline=None, derandomize=True, database=None)
@given(steps=st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 50), st.integers(0, 30))))
def test_no_two_ever_hold_one_duty(steps: list[tuple[str, int, int]]) -> None:
    lua = LuaRunner()
    held: dict[str, int] = {}
    for holder, ttl_ms, passes in steps:
        if lease(lua, "duty", holder, ttl_ms):
            held[holder] = lua.now_ms() + ttl_ms
        now = lua.now_ms()
        assert sum(ends > now for ends in held.values()) <= 1
        lua.advance(passes)


def test_the_first_lineage_stays(runner: Runner) -> None:
    for wanted in ("one", "another"):
        assert runner.run(KEYS.broker_init_lineage(lineage=wanted)).lineage == b"one"
