"""Check the choice of coordinators: all brokers name the same one, and none that is gone."""

import asyncio
from collections import Counter
from typing import Any, cast

import pytest

from korvet.cluster.coordinators import (
    CACHE_S,
    UNREACHABLE_S,
    Coordinators,
    is_reachable,
    rank_brokers,
)
from korvet.cluster.registration import BrokerRegistration, Endpoint, LiveBroker, Node

BROKERS = [Node(number, f"b{number}", 9092) for number in (1, 2, 3, 7)]
LISTENER = "PLAINTEXT"
KEYS = [f"group-{number}" for number in range(200)]


class Listed:
    """The registration of one broker, with the brokers that it sees."""

    def __init__(self, me: Node, nodes: list[Node] = BROKERS) -> None:
        self.me = _live(me)
        self.brokers = [_live(node) for node in nodes]

    def nodes(self, listener: str) -> list[Node]:
        found = (broker.node(listener) for broker in self.brokers)
        return [node for node in found if node is not None]


def _live(node: Node) -> LiveBroker:
    return LiveBroker(node.id, (Endpoint(LISTENER, node.host, node.port),))


class Network:
    """A network where some hosts are down; it records each connection attempt."""

    def __init__(self, *down: str) -> None:
        self.down = down
        self.looks: list[str] = []

    async def reach(self, host: str, port: int) -> bool:
        self.looks.append(host)
        await asyncio.sleep(0)
        return host not in self.down

    def seen_by(self, me: Node, nodes: list[Node] = BROKERS) -> Coordinators:
        return Coordinators(cast(BrokerRegistration, Listed(me, nodes)), self.reach)


async def test_all_brokers_name_the_same_one_and_each_has_a_share() -> None:
    network = Network()
    answers = [[await network.seen_by(me).choose(key, LISTENER) for key in KEYS] for me in BROKERS]
    assert answers.count(answers[0]) == len(BROKERS)
    shares = Counter(node.id for node in answers[0] if node is not None)
    assert len(shares) == len(BROKERS)
    assert max(shares.values()) < 2 * len(KEYS) / len(BROKERS)


async def test_all_brokers_skip_one_that_died_and_move_no_other_group() -> None:
    healthy, network = Network(), Network("b2")
    for me in (BROKERS[0], BROKERS[2]):
        before = [await healthy.seen_by(me).choose(key, LISTENER) for key in KEYS]
        after = [await network.seen_by(me).choose(key, LISTENER) for key in KEYS]
        without = [node for node in BROKERS if node.id != 2]
        assert after == [await healthy.seen_by(me, without).choose(key, LISTENER) for key in KEYS]
        assert {old.id for old, new in zip(before, after, strict=True) if old and old != new} == {2}


async def test_a_broker_that_reaches_no_other_names_itself() -> None:
    network = Network(*(node.host for node in BROKERS))
    for me in BROKERS:
        assert {(await network.seen_by(me).choose(key, LISTENER)).id for key in KEYS} == {me.id}


async def test_a_broker_that_is_alone_or_first_checks_no_other() -> None:
    network = Network()
    assert await network.seen_by(BROKERS[0], BROKERS[:1]).choose("g", LISTENER) == BROKERS[0]
    first = rank_brokers(BROKERS, "g")[0]
    assert await network.seen_by(first).choose("g", LISTENER) == first
    assert network.looks == []


async def test_concurrent_requests_share_one_check_of_a_broker() -> None:
    network = Network()
    first, last = rank_brokers(BROKERS, "g")[0], rank_brokers(BROKERS, "g")[-1]
    coordinators = network.seen_by(last)
    asked = [asyncio.ensure_future(coordinators.choose("g", LISTENER)) for _ in range(100)]
    await asyncio.sleep(0)
    asked[0].cancel()  # The first request may be cancelled.
    found = await asyncio.gather(*asked[1:])
    assert found == [first] * 99
    assert Counter(network.looks) == {node.host: 1 for node in BROKERS if node != last}


async def test_a_reachable_broker_is_checked_again_after_the_cache_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 0.0
    monkeypatch.setattr("korvet.cluster.coordinators.monotonic", lambda: now)
    network = Network()
    first, *_, last = rank_brokers(BROKERS, "g")
    coordinators = network.seen_by(last)
    assert await coordinators.choose("g", LISTENER) == first
    network.down = (first.host,)
    now = CACHE_S
    assert await coordinators.choose("g", LISTENER) == first
    now += 0.1
    assert await coordinators.choose("g", LISTENER) != first
    assert Counter(network.looks)[first.host] == 2


async def test_silent_brokers_delay_few_requests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("korvet.cluster.coordinators.CONNECT_TIMEOUT_S", 0.01)
    looks: list[str] = []

    async def silent(host: str, port: int) -> bool:
        looks.append(host)
        return await asyncio.Future[bool]()

    me = BROKERS[-1]
    coordinators = Coordinators(cast(BrokerRegistration, Listed(me)), silent)
    waits = 0
    wait = asyncio.wait

    async def counted(*given: Any, **options: Any) -> Any:
        nonlocal waits
        waits += 1
        return await wait(*given, **options)

    monkeypatch.setattr("korvet.cluster.coordinators.asyncio.wait", counted)
    async with asyncio.timeout(30):
        assert {(await coordinators.choose(key, LISTENER)).id for key in KEYS} == {me.id}
    assert waits <= len(BROKERS) - 1
    assert Counter(looks) == {node.host: 1 for node in BROKERS[:-1]}


async def test_an_unreachable_broker_is_checked_again_while_others_are_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 0.0
    monkeypatch.setattr("korvet.cluster.coordinators.monotonic", lambda: now)
    first, second, *_, last = rank_brokers(BROKERS, "g")
    network = Network(first.host)
    coordinators = network.seen_by(last)
    assert await coordinators.choose("g", LISTENER) == second
    network.down = ()
    now = CACHE_S + 0.1
    assert await coordinators.choose("g", LISTENER) == second
    await asyncio.sleep(0)
    assert await coordinators.choose("g", LISTENER) == first
    network.down = (first.host,)
    now += CACHE_S + 0.1
    assert await coordinators.choose("g", LISTENER) == second
    network.down = ()
    now += UNREACHABLE_S
    assert await coordinators.choose("g", LISTENER) == first


async def test_a_port_is_reachable_while_a_server_listens() -> None:
    server = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    assert await is_reachable("127.0.0.1", port)
    server.close()
    await server.wait_closed()
    assert not await is_reachable("127.0.0.1", port)


@pytest.mark.parametrize("host", ["", "not..a.name"])
async def test_an_invalid_address_is_unreachable(host: str) -> None:
    assert not await is_reachable(host, 1)
