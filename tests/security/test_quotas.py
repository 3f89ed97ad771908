"""Check client quotas: how they are set and read, and that brokers enforce them together."""

import time
from collections.abc import Iterator
from typing import Any

import pytest

from korvet.base.errors import ErrorCode as E
from korvet.security.quotas import CLIENT_ID, MAX_BUCKET, USER, bucket_of
from korvet.testing import Broker
from korvet.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from korvet.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from korvet.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from korvet.wire.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
)
from korvet.wire.messages.metadata import MetadataRequest
from tests.support.raw_client import (
    API_VERSIONS,
    Peer,
    batch,
    crowd,
    to_fetch,
    to_produce,
    until,
)

EXACT, DEFAULT, ANY = range(3)
KB_64 = batch([b"x" * 65_000])


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(topics={"t": 1}) as running:
        yield running


@pytest.fixture(scope="module")
def second(broker: Broker) -> Iterator[Broker]:
    with Broker(redis=broker.redis_url, node_id=1) as running:
        yield running


def alter(
    broker: Broker,
    entity: dict[str, str | None],
    ops: dict[str, float | None],
    *,
    validate_only: bool = False,
) -> E:
    """Set quotas, or remove those with null; return the error of the entry."""
    entry = EntryData(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()],
        ops=[OpData(key=key, value=at or 0.0, remove=at is None) for key, at in ops.items()],
    )
    request = AlterClientQuotasRequest(entries=[entry], validate_only=validate_only)
    with Peer(broker.bootstrap_servers) as peer:
        (row,) = peer.ask("AlterClientQuotas", 1, request).entries
    return E(row.error_code)


def described(
    broker: Broker, *components: tuple[str, int, str | None], strict: bool = False
) -> list[tuple[dict[str, str | None], dict[str, float]]]:
    rows = [
        ComponentData(entity_type=kind, match_type=how, match=name)
        for kind, how, name in components
    ]
    request = DescribeClientQuotasRequest(components=rows, strict=strict)
    with Peer(broker.bootstrap_servers) as peer:
        answer = peer.ask("DescribeClientQuotas", 1, request)
    assert answer.error_code == E.NONE
    return [
        (
            {part.entity_type: part.entity_name for part in row.entity},
            {value.key: value.value for value in row.values},
        )
        for row in answer.entries
    ]


def test_quotas_are_described_by_the_entities_that_match(broker: Broker) -> None:
    both = {"user": "alice", "client-id": "app"}
    assert alter(broker, {"user": "alice"}, {"producer_byte_rate": 1e6}) is E.NONE
    assert alter(broker, both, {"consumer_byte_rate": 2e6, "request_percentage": 12.5}) is E.NONE
    assert alter(broker, {"user": None}, {"controller_mutation_rate": 0.5}) is E.NONE
    assert alter(broker, {"ip": "10.0.0.1"}, {"connection_creation_rate": 9}) is E.NONE
    assert len(described(broker)) == 4
    assert described(broker, ("user", EXACT, "alice"), strict=True) == [
        ({"user": "alice"}, {"producer_byte_rate": 1e6})
    ]
    assert len(described(broker, ("user", EXACT, "alice"))) == 2
    assert described(broker, ("user", DEFAULT, None)) == [
        ({"user": None}, {"controller_mutation_rate": 0.5})
    ]
    assert len(described(broker, ("user", ANY, None))) == 3
    assert described(broker, ("ip", ANY, None))[0][1] == {"connection_creation_rate": 9.0}
    assert alter(broker, both, {"consumer_byte_rate": None}) is E.NONE
    assert described(broker, ("client-id", ANY, None)) == [(both, {"request_percentage": 12.5})]
    for entity, _ in described(broker):
        gone = dict.fromkeys(
            (
                "producer_byte_rate",
                "consumer_byte_rate",
                "request_percentage",
                "controller_mutation_rate",
            )
        )
        alter(broker, entity, {"connection_creation_rate": None} if "ip" in entity else gone)
    assert described(broker) == []


def test_a_validated_quota_is_not_stored(broker: Broker) -> None:
    entity: dict[str, str | None] = {"user": "alice"}
    assert alter(broker, entity, {"producer_byte_rate": 5}, validate_only=True) is E.NONE
    assert described(broker) == []


@pytest.mark.parametrize(
    ("entity", "ops"),
    [
        ({}, {"producer_byte_rate": 1.0}),
        ({"zzz": "a"}, {"producer_byte_rate": 1.0}),
        ({"user": ""}, {"producer_byte_rate": 1.0}),
        ({"user": "a", "ip": "10.0.0.1"}, {"producer_byte_rate": 1.0}),
        ({"ip": "10.0.0.1"}, {"producer_byte_rate": 1.0}),
        ({"user": "a"}, {"connection_creation_rate": 1.0}),
        ({"user": "a"}, {"zzz": 1.0}),
        ({"user": "a"}, {"producer_byte_rate": 1e19}),
        ({"ip": "not a host"}, {"connection_creation_rate": 1.0}),
        ({"ip": "10.0.0.0/8"}, {"connection_creation_rate": 1.0}),
        ({"user": "a"}, {"producer_byte_rate": 0.0}),
        ({"user": "a"}, {"producer_byte_rate": -1.0}),
        ({"user": "a"}, {"producer_byte_rate": 1.5}),
        ({"user": "a"}, {"request_percentage": float("inf")}),
    ],
)
def test_a_quota_that_kafka_refuses_is_refused(
    broker: Broker, entity: dict[str, str | None], ops: dict[str, float | None]
) -> None:
    assert alter(broker, entity, ops) is E.INVALID_REQUEST


def throttled(broker: Broker, client_id: str) -> int:
    """Produce 64 KB and return the throttle time of the response, ms."""
    with Peer(broker.bootstrap_servers) as peer:
        answer = peer.ask("Produce", 9, to_produce("t", KB_64), client_id=client_id)
    assert answer.responses[0].partition_responses[0].error_code == E.NONE
    return int(answer.throttle_time_ms)


def test_brokers_hold_a_producer_to_one_quota_together(broker: Broker, second: Broker) -> None:
    assert throttled(broker, "greedy") == 0
    assert alter(broker, {"client-id": "greedy"}, {"producer_byte_rate": 1000}) is E.NONE
    one = throttled(broker, "greedy")
    assert 64_000 < one < 66_000, "a debt of 65 KB less the burst, at 1 KB/s"
    assert until(lambda: throttled(second, "greedy") > 0)
    assert throttled(second, "greedy") > one + 63_000
    assert throttled(broker, "modest") == 0


def test_a_muted_connection_is_answered_first_and_served_later(broker: Broker) -> None:
    assert alter(broker, {"client-id": "m"}, {"producer_byte_rate": 200_000}) is E.NONE
    with Peer(broker.bootstrap_servers) as peer:
        waits = [
            peer.ask("Produce", 9, to_produce("t", KB_64), client_id="m").throttle_time_ms
            for _ in range(3)
        ]
        # The third request was read when the debt of the second was paid.
        assert 0 < waits[0] <= 235 and 0 < waits[2] <= 330


def test_a_consumer_is_throttled_by_what_it_reads(broker: Broker) -> None:
    assert alter(broker, {"client-id": "r"}, {"consumer_byte_rate": 1000}) is E.NONE
    throttled(broker, "w")
    with Peer(broker.bootstrap_servers) as peer:
        answer = peer.ask("Fetch", 12, to_fetch("t", partition_max_bytes=100), client_id="r")
    assert len(answer.responses[0].partitions[0].records) > 64_000
    assert answer.throttle_time_ms > 60_000


def test_topics_are_refused_once_the_mutation_rate_is_used_up(broker: Broker) -> None:
    assert alter(broker, {"client-id": "c"}, {"controller_mutation_rate": 1}) is E.NONE
    topics = [
        CreatableTopic(
            name=f"made-{at}", num_partitions=3, replication_factor=1, assignments=[], configs=[]
        )
        for at in range(6)
    ]
    with Peer(broker.bootstrap_servers) as peer:
        answer = peer.ask("CreateTopics", 6, CreateTopicsRequest(topics=topics), client_id="c")
    errors = [E(row.error_code) for row in answer.topics]
    assert errors == [E.NONE] * 4 + [E.THROTTLING_QUOTA_EXCEEDED] * 2
    assert 0 < answer.throttle_time_ms <= 1000


def mutated(broker: Broker, api: str, version: int) -> list[tuple[E, bool]]:
    """Use up the mutation rate of a client; return each error, and whether it has to wait."""
    client = f"{api}-{version}"
    assert alter(broker, {"client-id": client}, {"controller_mutation_rate": 2}) is E.NONE
    found = []
    with Peer(broker.bootstrap_servers) as peer:

        def create(at: int, version: int, client_id: str, *, validate_only: bool = False) -> Any:
            topic = CreatableTopic(
                name=f"{client}-{at}",
                num_partitions=10 if client_id == client else 1,
                replication_factor=1,
                assignments=[],
                configs=[],
            )
            request = CreateTopicsRequest(topics=[topic], validate_only=validate_only)
            answer = peer.ask("CreateTopics", version, request, client_id=client_id)
            return answer.topics[0].error_code, answer.throttle_time_ms

        for at in range(4):
            if api == "CreateTopics":
                # A validated request is charged, too.
                code, wait_ms = create(at, version, client, validate_only=at == 0)
            else:
                assert create(at, 5, "other")[0] == 0
                topic = CreatePartitionsTopic(name=f"{client}-{at}", count=11, assignments=None)
                answer = peer.ask(
                    api,
                    version,
                    CreatePartitionsRequest(topics=[topic], timeout_ms=9, validate_only=False),
                    client_id=client,
                )
                code, wait_ms = answer.results[0].error_code, answer.throttle_time_ms
            found.append((E(code), wait_ms > 0))
            if wait_ms:
                return found
    return found


@pytest.mark.parametrize(
    ("api", "strict"), [("CreateTopics", 6), ("CreatePartitions", 3)], ids=["create", "grow"]
)
def test_a_stored_change_says_no_time_and_a_refused_one_does(
    broker: Broker, api: str, strict: int
) -> None:
    # 22 partitions at once: Apache Kafka 4.3 answers the same.
    accepted = (E.NONE, False)
    assert mutated(broker, api, strict) == [*[accepted] * 3, (E.THROTTLING_QUOTA_EXCEEDED, True)]
    assert mutated(broker, api, strict - 1) == [*[accepted] * 2, (E.NONE, True)]


def test_a_producer_over_its_mutation_rate_gets_no_new_topic_and_does_not_wait(
    broker: Broker,
) -> None:
    assert alter(broker, {"client-id": "p"}, {"controller_mutation_rate": 0.01}) is E.NONE
    found = []
    with Peer(broker.bootstrap_servers) as peer:
        for topic in ("new-a", "new-b", "new-a"):
            answer = peer.ask("Produce", 9, to_produce(topic, batch([b"v"])), client_id="p")
            (row,) = answer.responses[0].partition_responses
            found.append((E(row.error_code), answer.throttle_time_ms))
    assert found == [(E.NONE, 0), (E.UNKNOWN_TOPIC_OR_PARTITION, 0), (E.NONE, 0)]


def test_short_requests_use_up_a_share_of_the_event_loop(broker: Broker) -> None:
    assert alter(broker, {"client-id": "busy"}, {"request_percentage": 0.01}) is E.NONE
    with Peer(broker.bootstrap_servers) as peer:
        request = MetadataRequest(topics=[], allow_auto_topic_creation=False)
        waits = [
            peer.ask("Metadata", 9, request, client_id="busy").throttle_time_ms for _ in range(3)
        ]
    assert 0 < max(waits) <= 1000


def test_buckets_of_different_names_differ() -> None:
    names = ["app", "app&user=bob", "a%26b", "a&b", "", "ü" * 9000, "ü" * 9001]
    buckets = {
        bucket_of("q", {USER: user, CLIENT_ID: client}) for user in names for client in names
    } | {bucket_of("q", {CLIENT_ID: client}) for client in names}
    assert len(buckets) == len(names) ** 2 + len(names)
    assert max(map(len, buckets)) <= MAX_BUCKET


def test_decompressed_bytes_count_for_a_producer(broker: Broker) -> None:
    assert alter(broker, {"client-id": "zip"}, {"producer_byte_rate": 200_000}) is E.NONE
    packed = batch([bytes(16 << 20)], 4)
    huge = batch([bytes(15 << 20)] * 2, 4)
    with Peer(broker.bootstrap_servers) as peer:
        plain = peer.ask("Produce", 9, to_produce("t", batch([b"v"])), client_id="zip")
        answer = peer.ask("Produce", 9, to_produce("t", packed), client_id="zip")
    assert len(packed) < 2000 and plain.throttle_time_ms == 0
    assert answer.responses[0].partition_responses[0].error_code == 0
    assert answer.throttle_time_ms > 3000
    assert alter(broker, {"client-id": "zap"}, {"producer_byte_rate": 200_000}) is E.NONE
    with Peer(broker.bootstrap_servers) as peer:
        answer = peer.ask("Produce", 9, to_produce("t", huge), client_id="zap")
    assert answer.responses[0].partition_responses[0].error_code == E.MESSAGE_TOO_LARGE
    assert answer.throttle_time_ms > 3000


def test_connections_of_an_address_are_served_at_its_rate(broker: Broker) -> None:
    assert alter(broker, {"ip": "127.0.0.1"}, {"connection_creation_rate": 5}) is E.NONE
    try:
        began = time.monotonic()
        with crowd(broker.bootstrap_servers, 8) as peers:
            for peer in peers:
                peer.send(API_VERSIONS)
            assert all(peer.answer() for peer in peers)
        assert time.monotonic() - began > 0.3, "three connections above the burst, at 5 a second"
    finally:
        assert alter(broker, {"ip": "127.0.0.1"}, {"connection_creation_rate": None}) is E.NONE
