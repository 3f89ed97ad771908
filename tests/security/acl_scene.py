"""The scene of the ACL matrix on a broker: topics, groups, transactions and rules."""

import time
from collections.abc import Callable
from typing import Any, Protocol
from uuid import UUID

from korvet.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from korvet.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from korvet.wire.messages.create_acls import AclCreation, CreateAclsRequest
from korvet.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from korvet.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from korvet.wire.messages.delete_topics import DeleteTopicsRequest
from korvet.wire.messages.describe_acls import DescribeAclsRequest
from korvet.wire.messages.find_coordinator import FindCoordinatorRequest
from korvet.wire.messages.init_producer_id import InitProducerIdRequest
from korvet.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from korvet.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from korvet.wire.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    Subtopology,
    Topology,
)
from korvet.wire.schema import Message
from korvet.wire.structs import NamedPartitions
from tests.security.acl_outline import outline
from tests.security.acl_probes import Ids, Probe
from tests.security.acl_probes.groups import commit
from tests.security.acl_probes.shares import moved
from tests.security.acl_rules import ANY_ACL, parse

WAIT_S = 30
RETRIABLE = (3, 5, 14, 15, 16, 51)


class Client(Protocol):
    """A client of one user."""

    def ask(self, request: Message, version: int) -> Any:
        """Return the response. Raises EOFError if the broker closes the connection."""


class Scene:
    """The broker as the super user prepared it, and the user whose rules change."""

    def __init__(self, admin: Client, alice: Client) -> None:
        self.admin = admin
        self.alice = alice
        self._t1 = UUID(int=0)

    def prepare(self) -> None:
        """Create what the probes expect."""
        self.set_rules([])
        self._t1 = self._create("t1")
        self._create("t3")
        for kind in (0, 1):
            wanted = FindCoordinatorRequest(key_type=kind, coordinator_keys=["g1"])
            _until(lambda: self.admin.ask(wanted, 4).coordinators[0])  # noqa: B023
        _until(lambda: self.admin.ask(commit("g1", name="t1"), 9).topics[0].partitions[0])
        for name in ("x1", "x3"):
            request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=900_000)
            producer = _until(lambda: self.admin.ask(request, 4))  # noqa: B023
        topic = NamedPartitions(name="t3", partitions=[0])
        self.admin.ask(
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id="x3",
                v3_and_below_producer_id=producer.producer_id,
                v3_and_below_producer_epoch=producer.producer_epoch,
                v3_and_below_topics=[topic],
            ),
            3,
        )

    def run(self, probe: Probe, rules: tuple[str, ...]) -> Any:
        """Return the outline of the response under these rules alone, or `closed`."""
        gone = self._create(probe.creates) if probe.creates else UUID(int=0)
        if "c1" in probe.name or probe.name.startswith("ConsumerGroup"):
            self._join_c1()
        if "s1" in probe.name or probe.name.startswith("ShareGroup"):
            self._join_s1()
        if "k1" in probe.name:
            self._join_k1()
        if "e1" in probe.name.split():
            _until(lambda: self.admin.ask(moved("t1"), 0).responses[0].partitions[0])
        self.set_rules([parse(rule) for rule in rules])
        try:
            found = outline(self.alice.ask(probe.build(Ids(self._t1, gone)), probe.version))
        except EOFError:
            found = "closed"
        if probe.removes and found["topics"][0]["error_code"] != 29:
            self._delete(probe.removes)
        return found

    def set_rules(self, rules: list[AclCreation]) -> None:
        """Replace all rules of the cluster, and wait until the broker applies them."""
        self.admin.ask(DeleteAclsRequest(filters=[DeleteAclsFilter(**ANY_ACL)]), 3)
        if rules:
            answer = self.admin.ask(CreateAclsRequest(creations=rules), 3)
            assert not any(row.error_code for row in answer.results), (rules, answer)
        wanted = {_key(rule) for rule in rules}
        deadline = time.monotonic() + WAIT_S
        while self._rules() != wanted:
            assert time.monotonic() < deadline, rules
            time.sleep(0.002)

    def _rules(self) -> set[tuple[Any, ...]]:
        answer = self.admin.ask(DescribeAclsRequest(**ANY_ACL), 3)
        return {
            (
                row.resource_type,
                row.resource_name,
                row.pattern_type,
                acl.principal,
                acl.host,
                acl.operation,
                acl.permission_type,
            )
            for row in answer.resources
            for acl in row.acls
        }

    def _create(self, name: str) -> UUID:
        topic = CreatableTopic(
            name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[]
        )
        self.admin.ask(CreateTopicsRequest(topics=[topic]), 7)
        return UUID(str(_until(lambda: self._metadata(name)).topic_id))

    def _delete(self, name: str) -> None:
        request = DeleteTopicsRequest(topic_names=[name], timeout_ms=5000)
        _until(lambda: self.admin.ask(request, 5).responses[0])
        deadline = time.monotonic() + WAIT_S
        while self._metadata(name).error_code != 3:
            assert time.monotonic() < deadline, name
            time.sleep(0.002)

    def _metadata(self, name: str) -> Any:
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False
        )
        return self.admin.ask(request, 12).topics[0]

    def _join_c1(self) -> None:
        request = ConsumerGroupHeartbeatRequest(
            group_id="c1",
            member_id="m1",
            member_epoch=0,
            rebalance_timeout_ms=30_000,
            subscribed_topic_names=["t1"],
            topic_partitions=[],
        )
        _until(lambda: self.admin.ask(request, 1))

    def _join_k1(self) -> None:
        sub = Subtopology(
            subtopology_id="0",
            source_topics=["t1"],
            source_topic_regex=[],
            state_changelog_topics=[],
            repartition_sink_topics=[],
            repartition_source_topics=[],
            copartition_groups=[],
        )
        request = StreamsGroupHeartbeatRequest(
            group_id="k1",
            member_id="m1",
            member_epoch=0,
            endpoint_information_epoch=0,
            rebalance_timeout_ms=30_000,
            topology=Topology(epoch=0, subtopologies=[sub]),
            active_tasks=[],
            standby_tasks=[],
            warmup_tasks=[],
            process_id="p",
        )
        _until(lambda: self.admin.ask(request, 0))

    def _join_s1(self) -> None:
        """Send heartbeats as the member of s1 until it has its assignment."""
        request = ShareGroupHeartbeatRequest(
            group_id="s1", member_id="m1", member_epoch=0, subscribed_topic_names=["t1"]
        )
        deadline = time.monotonic() + WAIT_S
        while not _until(lambda: self.admin.ask(request, 1)).assignment.topic_partitions:
            assert time.monotonic() < deadline, "s1 has no assignment"
            time.sleep(0.01)


def _key(rule: AclCreation) -> tuple[Any, ...]:
    return (
        rule.resource_type,
        rule.resource_name,
        rule.resource_pattern_type,
        rule.principal,
        rule.host,
        rule.operation,
        rule.permission_type,
    )


def _until(ask: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + WAIT_S
    while True:
        answer = ask()
        if answer.error_code not in RETRIABLE:
            assert answer.error_code == 0, answer
            return answer
        assert time.monotonic() < deadline, answer
        time.sleep(0.01)
