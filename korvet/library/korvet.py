"""The log without a broker, for code without an event loop: AsyncKorvet, run inline."""

from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Mapping
from contextlib import AbstractContextManager
from functools import partial, wraps
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar

from korvet.library.async_korvet import AsyncKorvet
from korvet.library.consuming import AsyncConsumer
from korvet.library.following import AsyncReader
from korvet.library.sharing import AsyncShareConsumer, Kind
from korvet.library.tables import AsyncTable
from korvet.library.values import AcquiredRecord, StoredRecord
from korvet.log.accept_server import accept_by
from korvet.scripts.keys import Keys
from korvet.store.redis_py import InlineStore, iterate_inline, run_inline

P = ParamSpec("P")
Q = TypeVar("Q")
R = TypeVar("R")
S = TypeVar("S")
T = TypeVar("T", bound=StoredRecord)


def inline(
    call: Callable[Concatenate[Q, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[Any, P], R]:
    """Return a method that runs a method of `_async` inline, with its signature and docstring."""

    @wraps(call)
    def method(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return run_inline(call(self._async, *args, **kwargs))

    return method


def _inline_as(
    kind: Callable[[R], S], call: Callable[Concatenate[Q, P], Coroutine[Any, Any, R]]
) -> Callable[Concatenate[Any, P], S]:
    """Return a method that runs inline, and whose result is wrapped in a `kind`."""

    @wraps(call)
    def method(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> S:
        return kind(run_inline(call(self._async, *args, **kwargs)))

    return method


def _iterate(
    call: Callable[Concatenate[Q, P], AsyncGenerator[R, None]],
) -> Callable[Concatenate[Any, P], Iterator[R]]:
    """Return a method whose items are read inline."""

    @wraps(call)
    def method(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[R]:
        return iterate_inline(call(self._async, *args, **kwargs))

    return method


class Follower(Generic[T]):
    """Records of partitions, as they arrive: iterate it with `for`."""

    def __init__(self, reader: AsyncReader[T]) -> None:
        self._async = reader

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        record = self.next()
        if record is None:
            raise StopIteration
        return record

    def next(self) -> T | None:
        """Return the next record, None if none has arrived for `idle_s`."""
        return run_inline(self._async.next())

    def close(self) -> None:
        """Leave the group, and close the connection for messages."""
        run_inline(self._async.close())


class Consumer(Follower[StoredRecord]):
    """A member of a consumer group: the calls of AsyncConsumer, run inline."""

    _async: AsyncConsumer

    @property
    def hash_tag(self) -> str:
        """The hash tag of the group: keys with it are in the slot of its commits."""
        return self._async.hash_tag

    @property
    def assignment(self) -> list[tuple[str, int]]:
        """The partitions that it reads, as topic and number."""
        return self._async.assignment

    @wraps(AsyncConsumer.commit_args)
    def commit_args(self) -> AbstractContextManager[tuple[list[str], list[str]]]:
        return self._async.commit_args()

    heartbeat = inline(AsyncConsumer.heartbeat)
    commit = inline(AsyncConsumer.commit)
    commit_with = inline(AsyncConsumer.commit_with)
    check = inline(AsyncConsumer.check)
    rewind = inline(AsyncConsumer.rewind)


class Table:
    """The newest value of each key of a topic: the calls of AsyncTable, run inline."""

    def __init__(self, table: AsyncTable) -> None:
        self._async = table

    get = inline(AsyncTable.get)
    get_with_offset = inline(AsyncTable.get_with_offset)
    items = _iterate(AsyncTable.items)
    count = inline(AsyncTable.count)


class ShareConsumer(Follower[AcquiredRecord]):
    """A member of a share group: the calls of AsyncShareConsumer, run inline."""

    _async: AsyncShareConsumer

    @property
    def assignment(self) -> list[tuple[str, int]]:
        """The partitions that it reads, as topic and number."""
        return self._async.assignment

    def hash_tag(self, record: StoredRecord) -> str:
        """Return the hash tag of a record's partition: that of a step that acknowledges it."""
        return self._async.hash_tag(record)

    def acknowledge_args(
        self, record: StoredRecord, kind: Kind = "accept"
    ) -> AbstractContextManager[tuple[list[str], list[str]]]:
        """Yield KEYS and ARGV that acknowledge a record, for `korvet.acknowledge` in a script."""
        return self._async.acknowledge_args(record, kind)

    heartbeat = inline(AsyncShareConsumer.heartbeat)
    acknowledge = inline(AsyncShareConsumer.acknowledge)
    acknowledge_with = inline(AsyncShareConsumer.acknowledge_with)
    check = inline(AsyncShareConsumer.check)


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
        if store is None:
            store = InlineStore.over(client)
            store.accept_servers(accept_by(Keys(namespace), partial(InlineStore.over, client)))
        self._async = AsyncKorvet(namespace=namespace, settings=settings, store=store)

    @classmethod
    def connect(
        cls, url: str, *, namespace: str = "korvet", settings: Mapping[str, str] | None = None
    ) -> Self:
        """Use a Redis URL, which may name Sentinels or a cluster. Connects at the first call."""
        store = InlineStore.connect(url)
        store.accept_servers(accept_by(Keys(namespace), partial(InlineStore.connect, url)))
        return cls(namespace=namespace, settings=settings, store=store)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        run_inline(self._async.close())

    # The calls of AsyncKorvet: their docstrings say what each does.
    create_topic = inline(AsyncKorvet.create_topic)
    topics = inline(AsyncKorvet.topics)
    topic = inline(AsyncKorvet.topic)
    add_partitions = inline(AsyncKorvet.add_partitions)
    delete_topic = inline(AsyncKorvet.delete_topic)
    delete_records = inline(AsyncKorvet.delete_records)
    offsets = inline(AsyncKorvet.offsets)
    produce = inline(AsyncKorvet.produce)
    append = inline(AsyncKorvet.append)
    publish = inline(AsyncKorvet.publish)
    check = inline(AsyncKorvet.check)
    hash_tag = inline(AsyncKorvet.hash_tag)
    new_producer = inline(AsyncKorvet.new_producer)
    fetch = inline(AsyncKorvet.fetch)
    records = _iterate(AsyncKorvet.records)
    find_offset = inline(AsyncKorvet.find_offset)
    follow = _inline_as(Follower[StoredRecord], AsyncKorvet.follow)
    consumer = _inline_as(Consumer, AsyncKorvet.consumer)
    table = _inline_as(Table, AsyncKorvet.table)
    share_consumer = _inline_as(ShareConsumer, AsyncKorvet.share_consumer)
    groups = inline(AsyncKorvet.groups)
    committed = inline(AsyncKorvet.committed)
    commit = inline(AsyncKorvet.commit)
    reset = inline(AsyncKorvet.reset)
    configure_group = inline(AsyncKorvet.configure_group)
    delete_group = inline(AsyncKorvet.delete_group)
