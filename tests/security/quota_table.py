"""Record how a broker enforces quotas, in kafka_quotas.json.

    python -m tests.security.quota_table HOST:PORT [FILE]

It needs an empty Apache Kafka 4.3 with `num.partitions=4`. The rates are so low that the time
between two requests gives a client almost nothing.
"""

import itertools
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from korvet.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from korvet.wire.messages.api_versions import ApiVersionsRequest
from korvet.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from korvet.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from korvet.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from korvet.wire.messages.describe_cluster import DescribeClusterRequest
from korvet.wire.messages.find_coordinator import FindCoordinatorRequest
from korvet.wire.messages.heartbeat import HeartbeatRequest
from korvet.wire.messages.list_groups import ListGroupsRequest
from korvet.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from korvet.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from korvet.wire.schema import Message
from tests.support.raw_client import Peer, batch, request, to_fetch, to_produce, until

RECORDED = Path(__file__).with_name("kafka_quotas.json")
TOPIC = "quota-topic"
SETTLES_S = 1.0
"""Time after which Kafka has a changed quota in effect, seconds."""
KB_64 = batch([b"x" * 65_000])
MUTATIONS, SHARE = "controller_mutation_rate", "request_percentage"
PRODUCED, CONSUMED = "producer_byte_rate", "consumer_byte_rate"


SLOW = 0.01
"""A quota of partitions/s of which a client may use 0.11 at once: one request uses it up."""
_numbers = itertools.count()


def new(count: int) -> list[str]:
    """Return names of topics that no other case has."""
    return [f"t{next(_numbers)}" for _ in range(count)]


class Ask(NamedTuple):
    """A request of a client that has a quota."""

    api: str
    version: int
    body: Message


class Case(NamedTuple):
    """Requests of one client in order, each on a new connection."""

    name: str
    quota: str
    rate: float
    asks: list[Ask]
    topics: Sequence[str] = ()
    """Topics of one partition each that are there before."""


class Outcome(NamedTuple):
    """The part of a response that quotas decide."""

    errors: list[int]
    """Error codes of the topics or of the response, sorted: Kafka changes the order of topics."""
    wait_s: int
    """throttle_time_ms, in seconds and rounded up; null if the API has none."""
    muted: bool
    """Whether the connection's next request is not answered at once."""
    batches: int
    """Whole batches of 64 KB in the response."""


def create(*names: str, version: int, count: int = 1, validate_only: bool = False) -> Ask:
    """Return a request to create topics of `count` partitions."""
    topics = [
        CreatableTopic(
            name=name, num_partitions=count, replication_factor=1, assignments=[], configs=[]
        )
        for name in names
    ]
    body = CreateTopicsRequest(topics=topics, timeout_ms=30_000, validate_only=validate_only)
    return Ask("CreateTopics", version, body)


def delete(*names: str, version: int) -> Ask:
    """Return a request to delete topics."""
    states = [DeleteTopicState(name=name) for name in names]
    body = DeleteTopicsRequest(topics=states, topic_names=list(names), timeout_ms=30_000)
    return Ask("DeleteTopics", version, body)


def grow(*names: str, version: int, count: int = 2, validate_only: bool = False) -> Ask:
    """Return a request for `count` partitions of each topic."""
    topics = [CreatePartitionsTopic(name=name, count=count, assignments=None) for name in names]
    body = CreatePartitionsRequest(topics=topics, timeout_ms=30_000, validate_only=validate_only)
    return Ask("CreatePartitions", version, body)


def metadata(*names: str, creates: bool = False) -> Ask:
    """Return a request for topics, which creates those that are missing."""
    topics = [MetadataRequestTopic(name=name) for name in names]
    return Ask("Metadata", 9, MetadataRequest(topics=topics, allow_auto_topic_creation=creates))


def produce(acks: int = -1) -> Ask:
    """Return a request with 64 KB of records."""
    return Ask("Produce", 9, to_produce(TOPIC, KB_64, acks=acks))


def fetch(**limits: int) -> Ask:
    """Return a request for the records of the topic."""
    return Ask("Fetch", 12, to_fetch(TOPIC, **limits))


def find_coordinator() -> Ask:
    """Return a request for the coordinator of a group."""
    return Ask("FindCoordinator", 3, FindCoordinatorRequest(key="g", key_type=0))


def others() -> Iterator[Ask]:
    """Return requests of other APIs, which no quota but a share of the request time limits."""
    offsets = ListOffsetsTopic(
        name=TOPIC, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)]
    )
    yield Ask(
        "ApiVersions", 3, ApiVersionsRequest(client_software_name="a", client_software_version="1")
    )
    yield metadata(TOPIC)
    yield find_coordinator()
    yield Ask("Heartbeat", 4, HeartbeatRequest(group_id="g", generation_id=1, member_id="m"))
    yield Ask("ListGroups", 4, ListGroupsRequest())
    yield Ask(
        "ListOffsets", 7, ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=[offsets])
    )
    yield Ask(
        "DescribeCluster", 0, DescribeClusterRequest(include_cluster_authorized_operations=False)
    )


def mutations() -> Iterator[Case]:
    """Return the cases of controller_mutation_rate."""
    for ask, strict in ((create, 6), (delete, 5), (grow, 3)):
        for version in (strict, strict - 1):
            yield from _of_one_api(ask, version)
    for version in (6, 5):
        make, name = partial(create, version=version), f"create, version {version}"
        a, b, c = new(3)
        asks = [make(a, validate_only=True), make(b, validate_only=True), make(c)]
        yield Case(f"{name}: validated", MUTATIONS, SLOW, asks)
        a, b, c = new(3)
        asks = [make(a, count=5), make(b, count=50), make(c)]
        yield Case(f"{name}: several partitions", MUTATIONS, 0.5, asks)
        yield Case(f"{name}: many in one request", MUTATIONS, 0.5, [make(*new(6), count=2)])
    for version in (3, 2):
        make = partial(grow, version=version)
        a, b = old = new(2)
        asks = [make(a, validate_only=True), make(b, validate_only=True), make(b, count=1), make(b)]
        yield Case(f"grow, version {version}: validated", MUTATIONS, SLOW, asks, old)
    a, b, c = new(3)
    asks = [
        create(b, version=5),
        delete(a, version=6),
        grow(a, version=3),
        create(c, version=7),
        delete(a, version=4),
        create(c, version=7),
    ]
    yield Case("one bucket for all mutations", MUTATIONS, SLOW, asks, [a])
    a, b, c = new(3)
    asks = [
        metadata(a, creates=True),
        create(b, version=6),
        metadata(c, creates=True),
        create(c, version=6),
        metadata(a),
        metadata(c),
    ]
    yield Case("topics that Metadata creates", MUTATIONS, SLOW, asks)
    (a,) = new(1)
    asks = [create(a, version=5), *others(), produce(), fetch()]
    yield Case("other requests over the mutation rate", MUTATIONS, SLOW, asks)


def _of_one_api(ask: Callable[..., Ask], version: int) -> Iterator[Case]:
    make, name = partial(ask, version=version), f"{ask.__name__}, version {version}"

    def case(what: str, names: list[str], *asks: Ask) -> Case:
        return Case(f"{name}: {what}", MUTATIONS, SLOW, list(asks), [] if ask is create else names)

    a, b, c = names = new(3)
    yield case("one by one", names, make(a), make(b), make(c))
    a, b, c, d, e, f = names = new(6)
    yield case("several at once", names, make(a, b, c), make(d, e, f))
    a, b, missing = new(3)
    wrong = a if ask is create else missing
    asks = make(a), make(wrong, b), make(wrong)
    yield case("errors once it is used up", [a, b], *asks)
    a, missing = new(2)
    wrong = TOPIC if ask is create else missing
    yield case("errors use up nothing", [a], make(wrong), make(wrong), make(a))


def shares() -> Iterator[Case]:
    """Return the cases of request_percentage: requests use it up, then one of each API."""
    a, b = new(2)
    old = {"DeleteTopics": [b]}
    of_topics = create(a, version=6), delete(b, version=6)
    for ask in [*others(), produce(), produce(acks=0), fetch(), *of_topics]:
        name = f"{ask.api}, acks 0" if getattr(ask.body, "acks", -1) == 0 else ask.api
        asks = [metadata(TOPIC), metadata(TOPIC), ask]
        yield Case(name, SHARE, 1e-6, asks, old.get(ask.api, []))


def byte_rates() -> Iterator[Case]:
    """Return the cases of producer_byte_rate and consumer_byte_rate."""
    small = Ask("Produce", 9, to_produce(TOPIC, batch([b"x" * 500])))
    yield Case("produce", PRODUCED, 1000, [produce(), produce()])
    yield Case("produce, acks 0", PRODUCED, 1000, [produce(acks=0), produce()])
    yield Case("produce, a small batch", PRODUCED, 1000, [small])
    yield Case("other requests", PRODUCED, 1000, [produce(), *others(), fetch()])
    yield Case("fetch", CONSUMED, 1000, [fetch(), fetch()])
    yield Case(
        "fetch, batches within ten seconds of the rate", CONSUMED, 20_000, [fetch(), fetch()]
    )
    yield Case("other requests", CONSUMED, 1000, [fetch(), *others(), produce()])


def cases() -> dict[str, Case]:
    """Return every case by its quota and name."""
    return {
        f"{case.quota}: {case.name}": case
        for case in itertools.chain(mutations(), shares(), byte_rates())
    }


class Broker:
    """A broker at an address, and its topics."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._numbers = itertools.count()
        made = create(TOPIC, version=5)
        # Kafka would remove the records, which are old.
        forever = [CreatableTopicConfig(name="retention.ms", value="-1")]
        made.body.topics[0].configs.extend(forever)  # type: ignore[attr-defined]
        self._free(made)
        for _ in range(6):
            self._free(produce())
        # Kafka creates the topic of committed offsets.
        assert until(lambda: not self._free(find_coordinator()).error_code)

    def _free(self, ask: Ask) -> Any:
        with Peer(self.address) as peer:
            return peer.ask(*ask, client_id="free")

    def limit(self, client_id: str, quota: str, rate: float) -> None:
        """Set a client's quota."""
        entry = EntryData(
            entity=[EntityData(entity_type="client-id", entity_name=client_id)],
            ops=[OpData(key=quota, value=rate, remove=False)],
        )
        body = AlterClientQuotasRequest(entries=[entry], validate_only=False)
        (row,) = self._free(Ask("AlterClientQuotas", 1, body)).entries
        assert row.error_code == 0, row.error_message
        time.sleep(SETTLES_S if self.is_slow else 0)

    def run(self, case: Case) -> list[Outcome]:
        """Return the outcome of each request of the case."""
        if case.topics:
            answer = self._free(create(*case.topics, version=5))
            assert not any(row.error_code for row in answer.topics)
        client_id = f"client-{next(self._numbers)}"
        self.limit(client_id, case.quota, case.rate)
        return [self._outcome(client_id, ask) for ask in case.asks]

    def _outcome(self, client_id: str, ask: Ask) -> Outcome:
        with Peer(self.address) as peer:
            if getattr(ask.body, "acks", -1) == 0:
                peer.send(request(*ask, client_id=client_id))
                return Outcome([], 0, self._muted(peer), 0)
            answer = peer.ask(*ask, client_id=client_id)
            wait_s = -(-answer.throttle_time_ms // 1000)
            return Outcome(sorted(errors(answer)), wait_s, self._muted(peer), batches(answer))

    def _muted(self, peer: Peer) -> bool:
        """Return whether the next request waits while those of other clients are answered."""
        peer.send(request("ApiVersions", 0, ApiVersionsRequest(), client_id="free"))
        for _ in range(3):
            self._free(metadata(TOPIC))
        peer.socket.settimeout(0.2 if self.is_slow else 0)
        try:
            return not peer.socket.recv(1)
        except (BlockingIOError, TimeoutError):
            return True

    is_slow = False


def errors(answer: Any) -> list[int]:
    """Return the error codes of a response's rows, or its own."""
    for name in ("topics", "responses", "results"):
        rows = getattr(answer, name, None)
        if rows:
            return [code for row in rows for code in codes(row)]
    return codes(answer)


def codes(row: Any) -> list[int]:
    """Return the error codes of a row."""
    parts = getattr(row, "partition_responses", None) or getattr(row, "partitions", None)
    if parts and not hasattr(row, "error_code"):
        return [part.error_code for part in parts]
    return [getattr(row, "error_code", 0)]


def batches(answer: Any) -> int:
    """Return the number of whole batches in a Fetch response."""
    return sum(
        len(part.records or b"") // 65_000
        for topic in getattr(answer, "responses", ())
        for part in getattr(topic, "partitions", ())
    )


def record(broker: Broker) -> dict[str, list[Outcome]]:
    """Return the outcomes of every case."""
    return {name: broker.run(case) for name, case in cases().items()}


if __name__ == "__main__":
    broker = Broker(sys.argv[1])
    broker.is_slow = True
    found = record(broker)
    path = Path(sys.argv[2]) if len(sys.argv) > 2 else RECORDED
    rows = [
        f" {msgspec.json.encode(name).decode()}: {msgspec.json.encode(each).decode()}"
        for name, each in found.items()
    ]
    path.write_text("{\n" + ",\n".join(rows) + "\n}\n")
