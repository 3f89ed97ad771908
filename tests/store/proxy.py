"""A proxy between a store and its server that holds bytes back and closes connections."""

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from korvet.store.async_store import AsyncStore


async def disconnected(store: AsyncStore) -> None:
    """Wait until the store has left a connection."""
    while store.connected:  # noqa: ASYNC110 - the store has no event for it
        await asyncio.sleep(0)


@dataclass
class Flow:
    """The commands of one connection."""

    passes: asyncio.Event = field(default_factory=asyncio.Event)
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the server has closed the connection."""
    holds: bool = False


class Proxy:
    """A proxy of bytes. `hold` keeps replies back, `cut` closes every connection.

    `hold_commands` keeps back what today's connections send from then on, as a lossy network does:
    it arrives later, although the sender has closed the connection.
    """

    def __init__(self, server: str, path: str) -> None:
        self.url = f"unix://{path}"
        self.connections = 0
        self._server = server
        self._open = asyncio.Event()
        self._open.set()
        self._flows: list[Flow] = []
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def hold(self) -> None:
        """Hold back all later replies."""
        self._open.clear()

    def release(self) -> None:
        """Pass on the replies that were held back, and later ones."""
        self._open.set()

    def hold_commands(self) -> None:
        """Hold back the commands of all connections; later connections are not held."""
        for flow in self._flows:
            flow.passes.clear()

    async def deliver(self) -> None:
        """Pass on the commands that were held back, and wait until their connections have ended."""
        for flow in self._flows:
            flow.passes.set()
        await asyncio.gather(*(flow.ended.wait() for flow in self._flows if flow.holds))

    def cut(self) -> None:
        """Close every connection and drop the bytes that were not passed on."""
        for writer in self._writers:
            writer.transport.abort()
        for task in self._tasks:
            task.cancel()
        self._open.set()

    async def close(self) -> None:
        """Close every connection and wait until its tasks have ended."""
        self.cut()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Connect a client to the server and pass bytes in both directions."""
        self.connections += 1
        there, back = await asyncio.open_unix_connection(self._server)
        self._writers |= {writer, back}
        flow = Flow()
        flow.passes.set()
        self._flows.append(flow)
        self._tasks |= {
            asyncio.create_task(self._pass_commands(reader, back, flow)),
            asyncio.create_task(self._pass_replies(there, (writer, back), flow)),
        }

    async def _pass_commands(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, flow: Flow
    ) -> None:
        with suppress(ConnectionError, OSError):
            while data := await reader.read(1 << 16):
                flow.holds = not flow.passes.is_set()
                await flow.passes.wait()
                writer.write(data)
            writer.write_eof()

    async def _pass_replies(
        self,
        reader: asyncio.StreamReader,
        writers: tuple[asyncio.StreamWriter, asyncio.StreamWriter],
        flow: Flow,
    ) -> None:
        try:
            with suppress(ConnectionError):
                while data := await reader.read(1 << 16):
                    await self._open.wait()
                    writers[0].write(data)
        finally:
            flow.ended.set()
            for writer in writers:
                writer.close()
                self._writers.discard(writer)


@asynccontextmanager
async def proxy(url: str) -> AsyncIterator[Proxy]:
    """Run a proxy to the server at this unix URL."""
    with tempfile.TemporaryDirectory(prefix="kv-") as directory:
        path = str(Path(directory) / "p")
        wire = Proxy(url.removeprefix("unix://"), path)
        listener = await asyncio.start_unix_server(wire.serve, path)
        try:
            yield wire
        finally:
            listener.close()
            await wire.close()
