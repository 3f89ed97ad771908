"""A queue of jobs: a topic whose records are jobs, and a share group of workers.

Rules
- The log decides all of it: order, retries, backoff and dead letters are the group's configs,
  delays are scheduled records, unique jobs are those of `dedupe_id`.
- A function that raises releases its job, which is delivered again after the backoff; one delivered
  as often as the group allows becomes a dead letter.
- Finished jobs are deleted by `retention.consumed`, in brokers and in workers.
"""

import asyncio
import inspect
from collections.abc import Callable, Sequence
from contextlib import suppress
from time import monotonic
from typing import Any, Literal

from korvet.base import logfmt
from korvet.base.errors import ErrorCode
from korvet.library.async_korvet import AsyncKorvet
from korvet.library.batches import partition_of
from korvet.library.korvet import Korvet, inline
from korvet.library.publishing import Receipt
from korvet.library.sharing import AsyncShareConsumer, Kind
from korvet.library.values import AcquiredRecord, Appended, KorvetError, Record
from korvet.store.errors import StoreError
from korvet.store.redis_py import result_of

HEARTBEAT_S = 5.0
"""Seconds between two renewals of the lock while a coroutine works on a job."""
MAX_BACKOFF_S = 60.0
DELETE_S = 10.0
"""Seconds between two deletions of finished jobs by a worker."""
_LOST = (ErrorCode.INVALID_RECORD_STATE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


logger = logfmt.get("library.queue")


class AsyncQueue:
    """Jobs in the topic `name`, for asyncio; the workers are the share group `group`."""

    def __init__(self, log: AsyncKorvet, name: str, *, group: str | None = None) -> None:
        self.name = name
        self.group = group or name
        self._log = log
        self._consumer: AsyncShareConsumer | None = None

    async def create(
        self,
        *,
        partitions: int | None = None,
        retries: int = 4,
        backoff_s: float = 1.0,
        lock_s: float = 30.0,
        order: Literal["none", "key"] = "none",
        unique_s: float = 3600.0,
    ) -> None:
        """Create the topic and that of its dead letters if they are missing; configure the group.

        A job that fails is delivered again after `backoff_s`, which doubles up to 60 s. With the
        order `key` jobs of one key are worked on one after another. A unique job is left out if
        its id came in the last `unique_s` seconds; 0: ids have no effect.
        """
        log = self._log
        await log.refresh()
        prefix = log.settings.text_of("errors.deadletterqueue.topic.name.prefix") or ""
        letters = f"{prefix}{self.name}"
        configs = {
            "storage.format": "record",
            "delivery.schedule.enable": "true",
            "dedupe.window.ms": str(int(unique_s * 1000)),
            "retention.ms": "-1",
            "retention.bytes": "-1",
            "retention.consumed": self.group,
            "retention.consumed.delete": "true",
        }
        if not unique_s:
            del configs["dedupe.window.ms"]
        for topic, own in (
            (letters, {"errors.deadletterqueue.group.enable": "true"}),
            (self.name, configs),
        ):
            try:
                await log.create_topic(topic, partitions, own)
            except KorvetError as error:
                if error.error is not ErrorCode.TOPIC_ALREADY_EXISTS:
                    raise
        await log.configure_group(
            self.group,
            {
                "share.auto.offset.reset": "earliest",
                "share.delivery.count.limit": str(retries + 1),
                "share.retry.backoff.ms": str(int(backoff_s * 1000)),
                "share.retry.backoff.max.ms": str(int(max(backoff_s, MAX_BACKOFF_S) * 1000)),
                "share.record.lock.duration.ms": str(int(lock_s * 1000)),
                "share.order": order,
                "errors.deadletterqueue.topic.name": letters,
                "errors.deadletterqueue.copy.record.enable": "true",
            },
        )

    async def enqueue(
        self,
        payload: bytes,
        *,
        key: bytes | None = None,
        delay_s: float = 0.0,
        unique: str | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        pipe: Any = None,
    ) -> Appended | Receipt:
        """Append a job; with `pipe` in the caller's own step, as `publish` does.

        Jobs of one key are in one partition, and without a key those of one unique id.
        """
        if delay_s > 0:
            headers = [*headers, ("korvet-delay-ms", b"%d" % (delay_s * 1000))]
        job = Record(payload, key, headers, dedupe_id=unique)
        group_by = key if key is not None or unique is None else unique.encode()
        topic = await self._log.find_topic(self.name)
        number = None if group_by is None else partition_of(group_by, topic.partitions)
        if pipe is not None:
            return await self._log.publish(pipe, self.name, job, partition=number)
        [appended] = await self._log.produce_to(self.name, [(number, job)])
        return appended

    async def work(
        self,
        function: Callable[..., object],
        *,
        client: Any = None,
        reject: tuple[type[Exception], ...] = (),
        idle_s: float | None = None,
        max_records: int = 1,
    ) -> None:
        """Call the function with each job, until none has come for `idle_s` seconds.

        With a client of redis-py or valkey-py the function is called with a pipeline, too: what it
        queues there and the acceptance of the job are one step. A job whose function raises is
        delivered again; an exception of `reject` makes it a dead letter at once. Raises StoreError
        if Redis does not reply.
        """
        consumer = await self._log.share_consumer(
            self.group, [self.name], max_records=max_records, idle_s=idle_s
        )
        delete_at = monotonic() + DELETE_S
        async with consumer:
            self._consumer = consumer
            async for job in consumer:
                await self._do(consumer, job, function, client, reject)
                if monotonic() >= delete_at:
                    await self._delete_finished()
                    delete_at = monotonic() + DELETE_S
            await self._delete_finished()

    async def heartbeat(self) -> None:
        """Renew the lock of the job and the worker's session, from a function that takes long.

        While a coroutine works, this is done for it.
        """
        if self._consumer is not None:
            await self._consumer.heartbeat()

    async def _do(
        self,
        consumer: AsyncShareConsumer,
        job: AcquiredRecord,
        function: Callable[..., object],
        client: Any,
        reject: tuple[type[Exception], ...],
    ) -> None:
        pipe = None if client is None else client.pipeline(transaction=True)
        kind: Kind = "accept"
        try:
            if pipe is not None:
                await consumer.check(pipe, job)
                pipe.multi()
            try:
                given = (job,) if pipe is None else (job, pipe)
                await self._keep(function(*given))
            except Exception as error:
                kind = "reject" if isinstance(error, reject) else "release"
                logger.exception(
                    "job failed",
                    error,
                    queue=self.name,
                    partition=job.partition,
                    offset=job.offset,
                    deliveries=job.deliveries,
                )
            if pipe is None or kind != "accept":
                await consumer.acknowledge(job, kind)
            else:
                await consumer.acknowledge_with(pipe, job)
                await result_of(pipe.execute())
        except Exception as error:
            lost = isinstance(error, KorvetError) and error.error in _LOST
            # The consumer returns the job again, here or to another worker.
            if not lost and type(error).__name__ != "WatchError":
                raise
        finally:
            if pipe is not None:
                await result_of(pipe.reset())

    async def _keep(self, value: object) -> None:
        """Wait for a coroutine, and renew the lock of its job meanwhile."""
        if not inspect.isawaitable(value):
            return
        task = asyncio.ensure_future(value)
        try:
            while not task.done():
                await asyncio.wait([task], timeout=HEARTBEAT_S)
                if not task.done():
                    with suppress(StoreError):
                        await self.heartbeat()
            task.result()
        finally:
            task.cancel()

    async def _delete_finished(self) -> None:
        """Delete the jobs below the first unfinished one, as retention.consumed does."""
        topic = await self._log.find_topic(self.name)
        policy = topic.policy
        if not policy.consumed_delete or set(policy.consumed_by) != {self.group}:
            return
        for number in range(topic.partitions):
            call = topic.partition(number).share_describe(group=self.group, most=0)
            state = await self._log.store.run(call)
            if not state.error and not state.dead_letters and state.start > 0:
                await self._log.delete_records(self.name, number, before=state.start)


class Queue:
    """Jobs in the topic `name`; the workers are the share group `group`.

    >>> log = Korvet(redis.Redis.from_url(redis_url))
    >>> emails = Queue(log, "emails")
    >>> emails.create()
    >>> _ = emails.enqueue(b"welcome", key=b"ann", unique="welcome-ann")
    >>> emails.work(lambda job: print(job.key, job.value, job.deliveries), idle_s=0.1)
    b'ann' b'welcome' 1
    """

    def __init__(self, log: Korvet, name: str, *, group: str | None = None) -> None:
        self._async = AsyncQueue(log._async, name, group=group)
        self.name, self.group = self._async.name, self._async.group

    create = inline(AsyncQueue.create)
    enqueue = inline(AsyncQueue.enqueue)
    work = inline(AsyncQueue.work)
    heartbeat = inline(AsyncQueue.heartbeat)
