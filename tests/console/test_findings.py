"""Check the findings of the overview: slow checks delay no page."""

import threading
from collections.abc import Iterator
from time import monotonic
from typing import Any

import pytest

from korvet.broker.ops import checks
from korvet.broker.ops.finding import Finding
from tests.support.redis_servers import TestServer
from tests.support.running_console import running_console


def test_a_page_does_not_wait_for_slow_checks(
    valkey_server: TestServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    proceed = threading.Event()
    runs: list[str] = []

    def slow(store: Any, namespace: str) -> Iterator[Finding]:
        runs.append(namespace)
        assert proceed.wait(30)
        yield Finding("bad", "disk", "the disk is full")

    monkeypatch.setattr(checks, "examine", slow)
    with running_console(valkey_server) as made, made.browser() as browser:
        began = monotonic()
        assert "The checks of Redis still run" in browser.get("/").text
        found = made.api("/overview")
        assert (found["is_checked"], found["findings"]) == (False, [])
        assert monotonic() - began < 15 and len(runs) == 1, (
            "both requests waited for the same checks"
        )
        proceed.set()
        while not (found := made.api("/overview"))["is_checked"]:
            assert monotonic() - began < 30
        assert [row["sentence"] for row in found["findings"]] == ["the disk is full"]
        assert "the disk is full" in browser.get("/").text
        assert len(runs) == 1, "the checks are not repeated at once"
