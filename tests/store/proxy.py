"""A wire between a store and its server that a test can hold still and cut."""

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path


class Proxy:
    """Passes bytes on. `hold` keeps replies back, `cut` ends every connection."""

    def __init__(self, server: str, path: str) -> None:
        self.url = f"unix://{path}"
        self.connections = 0
        self._server = server
        self._open = asyncio.Event()
        self._open.set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def hold(self) -> None:
        """Replies stay in the wire from now on."""
        self._open.clear()

    def release(self) -> None:
        """Replies go on."""
        self._open.set()

    def cut(self) -> None:
        """Every connection has ended, and what was in the wire is lost."""
        for writer in self._writers:
            writer.transport.abort()
        for task in self._tasks:
            task.cancel()
        self._open.set()

    async def close(self) -> None:
        """Nothing of it is left."""
        self.cut()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, from its beginning to its end."""
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
    """A proxy before the server at this unix URL."""
    with tempfile.TemporaryDirectory(prefix="kv-") as directory:
        path = str(Path(directory) / "p")
        wire = Proxy(url.removeprefix("unix://"), path)
        listener = await asyncio.start_unix_server(wire.serve, path)
        try:
            yield wire
        finally:
            listener.close()
            await wire.close()
