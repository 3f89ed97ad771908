"""Append in the caller's own step: a pipeline or MULTI of redis-py or valkey-py.

Rules
- A publish queues EVAL with the whole script: EVALSHA of a script that Redis lost fails inside
  EXEC, and the caller's own commands happen without the records. EVALSHA is queued only after EVAL
  of the same script in the same MULTI.
- If the connection that sends them has said that its server has the functions of this very code,
  FCALL takes the place of both (korvet/scripts/inlined.py). A restart or failover of the server
  ends the connection; the next one is asked again, also if the pipeline repeats the step.
- What can be checked without Redis is checked before anything is queued.
- The pipeline's `execute` is replaced until it was called once: it hands the replies to the
  receipts, then does what it does otherwise.
- Before it gives its connection back (`reset`) it waits there for replicas and disk, if a publish
  asks for that: WAIT and WAITAOF cover the writes of their connection, at its server.
"""

import inspect
import sys
from collections.abc import Callable, Coroutine, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from math import inf
from time import monotonic
from typing import Any, Literal, NamedTuple
from weakref import WeakKeyDictionary

from korvet.base.errors import ErrorCode
from korvet.config.durability import Durability, strictest
from korvet.library.batches import BATCH_BYTES, BATCH_RECORDS, Batcher, partition_of
from korvet.library.record_calls import RecordCalls, appended
from korvet.library.session import Session, check_partition
from korvet.library.values import Appended, KorvetError, Producer, Record
from korvet.scripts import inlined
from korvet.scripts.call import Call
from korvet.scripts.calls.partition import AppendReply
from korvet.store.errors import StoreUnavailable
from korvet.store.handshake import parse_info
from korvet.store.redis_py import InlineStore, result_of, run_inline
from korvet.store.redis_py_calls import evalsha_of, reply_of
from korvet.store.slots import whole

_WAIT_MS = 10_000
"""Longest wait for replicas, and then for the disk."""
_NO_WAIT = Durability.parse("memory")
_ASK_AGAIN_S = 10.0
"""Seconds after which a connection whose server had no functions is asked again."""
_SENDERS = ("_execute_transaction", "_execute_pipeline")
"""Methods of a pipeline that send commands on a connection: a cluster's has others."""
_asked: WeakKeyDictionary[Any, float] = WeakKeyDictionary()
"""When to ask a connection for the functions, by its socket; infinity: its server has them."""

OnRefused = Literal["receipt", "error"]


class Part(NamedTuple):
    """The records of a publish that go to one partition, and the call that appends them."""

    topic: str
    partition: int
    records: int
    call: Call[AppendReply]


class Queued:
    """Calls on a caller's pipeline, and the replies to them once it was executed."""

    def __init__(self, calls: Sequence[Call[Any]]) -> None:
        self._calls = calls
        self._replies: list[object] = []
        self._not_durable = ""

    def _settled(self) -> list[Any]:
        """Return the replies. Raises what was raised in place of one."""
        if len(self._replies) < len(self._calls):
            raise RuntimeError("The pipeline was not executed: nothing was stored.")
        for reply in self._replies:
            if isinstance(reply, Exception):
                raise reply
        return self._replies

    def _check_durable(self, what: str) -> None:
        """Raise KorvetError if replicas or disk do not have in time what is stored."""
        if self._not_durable:
            raise KorvetError(
                ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
                f"{what} stored, but {self._not_durable}.",
            )

    def _add_reply(self, raw: object) -> None:
        """Take Redis's reply to the next call, or the exception in place of it."""
        call = self._calls[len(self._replies)]
        try:
            if isinstance(raw, Exception) and str(raw).startswith(inlined.REFUSED):
                fields = len(call.script.contract.returns)
                _, name, _, *offset = str(raw).split()
                raw = [ErrorCode[name], *map(int, offset), *[-1] * (fields - 1 - len(offset))]
            self._replies.append(reply_of(call, raw))
        except Exception as error:
            self._replies.append(error)

    def _fail(self, error: Exception) -> None:
        """Take what `execute` raised in place of replies."""
        self._replies = [error] * len(self._calls)


class Receipt(Queued):
    """The result of a publish, known after the pipeline was executed.

    Until then its properties raise RuntimeError. Afterwards they raise KorvetError if the log
    refused the records, StoreError if Redis did, and what `execute` raised if it raised.
    """

    def __init__(self, parts: Sequence[Part]) -> None:
        super().__init__([part.call for part in parts])
        self._parts = parts

    @property
    def partition(self) -> int:
        """The partition of the first record."""
        return self.appended[0].partition

    @property
    def offset(self) -> int:
        """The offset of the first record; -1 if its batch has no consecutive offsets."""
        return self.appended[0].base_offset

    @property
    def appended(self) -> list[Appended]:
        """The batches, one for each partition.

        Raises if one of them was refused, or if replicas or disk do not have them in time.
        """
        found = [
            appended(part.topic, part.partition, part.records, reply)
            for part, reply in zip(self._parts, self._settled(), strict=True)
        ]
        self._check_durable("The records are")
        return found


class _Execution:
    """Replaces the `execute` of a pipeline with queued publishes, for one call."""

    def __init__(self, pipe: Any, queue: list[Any], log: Session) -> None:
        self.queue = queue
        self._is_async = _is_async(pipe.__class__)
        is_usable = isinstance(log.store, InlineStore)
        self._log = log if is_usable or self._is_async else None
        self.texts: set[str] = set()
        self._pipe = pipe
        self._receipts: list[tuple[int, Queued]] = []
        self._functions: dict[int, str] = {}
        self._socket: Any = None
        self._answer: Any = None
        self._durable: dict[Queued, Durability] = {}
        self._not_durable = ""
        self._error: BaseException | None = None

    def wait_after(self, receipt: Queued, durability: Durability) -> None:
        """Wait for replicas and disk after EXEC, on its connection."""
        self._durable[receipt] = durability

    def add(self, receipt: Queued, function: str) -> None:
        """Expect the reply to the last queued command; `function`, if any, does the same."""
        if function:
            self._functions[len(self.queue) - 1] = function
        self._receipts.append((len(self.queue) - 1, receipt))

    def __call__(self, raise_on_error: bool = True) -> Any:
        pipe = self._pipe
        del pipe.execute
        if _queue_of(pipe) is not self.queue:  # it was reset
            return pipe.execute(raise_on_error)
        commands = list(self.queue)
        if self._durable:
            self._error = sys.exc_info()[1]
            pipe.reset = self._called(self._reset)
        for name in _SENDERS:
            if send := getattr(pipe, name, None):
                setattr(pipe, name, self._called(partial(self._send, send)))
        with self._failures():
            replies = pipe.execute(raise_on_error=False)
        if inspect.isawaitable(replies):
            return self._await(commands, replies, raise_on_error)
        return self._settle(commands, replies, raise_on_error)

    async def _await(self, commands: list[Any], replies: Any, raise_on_error: bool) -> Any:
        with self._failures():
            replies = await replies
        return self._settle(commands, replies, raise_on_error)

    def _restore(self) -> None:
        for name in _SENDERS:
            vars(self._pipe).pop(name, None)

    def _called(self, work: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., Any]:
        """Return the method that the pipeline calls, which does not suspend without asyncio."""
        return work if self._is_async else lambda *args: run_inline(work(*args))

    def _socket_of(self, connection: Any) -> Any:
        return getattr(connection, "_writer" if self._is_async else "_sock", None)

    async def _send(self, send: Any, connection: Any, commands: list[Any], *more: Any) -> Any:
        """Send the commands on a connection that was asked what there is to know."""
        await result_of(connection.connect())
        self._socket = self._socket_of(connection)
        for words in self._questions():
            await result_of(connection.send_command(*words))
            try:
                self._answer = await result_of(connection.read_response())
            except Exception as error:
                if self._socket_of(connection) is not self._socket:
                    raise
                self._answer = error
            if self._log is not None and words[0] == "INFO":
                await self._log.store.accept(_run_in(self._answer))
        return await result_of(send(connection, self._shortened(commands), *more))

    def _questions(self) -> Iterator[tuple[Any, ...]]:
        """Yield what to ask the connection, and take the answers, error replies among them."""
        if self._socket is None:
            return
        if self._log is not None and self._socket not in self._log.greeted:
            yield "INFO", "server"
            self._log.greeted.add(self._socket)
        if _asked.get(self._socket, 0.0) <= monotonic():
            yield "FCALL", inlined.steps_name(), 0
            has = not isinstance(self._answer, Exception)
            _asked[self._socket] = inf if has else monotonic() + _ASK_AGAIN_S

    def _shortened(self, commands: list[Any]) -> list[Any]:
        if self._socket is None or _asked.get(self._socket) != inf:
            return commands
        commands = list(commands)
        for at, function in self._functions.items():
            words, options = commands[at]
            commands[at] = (("FCALL", function, *words[2:]), options)
        return commands

    async def _reset(self) -> None:
        """Wait on the pipeline's connection, then give it back."""
        pipe = self._pipe
        del pipe.reset
        connection = _connection_of(pipe)
        try:
            for words in self._waits():
                await result_of(connection.send_command(*words))
                self._check(words, await result_of(connection.read_response()))
        except Exception as error:
            self._not_durable = f"the wait failed: {error}"
            await result_of(connection.disconnect())
        except BaseException:
            if self._is_async:  # cancelled: its reply would be the next caller's
                await connection.disconnect(nowait=True)
            raise
        finally:
            await result_of(pipe.reset())

    def _waits(self) -> Iterator[tuple[Any, ...]]:
        """Yield the commands that wait; none if `execute` raises."""
        wanted = strictest(self._durable.values())
        if wanted is None or sys.exc_info()[1] is not self._error:
            return
        if wanted.replicas:
            yield "WAIT", wanted.replicas, _WAIT_MS
        if wanted.fsync:
            yield "WAITAOF", 1, 0, _WAIT_MS

    def _check(self, words: tuple[Any, ...], reply: Any) -> None:
        """Note it if the reply says that the wait ended too early."""
        if words[0] == "WAIT" and reply < words[1]:
            self._not_durable = f"{reply} of {words[1]} replicas have them after {_WAIT_MS} ms"
        elif words[0] == "WAITAOF" and not reply[0]:
            self._not_durable = f"they are not on disk after {_WAIT_MS} ms"

    @contextmanager
    def _failures(self) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            reason: Exception = StoreUnavailable(f"{error!r} ended execute: the outcome is unknown")
            self._restore()
            for _, receipt in self._receipts:
                receipt._fail(error if isinstance(error, Exception) else reason)
            raise

    def _settle(self, commands: list[Any], replies: list[Any], raise_on_error: bool) -> list[Any]:
        """Hand over the replies; raise the first error as redis-py does."""
        self._restore()
        for at, receipt in self._receipts:
            receipt._add_reply(replies[at])
            if isinstance(replies[at], Exception) and "Function not found" in str(replies[at]):
                _asked.pop(self._socket, None)
        for durable in self._durable:
            durable._not_durable = self._not_durable
        for number, (command, reply) in enumerate(zip(commands, replies, strict=True), 1):
            if raise_on_error and isinstance(reply, Exception):
                if isinstance(command, tuple):  # not on a cluster
                    self._pipe.annotate_exception(reply, number, command[0])
                raise reply
        return replies


class PublishCalls(RecordCalls):
    """Append records in the caller's own pipelines."""

    async def publish(
        self,
        pipe: Any,
        topic: str,
        *records: Record,
        partition: int | None = None,
        producer: Producer | None = None,
        sequence: int = 0,
        on_refused: OnRefused = "receipt",
        durable: str | None = None,
    ) -> Receipt:
        """Queue an append on a pipeline of redis-py or valkey-py; its receipt has the offsets.

        Equal keys go to one partition; `partition` overrides that. With a producer the records are
        one batch, stored once if it is published again: `sequence` is that of its first record.
        With `on_refused="error"` a refusal is an error reply, which `execute` raises. `durable`
        is `fsync`, `replicas:N` or `fsync+replicas:N`: `execute` waits for that, up to 10 s each,
        and if it fails the receipt raises KorvetError, with the records stored.
        """
        found = await self.find_topic(topic)
        durability = check_queues(pipe, durable)
        if partition is not None:
            check_partition(found, partition)
        limit = found.policy.max_message_bytes
        rows = ((partition, record) for record in records)
        batcher = self.batchers.setdefault(topic, Batcher())
        batches = list(batcher.batches(rows, found.partitions, limit))
        numbers = {number for number, _ in batches}
        if not batches:
            raise KorvetError(ErrorCode.INVALID_RECORD, "A publish has at least one record.")
        if len(numbers) < len(batches):
            raise KorvetError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"One publish takes at most {BATCH_RECORDS} records and "
                f"{min(BATCH_BYTES, limit)} bytes for a partition of {topic!r}: publish fewer.",
            )
        if producer is not None and len(numbers) > 1:
            raise KorvetError(
                ErrorCode.INVALID_RECORD,
                f"The records are for {len(numbers)} partitions of {topic!r}, each of which "
                "counts a producer's sequence by itself: give the partition.",
            )
        identity = (-1, -1, -1) if producer is None else (producer.id, producer.epoch, sequence)
        await self.complete_tables(found, batches)
        calls = self.prepare(found, batches, identity)
        parts = [
            Part(topic, number, len(batch), call)
            for (number, batch), call in zip(batches, calls, strict=True)
        ]
        receipt = Receipt(parts)
        enqueue(pipe, receipt, calls, on_refused, durability, self)
        return receipt

    async def check(self, pipe: Any, topic: str) -> None:
        """Make a pipeline's next EXEC do nothing if the topic is deleted or changed before it.

        WATCHes the table of topics: call it before `pipe.multi()`. Raises KorvetError if there is
        no such topic.
        """
        await self.find_topic(topic)
        if self.store.is_cluster:
            raise KorvetError(
                ErrorCode.INVALID_REQUEST,
                "On a Redis Cluster the table of topics is in another slot, which the step of a "
                "partition cannot WATCH.",
            )
        await result_of(pipe.watch(self.keys.topics()))
        self.topic_table.invalidate()  # What is read from here on is watched.
        await self.find_topic(topic)

    async def hash_tag(self, topic: str, key: bytes) -> str:
        """Return the hash tag of the partition of a key: keys with it are in the same slot."""
        found = await self.find_topic(topic)
        return found.partition(partition_of(key, found.partitions)).stream


def enqueue(
    pipe: Any,
    receipt: Queued,
    calls: Iterable[Call[Any]],
    on_refused: OnRefused,
    durability: Durability,
    log: Session,
) -> None:
    """Queue the calls, and expect their replies at the pipeline's next `execute`.

    A server that may have lost records is accepted first.
    """
    execution, queue = pipe.execute, _queue_of(pipe)
    if not isinstance(execution, _Execution) or execution.queue is not queue:
        pipe.execute = execution = _Execution(pipe, queue, log)
    is_multi = pipe.__dict__.get("transaction", pipe.__dict__.get("is_transaction"))
    is_multi = is_multi or getattr(pipe, "explicit_transaction", False)
    for call in calls:
        call = whole(call) if log.store.is_cluster else call
        script, raises = call.script, on_refused == "error"
        words = evalsha_of(call)
        if raises:
            words = ("EVAL", inlined.raising(script.name), *words[2:])
        elif not is_multi or script.text not in execution.texts:
            words = ("EVAL", script.text, *words[2:])
            execution.texts.add(script.text)
        pipe.execute_command(*words)
        execution.add(receipt, inlined.step_name(script.name, raises=raises))
    if durability.replicas or durability.fsync:
        execution.wait_after(receipt, durability)


@cache
def _is_async(kind: Hashable) -> bool:
    """Return whether the pipelines of a class are those of asyncio."""
    return inspect.iscoroutinefunction(getattr(kind, "reset", None))


def _run_in(info: object) -> str:
    """Return the run id in a reply to INFO server; empty if the user may not ask."""
    return parse_info(info if isinstance(info, bytes) else str(info).encode()).get("run_id", "")


def _queue_of(pipe: Any) -> list[Any]:
    """Return the pipeline's queued commands; cluster pipelines have them elsewhere."""
    owner = getattr(pipe, "_execution_strategy", pipe)
    queue: list[Any] = owner.command_stack if owner is pipe else owner._command_queue
    return queue


def _connection_of(pipe: Any) -> Any:
    """Return the connection of a pipeline; the step of a cluster's pipeline has one elsewhere."""
    strategy = getattr(pipe, "_execution_strategy", None)
    return pipe.connection if strategy is None else strategy._transaction_connection


def check_queues(pipe: Any, durable: str | None = None) -> Durability:
    """Raise TypeError unless the object is a pipeline that queues commands now.

    Return what its `execute` is to wait for. Raises KorvetError if it cannot.
    """
    durability = _NO_WAIT if durable is None else Durability.parse(durable)
    owner = getattr(pipe, "_execution_strategy", pipe)
    if durable is not None and owner is not pipe and not hasattr(owner, "_transaction_connection"):
        raise KorvetError(
            ErrorCode.INVALID_REQUEST,
            "Without MULTI a pipeline on a Redis Cluster has several connections, and durable is "
            "not possible: use pipeline(transaction=True).",
        )
    if not hasattr(owner, "command_stack") and not hasattr(owner, "_command_queue"):
        raise TypeError(f"{type(pipe).__name__} is no pipeline: pass client.pipeline().")
    watches, begun = (
        getattr(owner, name, getattr(owner, f"_{name}", False))
        for name in ("watching", "explicit_transaction")
    )
    if watches and not begun:
        raise TypeError("The pipeline has WATCHed and queues nothing yet: call its multi() first.")
    return durability
