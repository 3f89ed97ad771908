"""The log without a broker, for code without an event loop: AsyncKorvet, run inline."""

from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Mapping
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from korvet.library.async_korvet import AsyncKorvet
from korvet.store.redis_py import InlineStore, iterate_inline, run_inline
from korvet.store.sync_store import SyncStore

P = ParamSpec("P")
R = TypeVar("R")
AsyncCall = Callable[Concatenate[AsyncKorvet, P], Coroutine[Any, Any, R]]
AsyncItems = Callable[Concatenate[AsyncKorvet, P], AsyncGenerator[R, None]]


def _inline(call: AsyncCall[P, R]) -> "Callable[Concatenate[Korvet, P], R]":
    """Return a method of AsyncKorvet that runs inline, with its signature and docstring."""

    @wraps(call)
    def method(log: "Korvet", /, *args: P.args, **kwargs: P.kwargs) -> R:
        return run_inline(call(log._log, *args, **kwargs))

    return method


def _iterate(call: AsyncItems[P, R]) -> "Callable[Concatenate[Korvet, P], Iterator[R]]":
    """Return a method of AsyncKorvet whose items are read inline."""

    @wraps(call)
    def method(log: "Korvet", /, *args: P.args, **kwargs: P.kwargs) -> Iterator[R]:
        return iterate_inline(call(log._log, *args, **kwargs))

    return method


class Korvet:
    """The log of one Redis.

    `client` is a `redis.Redis`; its address and credentials are used on connections of the log's
    own. For a Redis Cluster or Sentinels use `Korvet.connect(url)`. An object belongs to one
    thread at a time.

    >>> log = Korvet(redis.Redis.from_url(redis_url))
    >>> log.create_topic("orders", partitions=1).partitions
    1
    >>> log.produce("orders", [Record(b"first", key=b"7"), Record(b"second", key=b"7")])
    [Appended(topic='orders', partition=0, base_offset=..., records=2, duplicate=False)]
    >>> [record.value for record in log.records("orders", 0)]
    [b'first', b'second']

    A batch of an idempotent producer that is sent again is stored once:

    >>> producer, batch = log.new_producer(), [Record(b"paid")]
    >>> log.append("orders", 0, batch, producer=producer, sequence=0).duplicate
    False
    >>> log.append("orders", 0, batch, producer=producer, sequence=0).duplicate
    True

    Groups commit offsets; records below an offset can be deleted:

    >>> log.commit("totals", {("orders", 0): log.offsets("orders")[0].earliest})
    >>> [(row.topic, row.partition, row.lag) for row in log.committed("totals")]
    [('orders', 0, 3)]
    >>> _ = log.create_topic("trimmed", partitions=1, configs={"offset.mode": "dense"})
    >>> _ = log.produce("trimmed", [Record(b"a"), Record(b"b")])
    >>> log.delete_records("trimmed", 0, before=1)
    1
    """

    def __init__(
        self,
        client: Any = None,
        *,
        namespace: str = "korvet",
        settings: Mapping[str, str] | None = None,
        store: InlineStore | None = None,
    ) -> None:
        self._log = AsyncKorvet(
            namespace=namespace,
            settings=settings,
            store=InlineStore.over(client) if store is None else store,
        )

    @classmethod
    def connect(
        cls, url: str, *, namespace: str = "korvet", settings: Mapping[str, str] | None = None
    ) -> Self:
        """Use a Redis URL, which may name Sentinels or a cluster. Connects at the first call."""
        store = InlineStore(SyncStore.connect(url))
        return cls(namespace=namespace, settings=settings, store=store)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        run_inline(self._log.close())

    # The calls of AsyncKorvet: their docstrings say what each does.
    create_topic = _inline(AsyncKorvet.create_topic)
    topics = _inline(AsyncKorvet.topics)
    topic = _inline(AsyncKorvet.topic)
    add_partitions = _inline(AsyncKorvet.add_partitions)
    delete_topic = _inline(AsyncKorvet.delete_topic)
    delete_records = _inline(AsyncKorvet.delete_records)
    offsets = _inline(AsyncKorvet.offsets)
    produce = _inline(AsyncKorvet.produce)
    append = _inline(AsyncKorvet.append)
    publish = _inline(AsyncKorvet.publish)
    check = _inline(AsyncKorvet.check)
    hash_tag = _inline(AsyncKorvet.hash_tag)
    new_producer = _inline(AsyncKorvet.new_producer)
    fetch = _inline(AsyncKorvet.fetch)
    records = _iterate(AsyncKorvet.records)
    find_offset = _inline(AsyncKorvet.find_offset)
    groups = _inline(AsyncKorvet.groups)
    committed = _inline(AsyncKorvet.committed)
    commit = _inline(AsyncKorvet.commit)
    reset = _inline(AsyncKorvet.reset)
    delete_group = _inline(AsyncKorvet.delete_group)
