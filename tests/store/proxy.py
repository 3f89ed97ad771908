"""A proxy between a store and its server that holds replies back and closes connections."""

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path


class Proxy:
    """A proxy of bytes. `hold` keeps replies back, `cut` closes every connection."""

    def __init__(self, server: str, path: str) -> None:
        self.url = f"unix://{path}"
        self.connections = 0
        self._server = server
        self._open = asyncio.Event()
        self._open.set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def hold(self) -> None:
        """Hold back all later replies."""
        self._open.clear()

    def release(self) -> None:
        """Pass on the replies that were held back, and later ones."""
        self._open.set()

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
        self._tasks |= {
            asyncio.create_task(self._pass_on(reader, back, False)),
            asyncio.create_task(self._pass_on(there, writer, True)),
        }

    async def _pass_on(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, replies: bool
    ) -> None:
        try:
            while data := await reader.read(1 << 16):
                if replies:
                    await self._open.wait()
                writer.write(data)
        except ConnectionError:
            pass
        finally:
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
