"""Check recorded frames of the old clients. These tests need neither Java nor Node."""

import struct

import pytest

from korvet.wire import requests_v07
from korvet.wire.requests_v07 import BrokenFrame, Fetch, Offsets, Produce
from tests.legacy import wire
from tests.legacy.conftest import LegacyBroker
from tests.legacy.golden import EXCHANGES, FIVE, LOG, ONE_TWO, SIX, Exchange
from tests.legacy.wire import Client


def parsed(name: str) -> requests_v07.Frame:
    (found,) = [exchange for exchange in EXCHANGES if exchange.name == name]
    return requests_v07.parse(bytes.fromhex(found.sent)[4:])


def test_the_frames_are_parsed_as_their_clients_meant() -> None:
    assert parsed("Jafka PRODUCE").requests == [Produce("golden", 0, bytes.fromhex(ONE_TWO))]
    assert parsed("Jafka PRODUCE, gzip").requests[0].partition == requests_v07.RANDOM_PARTITION
    assert parsed("Jafka MULTIPRODUCE") == requests_v07.Frame(
        requests_v07.MULTIPRODUCE,
        [
            Produce("golden", 0, bytes.fromhex(FIVE)),
            Produce("other", 0, bytes.fromhex(SIX)),
        ],
    )
    assert parsed("Jafka FETCH").requests == [Fetch("golden", 0, 0, 4096)]
    assert parsed("Jafka MULTIFETCH").requests == [
        Fetch("golden", 0, 0, 100_000),
        Fetch("other", 0, 0, 100_000),
    ]
    assert parsed("Jafka OFFSETS").requests == [Offsets("golden", 0, requests_v07.LATEST, 5)]


@pytest.mark.parametrize("exchange", EXCHANGES, ids=lambda exchange: exchange.name)
def test_no_frame_can_lose_or_gain_a_byte(exchange: Exchange) -> None:
    whole = bytes.fromhex(exchange.sent)[4:]
    assert requests_v07.is_v07_request(whole)
    for cut in range(len(whole)):
        with pytest.raises(BrokenFrame):
            requests_v07.parse(whole[:cut])
    with pytest.raises(BrokenFrame):
        requests_v07.parse(whole + b"\0")


def test_answers_are_built_as_their_clients_read_them() -> None:
    log, six = bytes.fromhex(LOG), bytes.fromhex(SIX)
    parts = [
        requests_v07.messages_answer(0, [log[:40], log[40:]]),
        requests_v07.messages_answer(0, [six]),
    ]
    assert b"".join(parts[0]).hex() == answer("Jafka FETCH")
    assert b"".join(requests_v07.multi_answer(parts)).hex() == answer("Jafka MULTIFETCH")
    assert b"".join(requests_v07.offsets_answer(0, [99, 0])).hex() == answer("Jafka OFFSETS")
    assert b"".join(requests_v07.messages_answer(-1, [])) == struct.pack(">ih", 2, -1)


def answer(name: str) -> str:
    return next(exchange.answer for exchange in EXCHANGES if exchange.name == name)


def test_a_broker_answers_every_frame_to_the_byte(own: LegacyBroker) -> None:
    own.start()
    with own.client() as client:
        for exchange in EXCHANGES:
            client.send(bytes.fromhex(exchange.sent))
            if exchange.answer:
                found = client.receive()
                assert (struct.pack(">i", len(found)) + found).hex() == exchange.answer


def test_workers_share_the_port_and_the_log(own: LegacyBroker, topic: str) -> None:
    own.options = ("--workers", "2")
    own.start()
    sets = [wire.message(b"%d" % n) for n in range(20)]
    for one in sets:
        with own.client() as client:
            client.send(wire.produce(topic, one))
            assert client.fetch(topic, 0, 0) == (0, b"")
    found = []
    for _ in range(6):
        with Client(own.legacy) as client:
            found.append(client.fetch(topic, 0))
    assert found == [(0, b"".join(sets))] * 6
