"""Check that a failing handler ends only its connection and logs one traceback."""

import logging
from collections.abc import Callable, Sequence

import anyio
import pytest
from anyio import to_thread

from korvet import apis
from korvet.base.errors import ErrorCode
from korvet.broker import produce_fast_path
from korvet.broker.server import serve
from korvet.config.broker_config import load
from korvet.config.listeners import Listener
from korvet.context import Context
from korvet.store.errors import ScriptFailed
from korvet.wire.messages.describe_cluster import DescribeClusterRequest
from korvet.wire.messages.metadata import MetadataRequest
from korvet.wire.schema import Message
from tests.support.raw_client import Peer, batch, to_produce
from tests.support.redis_servers import TestServer

WANTED = DescribeClusterRequest(include_cluster_authorized_operations=False)


async def stumble(request: Message, context: Context) -> Message:
    raise RuntimeError("unexpected failure")


async def misled(request: Message, context: Context) -> Message:
    raise ScriptFailed("group.txn_commit", 1, "ERR no such field")


def fall(request: Message, context: Context) -> Message:
    raise RuntimeError("unexpected failure")


async def reported(
    server: TestServer,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    handler: apis.Handler,
    talk: Callable[[str], str],
) -> tuple[str, logging.LogRecord]:
    """Run a broker with that handler of DescribeCluster, and `talk` with its address.

    Return the result of `talk` and the only log record at WARNING or above that is not about
    Redis's persistence."""
    row = apis.BY_KEY[60]
    monkeypatch.setitem(
        apis.BY_KEY, 60, apis.Api(60, row.name, row.versions, row.request, row.response, handler)
    )
    config = load({"redis": server.url, "listen": "127.0.0.1:0"}, sets=(), environ={})
    addresses: list[str] = []
    listening, stop = anyio.Event(), anyio.Event()

    def announced(bound: Sequence[Listener]) -> None:
        addresses.append(str(bound[0]))
        listening.set()

    with caplog.at_level(logging.INFO, "korvet"):
        async with anyio.create_task_group() as tasks:

            async def broker() -> None:
                await serve(config, on_listening=announced, stop=stop)

            tasks.start_soon(broker)
            await listening.wait()
            result = await to_thread.run_sync(talk, addresses[0])
            stop.set()
    (said,) = [
        record
        for record in caplog.records
        if record.levelno >= logging.WARNING and record.name != "korvet.broker.ops"
    ]
    return result, said


@pytest.mark.parametrize("handler", [stumble, fall])
async def test_a_failing_handler_ends_its_connection_and_no_other(
    own_server: TestServer,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    handler: apis.Handler,
) -> None:
    def talk(address: str) -> str:
        with Peer(address) as other, Peer(address) as peer:
            other.ask("Metadata", 9, MetadataRequest(topics=None))
            with pytest.raises((EOFError, ConnectionResetError)):
                peer.ask("DescribeCluster", 0, WANTED)
            other.ask("Metadata", 9, MetadataRequest(topics=None))
            return peer.name

    name, said = await reported(own_server, monkeypatch, caplog, handler, talk)
    fields = said.__dict__["fields"]
    assert said.getMessage() == "request handler failed" and said.exc_info
    assert (fields["client"], fields["api"], fields["version"]) == (name, "DescribeCluster", 0)
    assert fields["error"] == "RuntimeError: unexpected failure"


async def test_a_failure_on_the_fast_path_ends_its_connection_and_no_other(
    own_server: TestServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise RuntimeError("unexpected failure")

    def talk(address: str) -> str:
        wanted = to_produce("orders", batch([b"v"]))
        with Peer(address) as other, Peer(address) as peer:
            # The first two create the topic and the template, which the third matches.
            for _ in range(2):
                peer.ask("Produce", 9, wanted)
            with pytest.raises((EOFError, ConnectionResetError)):
                peer.ask("Produce", 9, wanted)
            other.ask("Metadata", 9, MetadataRequest(topics=None))
            return peer.name

    monkeypatch.setattr(produce_fast_path, "FastAppend", fails)
    name, said = await reported(own_server, monkeypatch, caplog, stumble, talk)
    fields = said.__dict__["fields"]
    assert said.getMessage() == "request handler failed" and said.exc_info
    assert (fields["client"], fields["api"], fields["version"]) == (name, "Produce", 9)


async def test_a_failing_script_is_answered_and_logged(
    own_server: TestServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def talk(address: str) -> str:
        with Peer(address) as peer:
            return ErrorCode(peer.ask("DescribeCluster", 0, WANTED).error_code).name

    result, said = await reported(own_server, monkeypatch, caplog, misled, talk)
    assert result == "UNKNOWN_SERVER_ERROR"
    assert said.getMessage() == "request failed in Redis"
    assert said.__dict__["fields"]["api"] == "DescribeCluster"
    assert "ERR no such field" in str(said.__dict__["fields"]["error"])
