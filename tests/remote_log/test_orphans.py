"""Check that objects of crashed copies are deleted, unless they are in a manifest or new."""

import itertools
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from korvet.broker.server import connected
from korvet.config.broker_config import load
from korvet.remote_log import copier
from korvet.remote_log import retention as orphans
from korvet.remote_log.manager import RemoteLogManager
from korvet.remote_log.manifest import object_name
from korvet.remote_log.store import SegmentStore
from korvet.topics.table import Topic
from tests.support.connected_broker import Broker
from tests.support.exchanges import packed, produce
from tests.support.redis_servers import TestServer

pytestmark = pytest.mark.anyio
_namespaces = itertools.count()


class Copied:
    """A broker with a topic whose records are in segments of a directory."""

    def __init__(self, broker: Broker, topic: Topic, folder: Path) -> None:
        self.services = broker.services
        self.topic = topic
        self.folder = folder

    @property
    def store(self) -> SegmentStore:
        assert self.services.tiered.segments is not None
        return self.services.tiered.segments

    def manager(self, holder: str = "one") -> RemoteLogManager:
        found = self.services.tiered.manager(holder)
        assert found is not None
        return found

    def objects(self) -> set[str]:
        return {
            str(path.relative_to(self.folder)) for path in self.folder.rglob("*") if path.is_file()
        }

    async def put_orphan(self, first: int = 0) -> str:
        """Write an object like a copy that crashed before log.add_segment."""
        cluster_id = self.services.registration.cluster_id
        name = object_name(cluster_id, self.topic.id, 0, first, "ffff")
        await self.store.put(name, b"data")
        return name


@pytest.fixture
async def copied(valkey_server: TestServer, tmp_path: Path) -> AsyncIterator[Copied]:
    options = {
        "redis": valkey_server.url,
        "namespace": f"orphans{next(_namespaces)}",
        "node-id": "7",
    }
    sets = [
        "remote.log.storage.system.enable=true",
        f"remote.storage.url=file://{tmp_path}",
    ]
    config = load({**options, "advertise": "me:9092"}, sets=sets, environ={})
    async with connected(config) as services:
        await services.registration.heartbeat()
        await services.topics.refresh()
        broker = Broker(services)
        await broker.create(
            "t",
            partitions=1,
            storage_format="batch",
            offset_mode="dense",
            remote_storage_enable="true",
            retention_ms="-1",
            segment_bytes="1000",
            file_delete_delay_ms="100000",
        )
        for _ in range(4):
            await produce(
                broker, packed([(n, 1000 + n, b"k", b"v" * 100, []) for n in range(10)], 13)
            )
        topic = await services.topics.get("t")
        assert topic is not None
        found = Copied(broker, topic, tmp_path)
        await found.manager().move(topic, 0)
        assert len(found.objects()) > 2
        yield found


async def test_an_old_object_without_a_row_is_deleted(
    copied: Copied, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = copied.objects()
    await copied.put_orphan()
    await copied.manager().collect_orphans(copied.topic, 0)
    assert len(copied.objects()) == len(named) + 1, "it may be a copy in progress"
    monkeypatch.setattr(orphans, "MIN_AGE_S", 0)
    await copied.manager().collect_orphans(copied.topic, 0)
    await copied.manager().collect_orphans(copied.topic, 0)
    assert copied.objects() == named


async def test_objects_of_removed_segments_wait_for_their_delay(
    copied: Copied, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(orphans, "MIN_AGE_S", 0)
    named, services = copied.objects(), copied.services
    key = services.keys.partition("t", 0)
    row = (await services.store.command("ZRANGE", key.segments, 0, 0))[0]
    await services.store.command("ZREM", key.segments, row)
    await services.store.command("ZADD", key.deleted_segments, 10**13, row)
    await copied.manager().collect_orphans(copied.topic, 0)
    assert copied.objects() == named


async def test_only_the_holder_of_the_lease_deletes(
    copied: Copied, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(orphans, "MIN_AGE_S", 0)
    orphan = await copied.put_orphan()
    await copied.manager("two").collect_orphans(copied.topic, 0)
    assert orphan in copied.objects()
    await copied.manager("one").collect_orphans(copied.topic, 0)
    assert orphan not in copied.objects()


async def test_a_copy_that_was_suspended_is_refused_after_its_object_is_deleted(
    copied: Copied, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copier, "LEASE_MS", 1)
    monkeypatch.setattr(orphans, "MIN_AGE_S", 0)
    broker = Broker(copied.services)
    await produce(broker, packed([(n, 2000 + n, b"k", b"v" * 200, []) for n in range(10)], 13))
    put, deleted = copied.store.put, []

    async def slow(name: str, data: bytes, **how: bool) -> None:
        await put(name, data, **how)
        if not deleted:
            deleted.append(name)
            for _ in range(1000):  # a write may end before the lease does
                await copied.manager("two").collect_orphans(copied.topic, 0)
                if name not in copied.objects():
                    break
            assert name not in copied.objects()

    monkeypatch.setattr(copied.store, "put", slow)
    await copied.manager("one").move(copied.topic, 0)
    key = copied.services.keys.partition("t", 0).segments
    rows: Any = await copied.services.store.command("ZRANGE", key, 0, -1)
    assert deleted and not any(deleted[0].split("-")[-1].split(".")[0].encode() in r for r in rows)


async def test_a_copy_in_progress_in_the_same_process_keeps_its_object(
    copied: Copied, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lease is the same; and after a step of the clock the new object seems to be old."""
    monkeypatch.setattr(orphans, "MIN_AGE_S", 0)
    broker = Broker(copied.services)
    await produce(broker, packed([(n, 2000 + n, b"k", b"v" * 200, []) for n in range(10)], 13))
    put, manager, seen = copied.store.put, copied.manager(), []

    async def slow(name: str, data: bytes, **how: bool) -> None:
        await put(name, data, **how)
        await manager.collect_orphans(copied.topic, 0)
        seen.append(name)
        assert name in copied.objects()

    monkeypatch.setattr(copied.store, "put", slow)
    await manager.move(copied.topic, 0)
    assert seen and set(seen) <= copied.objects()
