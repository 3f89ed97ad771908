"""Check the composition of one broker process's services."""

import itertools
from pathlib import Path

import msgspec
import pytest

from korvet.broker.background.tasks import BackgroundTasks
from korvet.broker.server import connected
from korvet.config.broker_config import Config, load
from korvet.config.setting import StartError
from korvet.scripts.keys import Keys
from tests.support.redis_servers import TestServer

_namespaces = itertools.count()
ENABLED = "remote.log.storage.system.enable=true"


def config(server: TestServer, *sets: str) -> Config:
    options = {"redis": server.url, "namespace": f"context{next(_namespaces)}"}
    return load(options, sets=sets, environ={})


async def test_tiered_storage_without_a_url_is_refused(valkey_server: TestServer) -> None:
    with pytest.raises(StartError, match=r"needs remote\.storage\.url: set it to file:///DIR"):
        async with connected(config(valkey_server, ENABLED)):
            pass


async def test_without_a_remote_store_nothing_is_copied(valkey_server: TestServer) -> None:
    async with connected(config(valkey_server)) as services:
        assert services.tiered.segments is None and services.log_reader.remote is None
        assert services.tiered.manager("one") is None
        await services.tiered.publish()
        url = await services.store.command(
            "HGET", Keys(services.config.namespace).cluster(), "remote_storage_url"
        )
        assert not url


@pytest.mark.parametrize("other", [True, False])
async def test_a_broker_with_another_remote_store_logs_a_warning(
    valkey_server: TestServer, tmp_path: Path, other: bool, caplog: pytest.LogCaptureFixture
) -> None:
    own = f"file://{tmp_path}"
    started = config(valkey_server, ENABLED, f"remote.storage.url={own}")
    for _ in range(2):
        async with connected(started) as services:
            await services.tiered.publish()
    assert "differs" not in caplog.text
    settings = [ENABLED, f"remote.storage.url=file://{tmp_path}/other"] if other else []
    options = {"redis": valkey_server.url, "namespace": started.namespace}
    async with connected(load(options, sets=settings, environ={})) as services:
        await services.tiered.publish()
    fields = [vars(row)["fields"] for row in caplog.records if "differs" in row.message]
    assert [(row["stored"], row["own"]) for row in fields] == [
        (own, f"{own}/other" if other else "none")
    ]


@pytest.mark.parametrize("read_only", [True, False])
async def test_only_a_broker_that_writes_copies(
    valkey_server: TestServer, tmp_path: Path, read_only: bool
) -> None:
    started = config(valkey_server, ENABLED, f"remote.storage.url=file://{tmp_path}")
    started = msgspec.structs.replace(started, read_only=read_only)
    async with connected(started) as services:
        tasks = BackgroundTasks(services)._tasks()
        for name in ("remote log", "memory eviction", "metadata snapshot"):
            assert (name in tasks) is not read_only
        assert services.log_reader.remote is services.tiered.reader is not None
