"""The store of segments: a local directory or an object store, through obstore.

Reads have limits: bytes a second, and reads at a time. A read that finds all threads in use waits.
One that finds the most waiting reads is refused, as Kafka does it; the error that a client gets is
one it retries.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path
from time import monotonic
from typing import Any
from urllib.parse import unquote, urlsplit

from korvet.base.metrics import Metrics
from korvet.remote_log.local_files import THREADS, LocalFiles, LocalWrites
from korvet.store.errors import StoreError
from korvet.wire.records import Buffer

MAX_WAITING = 100
NO_RATE = (1 << 63) - 1
"""Bytes a second: the default."""


class TooManyReads(StoreError):
    """Says that as many reads wait for a thread as may wait."""


@dataclass(eq=False, repr=False)
class ReadLimit:
    """Lets reads wait while those before were more than `rate` bytes a second."""

    rate: Callable[[], int] | None = None
    threads: int = THREADS
    most_waiting: int = MAX_WAITING

    def __post_init__(self) -> None:
        self.waiting = 0
        """Reads that wait for a thread."""
        self._slots = asyncio.Semaphore(self.threads)
        self._may_read_at = 0.0

    @property
    def is_set(self) -> bool:
        """Return whether there is a rate below the setting's default, which is none."""
        return self.rate is not None and self.rate() < NO_RATE

    @property
    def delays(self) -> bool:
        """Return whether a read that begins now has to wait."""
        return self._may_read_at > 0.0 and self._may_read_at > monotonic()

    async def wait(self) -> None:
        """Wait until the next read may begin."""
        # Each read that waited moves the time for the others.
        while (wait_s := self._may_read_at - monotonic()) > 0:  # noqa: ASYNC110
            await asyncio.sleep(wait_s)

    @asynccontextmanager
    async def thread(self) -> AsyncIterator[None]:
        """Take one of the threads for the block. Raises TooManyReads."""
        if self._slots.locked():
            if self.waiting >= self.most_waiting:
                raise TooManyReads(
                    f"{self.threads} reads of the remote store are in progress and {self.waiting} "
                    "wait: the limits are remote.log.reader.threads and "
                    "remote.log.reader.max.pending.tasks"
                )
            self.waiting += 1
            try:
                await self._slots.acquire()
            finally:
                self.waiting -= 1
        else:
            await self._slots.acquire()
        try:
            yield
        finally:
            self._slots.release()

    def charge(self, size: int) -> None:
        """Let the next read wait for as long as these bytes may take, whether they were read."""
        if self.rate is not None:
            self._may_read_at = max(self._may_read_at, monotonic()) + size / self.rate()


_RETRIES: Any = {
    "max_retries": 3,
    "retry_timeout": timedelta(seconds=10),
    "backoff": {
        "init_backoff": timedelta(milliseconds=100),
        "max_backoff": timedelta(seconds=1),
        "base": 2,
    },
}
"""Repetitions of a request: clients and the copy task repeat theirs, so few and short ones."""


class RemoteStorageError(StoreError):
    """The store failed, or an object is missing or corrupt; the message says which."""


class SegmentStore:
    """Objects by name below `url`: file:///DIR, s3://, gs://, az:// or memory:///.

    `create`: make the directory of a file URL. Readers must not: another machine may have it.
    """

    def __init__(
        self,
        url: str,
        metrics: Metrics | None = None,
        *,
        create: bool = True,
        limit: ReadLimit | None = None,
    ) -> None:
        parts = urlsplit(url)
        self._limit = limit or ReadLimit()
        self.url = url
        self._metrics = metrics or Metrics()
        self._root: Path | None = None
        self.files: LocalFiles | None = None
        """The reads of a directory; None for an object store."""
        self._writes: LocalWrites | None = None
        if parts.scheme != "file":
            self._check()
            return
        self._root = Path(unquote(parts.path))
        if parts.netloc not in ("", "localhost") or not self._root.is_absolute():
            raise RemoteStorageError(f"{url}: the path must be absolute, as in file:///DIR")
        if create:
            try:
                self._root.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise RemoteStorageError(f"{url}: cannot be created: {error.strerror}") from error
        elif not self._root.is_dir():
            raise RemoteStorageError(f"{url}: this machine has no such directory")
        self.files = LocalFiles(self._root, self._limit.threads)
        self._writes = LocalWrites(self._root)

    def _check(self) -> None:
        """Raise RemoteStorageError if the library cannot open the URL."""
        try:
            _ = self._store
        except Exception as error:
            raise RemoteStorageError(
                f"{self.public_url or self.url}: cannot be opened: {_reason(error)}; use "
                "file:///DIR, s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or az://CONTAINER/PREFIX"
            ) from error

    @cached_property
    def _store(self) -> Any:
        """The library's store. Importing the library takes longer than other parts of a start."""
        from obstore.store import LocalStore, MemoryStore, from_url

        if self._root is not None:
            return LocalStore(str(self._root))
        if self.url.startswith("memory:"):
            return MemoryStore()
        return from_url(self.url, retry_config=_RETRIES)

    async def load(self) -> None:
        """Import the library in a thread, before the first request."""
        await asyncio.to_thread(lambda: self._store)

    @contextmanager
    def _request(self, operation: str, name: str) -> Iterator[None]:
        """Measure a request to the store; its error becomes a RemoteStorageError."""
        began, metrics = monotonic(), self._metrics
        try:
            yield
        except Exception as error:
            metrics.remote_errors.add(1, operation)
            raise RemoteStorageError(f"{name}: {operation} failed: {_reason(error)}") from error
        finally:
            metrics.remote_request_seconds.of(operation).observe(monotonic() - began)

    @property
    def is_limited(self) -> bool:
        """Return whether reads are limited to a number of bytes a second."""
        return self._limit.is_set

    @property
    def public_url(self) -> str:
        """Return the URL without credentials; empty if other processes cannot open it."""
        parts = urlsplit(self.url)
        if parts.scheme == "memory":
            return ""
        # The user of abfss://CONTAINER@ACCOUNT is no credential and has no password.
        user, at, host = parts.netloc.rpartition("@")
        address = host if ":" in user else user + at + host
        return parts._replace(netloc=address, query="", fragment="").geturl()

    async def put(
        self, name: str, data: Buffer | list[Buffer], *, is_read_soon: bool = True
    ) -> None:
        """Create the object; fails if it exists. A local file is synced to the disk.

        A local file that is not read soon leaves the page cache.
        """
        parts = data if isinstance(data, list) else [data]
        with self._request("write", name):
            if self._writes is not None:
                await self._writes.write(name, parts, is_read_soon=is_read_soon)
            else:
                import obstore

                whole: Any = parts[0] if len(parts) == 1 else b"".join(parts)
                await obstore.put_async(self._store, name, whole, mode="create")
        self._metrics.remote_written_bytes.add(sum(map(len, parts)))

    async def get(self, name: str, start: int, end: int) -> memoryview:
        """Return the object's bytes from `start` to below `end`."""
        found: Any = None
        await self._limit.wait()
        self._limit.charge(end - start)
        with self._request("read", name):
            if self.files is not None:
                found = self.files.read_cached(name, start, end - start)
            if found is None:
                async with self._limit.thread():
                    found = await self._get(name, start, end)
            if len(found) != end - start:
                raise ValueError(f"{len(found)} bytes in place of {end - start}")
        self._metrics.remote_read_bytes.add(len(found))
        return memoryview(found)

    async def _get(self, name: str, start: int, end: int) -> Any:
        if self.files is not None:
            return await self.files.read_disk(name, start, end - start)
        import obstore

        return await obstore.get_range_async(self._store, name, start=start, end=end)

    def get_now(self, name: str, start: int, end: int) -> memoryview | None:
        """Return the bytes of a local file without waiting.

        None if the page cache lacks some, or the limit delays the read: call `get`.
        """
        if self.files is None or self._limit.delays:
            return None
        began = monotonic()
        found = self.files.read_cached(name, start, end - start)
        if found is not None:
            self._limit.charge(len(found))
            self._metrics.remote_request_seconds.of("read").observe(monotonic() - began)
            self._metrics.remote_read_bytes.add(len(found))
        return found

    def path_of(self, name: str) -> str:
        """Return the path of an object's file; that of no file for an object store."""
        return self.files.path_of(name) if self.files is not None else name

    def lend_ahead(self, name: str, start: int, end: int) -> memoryview | None:
        """Return a buffer for a read that a reader of the file will need next.

        None for an object store, or while the limit delays reads.
        """
        if self.files is None or self._limit.delays:
            return None
        self._limit.charge(end - start)
        self._metrics.remote_read_bytes.add(end - start)
        return self.files.lend(name, start, end - start)

    def get_blocking(self, name: str, start: int, end: int) -> memoryview:
        """Return the object's bytes from `start` to below `end`; the thread waits for them."""
        import obstore

        with self._request("read", name):
            found: Any = obstore.get_range(self._store, name, start=start, end=end)
            if len(found) != end - start:
                raise ValueError(f"{len(found)} bytes in place of {end - start}")
        return memoryview(found)

    async def read(self, name: str) -> bytes:
        """Return the whole object."""
        import obstore

        with self._request("read", name):
            found = bytes(await (await obstore.get_async(self._store, name)).bytes_async())
        self._metrics.remote_read_bytes.add(len(found))
        return found

    async def delete(self, name: str) -> None:
        """Delete the object, if it exists."""
        import obstore

        with self._request("deletion", name), suppress(FileNotFoundError):
            await obstore.delete_async(self._store, name)

    async def delete_staged(self, prefix: str, age_s: float) -> None:
        """Delete what writes of local files below the prefix left at least that long ago."""
        if self._writes is not None:
            with self._request("deletion", prefix):
                await self._writes.delete_staged(prefix, age_s)

    async def forget(self, name: str) -> None:
        """Read the object again next time: nothing of it is cached here."""

    async def names(self, prefix: str) -> list[str]:
        """Return the names of the objects below a prefix, which ends with a whole part."""
        return [name for name, _, _ in await self.listing(prefix)]

    async def folders(self, prefix: str) -> list[str]:
        """Return the last parts of the common prefixes one level below a prefix."""
        import obstore

        with self._request("listing", prefix):
            found = await obstore.list_with_delimiter_async(self._store, prefix or None)
        return sorted(name.rstrip("/").rpartition("/")[2] for name in found["common_prefixes"])

    async def listing(self, prefix: str) -> list[tuple[str, datetime, int]]:
        """Return name, time of writing and bytes of the objects below a prefix."""
        import obstore

        with self._request("listing", prefix):
            pages = obstore.list(self._store, prefix or None)
            return [
                (str(row["path"]), row["last_modified"], int(row["size"]))
                async for page in pages
                for row in page
            ]


def _reason(error: Exception) -> str:
    """Return the first line: the library adds its own value, for debugging, below it."""
    return str(error).partition("\n")[0]
