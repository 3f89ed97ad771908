"""Check the stores under TLS, on both event loops. The key in `tls/` is used only here."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import uvloop

from korvet.store.async_store import AsyncStore
from korvet.store.errors import RedisUnreachable, StoreUnavailable
from korvet.store.notifications import Notifier
from korvet.store.sync_store import SyncStore
from tests.store.proxy import Proxy
from tests.store.scripts import echo
from tests.support.redis_servers import TestServer

TLS = Path(__file__).parent / "tls"


@asynccontextmanager
async def secured(running: TestServer) -> AsyncIterator[str]:
    """Serve the server behind TLS; yield its URL."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(TLS / "cert.pem", TLS / "key.pem")
    wire = Proxy(running.url.removeprefix("unix://"), "")
    listener = await asyncio.start_server(wire.serve, "127.0.0.1", 0, ssl=context)
    try:
        yield f"rediss://localhost:{listener.sockets[0].getsockname()[1]}"
    finally:
        listener.close()
        await wire.close()


async def use(running: TestServer) -> None:
    payload = bytes(range(256)) * 10_000
    async with secured(running) as address:
        url = f"{address}?ssl_ca_certs={TLS / 'cert.pem'}"
        async with await AsyncStore.connect(url) as store, await Notifier.connect(url) as notifier:
            replies = await store.run_many([echo(memoryview(payload))] * 5)
            assert [reply.payload == payload for reply in replies] == [True] * 5
            async with notifier.listen(["a"]) as subscription:
                await store.command("PUBLISH", "a", "x")
                assert await subscription.wait(30)
        with SyncStore.connect(url) as sync:
            assert await asyncio.to_thread(sync.command, "PING") == b"PONG"
        with pytest.raises(RedisUnreachable, match="certificate verify failed"):
            await AsyncStore.connect(address)
        with SyncStore.connect(address) as stranger, pytest.raises(StoreUnavailable):
            await asyncio.to_thread(stranger.command, "PING")


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_everything_goes_through_tls(valkey_server: TestServer, run: Callable[..., None]) -> None:
    run(use(valkey_server))
