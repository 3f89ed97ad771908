"""A Kafka-protocol broker that keeps its log in Redis Streams.

The public interface, which follows the versioning policy, is `korvet.__all__` and
`korvet.testing.__all__`. Any other module may change in any release.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from korvet.library.async_korvet import AsyncKorvet
    from korvet.library.consuming import AsyncConsumer, CommitReceipt
    from korvet.library.following import AsyncFollower
    from korvet.library.korvet import Consumer, Follower, Korvet, ShareConsumer, Table
    from korvet.library.publishing import Receipt
    from korvet.library.queue import AsyncQueue, Queue
    from korvet.library.sharing import AcknowledgeReceipt, AsyncShareConsumer
    from korvet.library.tables import AsyncTable
    from korvet.library.values import (
        AcquiredRecord,
        Appended,
        Fetched,
        GroupInfo,
        GroupOffset,
        KeyChanged,
        KorvetError,
        LostRecords,
        PartitionOffsets,
        Producer,
        Record,
        StoredRecord,
        TopicInfo,
    )
    from korvet.store.errors import StoreError, StoreUnavailable

__version__ = "0.1.0"

__all__ = [
    "AcknowledgeReceipt",
    "AcquiredRecord",
    "Appended",
    "AsyncConsumer",
    "AsyncFollower",
    "AsyncKorvet",
    "AsyncQueue",
    "AsyncShareConsumer",
    "AsyncTable",
    "CommitReceipt",
    "Consumer",
    "Fetched",
    "Follower",
    "GroupInfo",
    "GroupOffset",
    "KeyChanged",
    "Korvet",
    "KorvetError",
    "LostRecords",
    "PartitionOffsets",
    "Producer",
    "Queue",
    "Receipt",
    "Record",
    "ShareConsumer",
    "StoreError",
    "StoreUnavailable",
    "StoredRecord",
    "Table",
    "TopicInfo",
    "__version__",
]
_MODULES = {
    "AcknowledgeReceipt": "library.sharing",
    "AsyncConsumer": "library.consuming",
    "AsyncFollower": "library.following",
    "AsyncKorvet": "library.async_korvet",
    "AsyncQueue": "library.queue",
    "AsyncShareConsumer": "library.sharing",
    "AsyncTable": "library.tables",
    "CommitReceipt": "library.consuming",
    "Consumer": "library.korvet",
    "Follower": "library.korvet",
    "Korvet": "library.korvet",
    "Queue": "library.queue",
    "Receipt": "library.publishing",
    "ShareConsumer": "library.korvet",
    "StoreError": "store.errors",
    "StoreUnavailable": "store.errors",
    "Table": "library.korvet",
}


def __getattr__(name: str) -> object:
    # The broker and Spark's workers import this package and must not load the library.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES.get(name, 'library.values')}"), name)
