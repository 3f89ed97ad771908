"""A handler that fails is its own connection's affair: logged once, with its traceback."""

import logging

import anyio
import pytest
from anyio import to_thread

from korvet import apis
from korvet.broker.server import serve
from korvet.config import load
from korvet.context import Context
from korvet.wire.messages.describe_cluster import DescribeClusterRequest
from korvet.wire.messages.metadata import MetadataRequest
from korvet.wire.schema import Message
from tests.broker.peer import Peer
from tests.servers import TestServer


async def stumble(request: Message, context: Context) -> Message:
    raise RuntimeError("nobody expected this")


def fall(request: Message, context: Context) -> Message:
    raise RuntimeError("nobody expected this")


@pytest.mark.parametrize("handler", [stumble, fall])
async def test_a_failing_handler_ends_its_connection_and_no_other(
    own_server: TestServer,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    handler: apis.Handler,
) -> None:
    row = apis.BY_KEY[60]
    monkeypatch.setitem(
        apis.BY_KEY, 60, apis.Api(60, row.name, row.versions, row.request, row.response, handler)
    )
    config = load({"redis": own_server.url, "listen": "127.0.0.1:0"}, sets=(), environ={})
    addresses: list[str] = []
    listening, stop = anyio.Event(), anyio.Event()

    def announced(host: str, port: int) -> None:
        addresses.append(f"{host}:{port}")
        listening.set()

    def talk() -> str:
        with Peer(addresses[0]) as other, Peer(addresses[0]) as peer:
            other.ask("Metadata", 9, MetadataRequest(topics=None))
            with pytest.raises((EOFError, ConnectionResetError)):
                wanted = DescribeClusterRequest(include_cluster_authorized_operations=False)
                peer.ask("DescribeCluster", 0, wanted)
            other.ask("Metadata", 9, MetadataRequest(topics=None))
            return peer.name

    with caplog.at_level(logging.INFO, "korvet"):
        async with anyio.create_task_group() as tasks:

            async def broker() -> None:
                await serve(config, on_listening=announced, stop=stop)

            tasks.start_soon(broker)
            await listening.wait()
            name = await to_thread.run_sync(talk)
            stop.set()
    (said,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
    fields = said.__dict__["fields"]
    assert said.getMessage() == "a handler failed" and said.exc_info
    assert (fields["client"], fields["api"], fields["version"]) == (name, "DescribeCluster", 0)
    assert fields["error"] == "RuntimeError: nobody expected this"
