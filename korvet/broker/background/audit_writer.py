"""Append the audit events of this broker to `audit.topic`.

Rules
- Events wait LINGER_S for further ones and are appended in one batch. The next batch is sent once
  Redis has stored the last one, so the topic has a broker's events in order.
- If the append fails, it is repeated: the topic may have a batch twice, and loses none.
- No rule is needed for these appends and none is checked, so that they cause no audit events.
- The topic is created with the broker's defaults if it is missing, also if
  `auto.create.topics.enable` is false.
"""

from dataclasses import dataclass
from time import monotonic, time

import anyio

from korvet.admin.auto_create import TopicAutoCreator
from korvet.base import logfmt
from korvet.base.errors import ErrorCode
from korvet.base.metrics import Metrics
from korvet.produce.service import ProduceService
from korvet.security.audit import AuditQueue
from korvet.store.errors import StoreError
from korvet.topics.table import TopicTable
from korvet.wire import batch_builder

LINGER_S = 0.05
RETRY_S = 1.0
REPORT_S = 30.0
"""Min seconds between two log lines about dropped events."""
MAX_BATCH = 200
"""Max events of a batch: about 400 KB, should all names be as long as they may be."""
LAST_APPEND_S = 1.0
"""Seconds that a broker that stops has to append its last events."""

log = logfmt.get("broker.audit")


class AppendFailed(Exception):
    """A batch that was not stored."""

    def __init__(self, error: ErrorCode) -> None:
        super().__init__(error.name)
        self.retriable = error.retriable


@dataclass(eq=False, repr=False)
class AuditWriter:
    """Appends events from the queue to the topic."""

    queue: AuditQueue
    topic: str
    node_id: int
    topics: TopicTable
    auto_creator: TopicAutoCreator
    produce: ProduceService
    metrics: Metrics

    def __post_init__(self) -> None:
        self._counted = 0
        self._unreported = 0
        self._reported_at = float("-inf")

    async def run(self) -> None:
        """Append events until cancelled, then append those that are left."""
        try:
            while True:
                await self.queue.wait()
                await anyio.sleep(LINGER_S)
                if not await self._append_next():
                    await anyio.sleep(RETRY_S)
                self._report_dropped()
        finally:
            with anyio.move_on_after(LAST_APPEND_S, shield=True):
                while len(self.queue) and await self._append_next():
                    pass

    async def _append_next(self) -> bool:
        """Append a batch; return False if it must be repeated later."""
        events = self.queue.first(MAX_BATCH)
        try:
            await self._append(events)
        except (StoreError, AppendFailed) as error:
            log.error_again("audit append failed", topic=self.topic, reason=str(error))
            if isinstance(error, StoreError) or error.retriable:
                return False
            self.queue.dropped += len(events)
        else:
            self.metrics.audit_events.add(len(events), "appended")
        self.queue.remove(len(events))
        return True

    async def _append(self, events: list[bytes]) -> None:
        """Append the events. Raises StoreError and AppendFailed."""
        topic = await self.topics.get(self.topic) or await self.auto_creator.create(self.topic)
        if topic is None:
            raise AppendFailed(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        now_ms = int(time() * 1000)
        batch = batch_builder.build(
            (at, now_ms, None, event, []) for at, event in enumerate(events)
        )
        partition = self.node_id % topic.partitions
        error = await self.produce.append(topic, partition, bytes(batch))
        if error:
            raise AppendFailed(error)

    def _report_dropped(self) -> None:
        new = self.queue.dropped - self._counted
        if new:
            self._counted += new
            self._unreported += new
            self.metrics.audit_events.add(new, "dropped")
        now = monotonic()
        if self._unreported and now - self._reported_at >= REPORT_S:
            log.error("audit events dropped", topic=self.topic, events=self._unreported)
            self._reported_at, self._unreported = now, 0
