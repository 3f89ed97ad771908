"""Settings whose default differs with the embedded server."""

from pathlib import Path

import pytest

from korvet.config.values import Settings
from korvet.embedded_redis import defaults as module
from korvet.embedded_redis.defaults import defaults
from korvet.remote_log.store import SegmentStore

SYSTEM = "remote.log.storage.system.enable"
URL = "remote.storage.url"
TOPICS = "log.remote.storage.enable"
BUDGET = "local.memory.bytes"


@pytest.fixture(autouse=True)
def memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "available_memory", lambda: 1001)


def test_tiered_storage_is_on_and_the_budget_is_half_of_the_memory(tmp_path: Path) -> None:
    found = Settings().with_start(defaults(Settings(), tmp_path))
    assert found.flag(SYSTEM) and found.flag(TOPICS)
    assert found.text(URL) == f"file://{tmp_path}/segments"
    assert found.integer(BUDGET) == 500


@pytest.mark.parametrize(
    ("given", "added"),
    [
        ({SYSTEM: "false"}, {BUDGET}),
        ({SYSTEM: "false", BUDGET: "-1"}, set()),
        ({SYSTEM: "true"}, {URL, TOPICS, BUDGET}),
        ({URL: "s3://bucket"}, {SYSTEM, TOPICS, BUDGET}),
        ({TOPICS: "false"}, {SYSTEM, URL, BUDGET}),
        ({BUDGET: "7"}, {SYSTEM, URL, TOPICS}),
    ],
)
def test_a_given_value_is_never_replaced(
    tmp_path: Path, given: dict[str, str], added: set[str]
) -> None:
    assert defaults(Settings(given), tmp_path).keys() == added


def test_a_system_that_reports_no_memory_has_no_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "available_memory", lambda: None)
    assert BUDGET not in defaults(Settings(), tmp_path)


async def test_a_directory_may_have_any_name(tmp_path: Path) -> None:
    folder = tmp_path / "50% of a #log?"
    store = SegmentStore(defaults(Settings(), folder)[URL])
    await store.put("a/b", b"one")
    assert (folder / "segments" / "a" / "b").read_bytes() == b"one"
    assert bytes(await store.get("a/b", 0, 3)) == b"one"
    assert bytes(SegmentStore(store.public_url, create=False).get_blocking("a/b", 0, 3)) == b"one"
