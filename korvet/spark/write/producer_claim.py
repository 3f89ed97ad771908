"""Claim the producer id of a task, the same in every attempt."""

import logging
from hashlib import blake2b

from korvet.scripts import producer_state
from korvet.scripts.calls.namespace import WriterClaimProducerIdReply
from korvet.scripts.keys import Keys
from korvet.store.sync_store import SyncStore

logger = logging.getLogger("korvet.spark")
EPOCHS = 1 << 15
"""A producer epoch has 15 bits: a Spark epoch above it uses another producer id."""


class ProducerClaim:
    """A task's producer id and epoch; `done` if the epoch is already committed.

    Partitions remember a retryable writer's sequence numbers for KEEP_MS, so that it can be resumed
    days after a crash. The id is derived from writer and task: it stays the same even if a
    failover of Redis lost it.
    """

    def __init__(
        self,
        store: SyncStore,
        keys: Keys,
        writer_id: str,
        task: int,
        epoch: int,
        *,
        retryable: bool = True,
    ) -> None:
        slot = f"{task}.{epoch // EPOCHS}"
        ids_from, keep_ms = producer_state.IDS_FROM, producer_state.KEEP_MS
        if not retryable:
            ids_from, keep_ms = producer_state.JOB_IDS_FROM, producer_state.KEEP_JOB_MS

        def claim(producer_id: int) -> WriterClaimProducerIdReply:
            return store.run(
                keys.writer_claim_producer_id(
                    writer=keys.writer(writer_id),
                    slot=slot,
                    producer_id=producer_id,
                    keep_ms=keep_ms,
                )
            )

        found = claim(-1)
        if found.producer_id < 0 and found.committed < epoch:
            digest = blake2b(f"{writer_id}/{slot}".encode(), digest_size=8).digest()
            found = claim(ids_from + int.from_bytes(digest) % producer_state.JOB_IDS_FROM)
        self.producer_id = found.producer_id
        self.producer_epoch = epoch % EPOCHS
        self.done = found.committed >= epoch
        if 0 <= found.committed < epoch - 1:
            logger.warning(
                "%s: Redis knows of no commit after epoch %d, and this is epoch %d: it may have "
                "lost the records of those in between",
                writer_id,
                found.committed,
                epoch,
            )
