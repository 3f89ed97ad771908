"""Check queues of jobs: retries, delays, unique jobs, dead letters and order, on real servers."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
import redis
import redis.asyncio

import korvet
from korvet import AcquiredRecord, AsyncKorvet, AsyncQueue, Queue, Record
from korvet.library import queue as queue_module
from korvet.store.redis_py import run_inline
from tests.library.test_sharing import AT_ONCE
from tests.support.redis_servers import TestServer

IDLE_S = 0.15
QUICK: dict[str, Any] = {"partitions": 1, "backoff_s": 0.02, "retries": 2}


@pytest.fixture
def log(client: redis.Redis) -> Iterator[korvet.Korvet]:
    with korvet.Korvet(client, settings=AT_ONCE) as made:
        yield made


@pytest.fixture
def emails(log: korvet.Korvet) -> Queue:
    """A queue whose failed jobs are delivered again soon, twice at most."""
    made = Queue(log, "emails")
    for _ in range(2):
        made.create(**QUICK)
    return made


def work(emails: Queue, *bad: bytes, **words: Any) -> list[tuple[bytes, int]]:
    """Work until no job is left; return payload and delivery of each. Those of `bad` fail."""
    done: list[tuple[bytes, int]] = []

    def function(job: AcquiredRecord) -> None:
        done.append((job.value or b"", job.deliveries))
        if job.value in bad:
            raise ValueError(job.value)

    emails.work(function, idle_s=IDLE_S, **words)
    return done


def letters(log: korvet.Korvet) -> list[bytes | None]:
    return [record.value for record in log.records("dlq.emails", 0)]


def test_a_job_that_fails_is_repeated_and_then_a_dead_letter(
    log: korvet.Korvet, emails: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    for value in (b"a", b"bad", b"c"):
        emails.enqueue(value)
    found = work(emails, b"bad")
    assert sorted(found) == [(b"a", 1), (b"bad", 1), (b"bad", 2), (b"bad", 3), (b"c", 1)]
    assert letters(log) == [b"bad"]
    assert caplog.messages == ["job failed"] * 3
    # Finished jobs are deleted, also without a broker.
    assert [row.records for row in log.offsets("emails")] == [0]
    emails.enqueue(b"worse")
    assert work(emails, b"worse", reject=(ValueError,)) == [(b"worse", 1)]
    assert letters(log) == [b"bad", b"worse"]


def test_a_delayed_job_waits_and_a_unique_one_comes_once(emails: Queue) -> None:
    emails.enqueue(b"later", delay_s=0.05)
    first = emails.enqueue(b"welcome", unique="welcome-ann")
    again = emails.enqueue(b"welcome", unique="welcome-ann")
    assert (first.partition, again) == (0, korvet.Appended("emails", 0, first.base_offset, 1, True))  # type: ignore[union-attr]
    assert work(emails) == [(b"welcome", 1), (b"later", 1)]
    assert emails.enqueue(b"welcome", unique="welcome-ann").duplicate  # type: ignore[union-attr]


def test_unique_jobs_without_a_key_are_in_one_partition(log: korvet.Korvet) -> None:
    queue = Queue(log, "many")
    queue.create(partitions=8)
    found = [queue.enqueue(b"x", unique=f"id-{n % 10}") for n in range(20)]
    assert [each.duplicate for each in found] == [False] * 10 + [True] * 10  # type: ignore[union-attr]
    plain = Queue(log, "plain", group="others")
    plain.create(unique_s=0)
    assert not plain.enqueue(b"x", unique="a").duplicate  # type: ignore[union-attr]
    assert not plain.enqueue(b"x", unique="a").duplicate  # type: ignore[union-attr]
    assert "dedupe.window.ms" not in log.topic("plain").configs
    assert [group.group for group in log.groups()] == []


def test_jobs_of_a_key_are_worked_on_one_after_another(log: korvet.Korvet, emails: Queue) -> None:
    emails.create(**QUICK, order="key")
    for value, key in ((b"a1", b"a"), (b"a2", b"a"), (b"b1", b"b")):
        emails.enqueue(value, key=key)
    assert [value for value, _ in work(emails, b"a1")] == [b"a1", b"b1", b"a1", b"a1", b"a2"]


def test_a_job_is_put_into_the_step_of_the_application(
    client: redis.Redis, log: korvet.Korvet, emails: Queue
) -> None:
    with client.pipeline() as pipe:
        pipe.incr("users")
        receipt = emails.enqueue(b"welcome", key=b"ann", pipe=pipe)
        pipe.execute()
    assert receipt.partition == 0 and work(emails) == [(b"welcome", 1)]


def test_the_writes_of_a_job_and_its_acceptance_are_one_step(
    client: redis.Redis, log: korvet.Korvet, emails: Queue
) -> None:
    def function(job: AcquiredRecord, pipe: Any) -> None:
        pipe.incrby("sum", int(job.value or 0))
        if job.deliveries == 1 and job.value == b"3":
            raise ValueError
        if job.deliveries == 1 and job.value == b"4":
            # Another member gets it while the worker is busy.
            consumer: Any = emails._async._consumer
            partition = log._async.keys.partition("emails", 0, log.topic("emails").id)
            call = partition.share_release(
                group="emails", member=consumer.member_id, delivery_limit=5
            )
            run_inline(log._async.store.run(call))
        emails.heartbeat()

    for number in range(6):
        emails.enqueue(b"%d" % number)
    emails.work(function, client=client, idle_s=IDLE_S)
    assert client.get("sum") == b"15" and letters(log) == []
    # The same loss without a pipeline.
    emails.enqueue(b"4")
    emails.work(lambda job: function(job, client), idle_s=IDLE_S)
    assert letters(log) == []


@pytest.mark.parametrize("kind", ["client", "url"])
def test_coroutines_work_and_keep_their_jobs(
    redis_server: TestServer, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_module, "HEARTBEAT_S", 0.001)
    beats = asyncio.Event()

    class Watched(AsyncQueue):
        async def heartbeat(self) -> None:
            await super().heartbeat()
            beats.set()

    async def run() -> Any:
        client = redis.asyncio.Redis.from_url(redis_server.url)
        made = (
            AsyncKorvet(client, settings=AT_ONCE)
            if kind == "client"
            else await AsyncKorvet.connect(redis_server.url, settings=AT_ONCE)
        )
        async with client, made as log:
            queue = Watched(log, "sums")
            await queue.create(partitions=1)
            for number in range(10):
                await queue.enqueue(b"%d" % number)

            async def add(job: AcquiredRecord, pipe: Any) -> None:
                pipe.incrby("sum", int(job.value or 0))
                await beats.wait()

            workers = (queue.work(add, client=client, idle_s=IDLE_S) for _ in range(2))
            await asyncio.gather(*workers)
            return await client.get("sum")

    assert asyncio.run(run()) == b"45"


def test_a_record_of_any_producer_is_a_job(log: korvet.Korvet, emails: Queue) -> None:
    log.produce("emails", [Record(b"from a producer", headers=[("a", b"b")])])
    assert work(emails) == [(b"from a producer", 1)]
