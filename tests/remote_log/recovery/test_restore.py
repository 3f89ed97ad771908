"""Check snapshots and restore, in process, and the refusals of a read-only broker."""

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from korvet import apis
from korvet.base.deferred import CloseWithoutResponse
from korvet.base.errors import ErrorCode
from korvet.broker.background.tasks import BackgroundTasks
from korvet.broker.interceptors import REFUSED, SENTENCE, ReadOnly
from korvet.broker.server import connected
from korvet.config.broker_config import load
from korvet.remote_log.recovery import snapshot
from korvet.remote_log.recovery.report import Loss, Report, RestoreRefused
from korvet.remote_log.recovery.restore import Restore, load_snapshot
from korvet.remote_log.recovery.snapshot import Snapshot, SnapshotStore, TopicState
from korvet.remote_log.recovery.task import SnapshotTask
from korvet.remote_log.store import RemoteStorageError, SegmentStore
from korvet.security.credentials import Mechanism, encode, from_password
from korvet.topics.lifecycle import delete_topic
from korvet.topics.table import Definition
from korvet.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from korvet.wire.messages.list_groups import ListGroupsRequest
from korvet.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from tests.conformance.cases.shares import moving
from tests.remote_log.test_tiered_log import Tier
from tests.support.connected_broker import Broker
from tests.support.exchanges import SHAPES, fetch, packed, produce
from tests.support.redis_servers import TestServer

_namespaces = itertools.count()
CLUSTER = "korvet-cluster-1"


@asynccontextmanager
async def node(server: TestServer, folder: Path) -> AsyncIterator[Tier]:
    """Run a broker on an empty namespace, with the folder as remote store."""
    options = {"redis": server.url, "namespace": f"dr{next(_namespaces)}", "node-id": "7"}
    sets = [
        "remote.log.storage.system.enable=true",
        f"remote.storage.url=file://{folder}",
        "remote.fetch.max.wait.ms=10000",
    ]
    loaded = load({**options, "advertise": "me:9092"}, sets=sets, environ={})
    async with connected(loaded) as services:
        yield Tier(Broker(services), folder)


@pytest.fixture
async def lost(valkey_server: TestServer, tmp_path: Path) -> AsyncIterator[Tier]:
    """A cluster that will lose its Redis."""
    async with node(valkey_server, tmp_path) as tier:
        await tier.broker.services.registration.join()
        yield tier


@pytest.fixture
async def fresh(valkey_server: TestServer, tmp_path: Path) -> AsyncIterator[Tier]:
    """A broker on an empty Redis."""
    async with node(valkey_server, tmp_path) as tier:
        yield tier


def task(tier: Tier) -> SnapshotTask:
    return BackgroundTasks(tier.broker.services).snapshot_task()


async def restored(tier: Tier, gap: int | None = 1000) -> Report:
    services = tier.broker.services
    assert services.tiered.segments is not None
    snapshot = await load_snapshot(services.tiered.segments, None)
    report = await Restore(
        services.store, services.keys, services.tiered.segments, snapshot, gap
    ).run()
    await services.registration.join()
    await services.topics.refresh()
    return report


async def commit(tier: Tier, name: str, offset: int, metadata: str = "") -> None:
    services = tier.broker.services
    topic = await services.topics.get("t")
    assert topic is not None
    rows = [("t", 0, offset, -1, topic.id, metadata)]
    await services.store.run(services.keys.group_register(group=name))
    reply = await services.store.run(
        services.keys.group(name).commit(
            services.keys.commit_rows(rows),
            member="",
            instance="",
            generation=-1,
            allow_member_epoch=0,
            is_registered=1,
            retention_ms=-1,
        )
    )
    assert not reply.error


@pytest.mark.parametrize(("form", "mode"), SHAPES)
async def test_copied_records_are_read_at_their_offsets(
    lost: Tier, fresh: Tier, form: str, mode: str
) -> None:
    await lost.fill(form, mode, segment_bytes="1000000" if form == "batch" else "300000")
    await lost.move()
    start, tiered = (await lost.offset(-2)).offset, (await lost.offset(-6)).offset
    end = (await lost.offset(-1)).offset
    await task(lost).write()
    report = await restored(fresh)
    assert (report.topics, report.partitions, report.records) == (
        1,
        1,
        len(await fresh.read(start)),
    )
    hot = [Loss("t", 0, tiered, end - 1, "not copied")] if tiered < end else []
    assert report.lost == hot and report.unknown_topics == []
    assert await fresh.read(start) == lost.sent[: report.records] and report.records > 0
    assert (await fresh.offset(-2)).offset == start
    old, new = (
        await lost.broker.services.topics.get("t"),
        await fresh.broker.services.topics.get("t"),
    )
    assert old is not None and new is not None and new.raw == old.raw
    assert (await fetch(fresh.broker, end + 5)).error_code == 0, "seen and lost: not out of range"
    made: Any = [(0, 5000, b"k", b"after", [])]
    answer = await produce(fresh.broker, packed(made, 13))
    assert answer.base_offset >= (end + 1000 if mode == "dense" else end)
    assert (await fresh.read(tiered)) == [(5000, b"after")], "readers cross the lost offsets"
    assert (await fresh.offset(-1)).offset == answer.base_offset + 1


async def test_groups_users_acls_and_configs_are_restored(lost: Tier, fresh: Tier) -> None:
    await lost.fill()
    await lost.move()
    services = lost.broker.services
    keys = services.keys
    await commit(lost, "g{ü}:1", 55, "méta data")
    made = from_password(Mechanism.SCRAM_SHA_256, "secret", 4096)
    rows = [(Mechanism.SCRAM_SHA_256.title, encode(made), made.shape)]
    await services.store.run(keys.user_alter(rows, user="ann:é", condition=""))
    await services.store.run(keys.acl_create([b'["TOPIC","LITERAL","t","User:ann"]']))
    configs = b'{"producer_byte_rate":"5.0"}'
    quota = 'quota:{"user":"ann"}'
    await services.store.run(keys.config_alter(resource=quota, expected=b"", wanted=configs))
    await task(lost).write()
    data = next(lost.folder.rglob("*.snapshot")).read_bytes()
    assert b"secret" not in data
    report = await restored(fresh)
    assert (report.groups, report.users, report.acls) == (1, 1, 1)
    other = fresh.broker.services
    for before, after in (
        (keys.users(), other.keys.users()),
        (keys.acls(), other.keys.acls()),
        (keys.configs(), other.keys.configs()),
    ):
        read = [
            await each
            for each in (
                services.store.command("HGETALL", before),
                other.store.command("HGETALL", after),
            )
        ]
        one, two = (dict(zip(flat[::2], flat[1::2], strict=True)) for flat in read)
        one.pop(b":version"), two.pop(b":version")
        assert one == two
    flat = await other.store.command("HGETALL", other.keys.group_offsets("g{ü}:1"))
    assert flat[0].decode().endswith(":t:0")
    assert flat[1].split(b" ")[0] == b"55" and flat[1].endswith("méta data".encode())
    assert len(await other.store.command("ZRANGE", other.keys.groups_due(), 0, -2)) == 1


async def test_share_groups_start_at_their_offsets_again(lost: Tier, fresh: Tier) -> None:
    await lost.fill()
    await lost.move()
    start = (await lost.offset(-2)).offset
    answer = await lost.broker.ask(moving("jobs{ü}", (0, start)))
    assert answer.error_code == 0
    # What the group read of topics that were deleted since, and one of them created again.
    await lost.broker.create("again")
    read = lost.broker.services.keys.group("jobs{ü}").share_topics
    await lost.broker.services.store.command("HSET", read, "gone", "e" * 32, "again", "f" * 32)
    await task(lost).write()
    report = await restored(fresh)
    assert report.groups == 1
    (found,) = await fresh.broker.services.share_offsets.describe_all("jobs{ü}")
    assert (found.start, found.lag) == (start, report.records)
    listed = await fresh.broker.ask(ListGroupsRequest(states_filter=[], types_filter=["share"]))
    assert [row.group_state for row in listed.groups] == ["Empty"]


async def test_the_end_is_above_every_offset_that_is_known(lost: Tier, fresh: Tier) -> None:
    await lost.fill()
    await commit(lost, "ahead", 5000)
    await task(lost).write()
    report = await restored(fresh, gap=0)
    assert report.lost == [Loss("t", 0, 0, 119, "not copied")]
    assert (await fresh.offset(-1)).offset == 5000
    assert await fresh.read(70) == []


async def test_a_namespace_with_state_is_refused(lost: Tier, fresh: Tier) -> None:
    await lost.fill()
    await task(lost).write()
    with pytest.raises(RestoreRefused, match="stop its brokers"):
        await restored(lost)
    await restored(fresh)
    with pytest.raises(RestoreRefused):
        await restored(fresh)


async def test_a_corrupt_segment_is_reported_and_its_offsets_are_an_error(
    lost: Tier, fresh: Tier
) -> None:
    await lost.fill()
    await lost.move()
    await task(lost).write()
    objects = [path for path in lost.objects() if path.suffix == ".segment"]
    data = bytearray(objects[1].read_bytes())
    data[-50] ^= 1
    objects[1].write_bytes(data)
    objects[0].with_name("00000000000000000000-orphan0000000000.segment").write_bytes(b"short")
    report = await restored(fresh)
    first = int(objects[1].name.partition("-")[0])
    assert [(loss.first, loss.reason) for loss in report.lost][:1] == [(first, "corrupt")]
    assert (await fetch(fresh.broker, first)).error_code == 56
    assert (await fetch(fresh.broker, report.lost[0].last + 1)).error_code == 0


async def test_a_segment_copied_after_the_snapshot_is_found(lost: Tier, fresh: Tier) -> None:
    await lost.fill()
    await task(lost).write()
    await lost.move()
    report = await restored(fresh)
    tiered = (await lost.offset(-6)).offset
    assert report.lost == ([Loss("t", 0, tiered, 119, "not copied")] if tiered < 120 else [])
    assert await fresh.read() == lost.sent[:tiered]


async def test_a_corrupt_snapshot_leaves_the_one_before_it(lost: Tier) -> None:
    await lost.fill()
    assert await task(lost).write()
    assert not await task(lost).write(), "nothing changed"
    await commit(lost, "g", 7)
    writer = task(lost)
    assert await writer.write()
    segments = lost.broker.services.tiered.segments
    assert segments is not None
    snapshots = SnapshotStore(segments, CLUSTER)
    assert await snapshots.numbers() == [1, 2]
    newest = sorted(lost.folder.rglob("*.snapshot"))[-1]
    newest.write_bytes(newest.read_bytes()[:-9])
    found = await snapshots.newest()
    assert found is not None and found.groups == {}
    for offset in range(8, 12):
        await commit(lost, "g", offset)
        assert await writer.write()
    assert await snapshots.numbers() == [4, 5, 6], "old ones are deleted"


SHAPE = {"offset.mode": "time", "offset.bits": "10", "storage.format": "record"}


@pytest.mark.parametrize(
    ("created_ms", "topic_id", "configs"),
    [
        (2**60, "1" * 32, SHAPE),
        (1, "no uuid", SHAPE),
        (1, "1" * 32, {}),
        (1, "1" * 32, SHAPE | {"offset.bits": "ten"}),
    ],
)
def test_a_snapshot_that_cannot_be_restored_is_corrupt_though_its_checksum_is_right(
    created_ms: int, topic_id: str, configs: dict[str, str]
) -> None:
    def encoded(created_ms: int, topic_id: str, configs: dict[str, str]) -> bytes:
        topics = {"t": TopicState(Definition(topic_id, 1, configs), [])}
        return snapshot.encode(Snapshot("c", "", "n", created_ms, topics, [], {}, {}, [], {}))

    assert list(snapshot.decode(encoded(1, "1" * 32, SHAPE)).topics) == ["t"]
    with pytest.raises(snapshot.CorruptSnapshot):
        snapshot.decode(encoded(created_ms, topic_id, configs))
    with pytest.raises(snapshot.CorruptSnapshot):
        snapshot.decode(b'{"sha256":"\xff"}\n')


async def test_an_empty_redis_never_replaces_the_snapshots(lost: Tier, fresh: Tier) -> None:
    await lost.fill()
    writer = task(lost)
    assert await writer.write()
    services = lost.broker.services
    topic = await services.topics.get("t")
    assert topic is not None
    await delete_topic(services.store, services.keys, topic)
    assert await writer.write(), "all topics are deleted"
    await fresh.broker.services.registration.join()
    assert not await task(fresh).write()
    await fresh.fill()
    assert not await task(fresh).write(), "other topics"
    await services.store.command("UNLINK", services.keys.cluster())
    assert not await writer.write(), "Redis lost its data while the broker ran"


async def test_a_restored_redis_continues_the_snapshots(lost: Tier, fresh: Tier) -> None:
    await lost.fill()
    assert await task(lost).write()
    await restored(fresh)
    await commit(fresh, "g", 3)
    assert await task(fresh).write()


async def test_only_the_holder_of_the_lease_writes(lost: Tier) -> None:
    await lost.fill()
    one, other = task(lost), task(lost)
    await one.run_once()
    await commit(lost, "g", 1)
    other._due_at = 0.0
    await other.run_once()
    segments = SegmentStore(f"file://{lost.folder}")
    assert await SnapshotStore(segments, CLUSTER).numbers() == [1]


async def test_a_store_of_several_clusters_needs_a_cluster_id(lost: Tier, fresh: Tier) -> None:
    segments = SegmentStore(f"file://{lost.folder}")
    with pytest.raises(RestoreRefused, match="no snapshot"):
        await load_snapshot(segments, None)
    await task(lost).write()
    other = lost.folder / "other" / "metadata"
    other.mkdir(parents=True)
    for each in (lost.folder / CLUSTER / "metadata").iterdir():
        (other / each.name).write_bytes(each.read_bytes())
    with pytest.raises(RestoreRefused, match="--cluster-id"):
        await load_snapshot(segments, None)
    assert (await load_snapshot(segments, "other")).cluster_id == CLUSTER


async def test_the_objects_of_a_deleted_topic_are_deleted_after_a_restore(
    lost: Tier, fresh: Tier
) -> None:
    await lost.fill()
    await lost.move()
    services = lost.broker.services
    topic = await services.topics.get("t")
    assert topic is not None
    await delete_topic(services.store, services.keys, topic)
    await task(lost).write()
    report = await restored(fresh)
    assert (report.topics, report.unknown_topics) == (0, [])
    assert await fresh.broker.services.topics.all() == []
    await fresh.manager().delete_objects(10**15)
    assert [each for each in fresh.objects() if each.suffix == ".segment"] == []


async def test_objects_without_a_definition_are_reported(lost: Tier, fresh: Tier) -> None:
    await task(lost).write()
    await lost.fill()
    await lost.move()
    topic = await lost.broker.services.topics.get("t")
    assert topic is not None
    report = await restored(fresh)
    assert report.unknown_topics == [topic.id]


async def test_malformed_rows_are_left_out(lost: Tier) -> None:
    await lost.fill()
    services = lost.broker.services
    for key in (services.keys.topics(), services.keys.configs()):
        await services.store.command("HSET", key, "foreign", b"{")
    assert await task(lost).write()
    segments = SegmentStore(f"file://{lost.folder}")
    found = await SnapshotStore(segments, CLUSTER).newest()
    assert found is not None and list(found.topics) == ["t"] and found.configs == {}


async def test_a_restore_that_failed_halfway_never_replaces_the_snapshots(
    lost: Tier, fresh: Tier, monkeypatch: pytest.MonkeyPatch
) -> None:
    await lost.fill()
    await commit(lost, "g", 3)
    assert await task(lost).write()

    async def fail(self: Restore) -> None:
        raise RemoteStorageError("away")

    monkeypatch.setattr(Restore, "_groups", fail)
    with pytest.raises(RemoteStorageError):
        await restored(fresh)
    await fresh.broker.services.registration.join()
    assert not await task(fresh).write()
    with pytest.raises(RestoreRefused):
        await restored(fresh)


def test_every_refused_api_is_one_that_the_broker_serves() -> None:
    assert {row.name for row in apis.TABLE} >= REFUSED


async def test_each_item_has_the_error_and_the_reason() -> None:
    topic = CreatableTopic(
        name="t", num_partitions=1, replication_factor=1, assignments=[], configs=[]
    )
    pending = ReadOnly().response(apis.BY_KEY[19], CreateTopicsRequest(topics=[topic]))
    assert pending is not None
    response: object = await pending
    row = response.topics[0]  # type: ignore[attr-defined]
    assert (row.name, row.error_code) == ("t", ErrorCode.POLICY_VIOLATION)
    assert row.error_message == SENTENCE


async def test_a_request_with_acks_0_closes_its_connection() -> None:
    data = PartitionProduceData(index=0, records=b"")
    request = ProduceRequest(
        acks=0, timeout_ms=1, topic_data=[TopicProduceData(name="t", partition_data=[data])]
    )
    pending = ReadOnly().response(apis.BY_KEY[0], request)
    assert pending is not None
    with pytest.raises(CloseWithoutResponse):
        await pending


def test_reads_and_groups_are_served() -> None:
    for row in apis.TABLE:
        if row.name in {"Fetch", "JoinGroup", "OffsetCommit", "InitProducerId"}:
            assert ReadOnly().response(row, None) is None
