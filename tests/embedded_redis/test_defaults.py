"""Check settings whose default differs with the embedded server."""

from pathlib import Path

import pytest

from korvet.config.setting import Source
from korvet.config.topic_policy import TopicConfigs
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
    monkeypatch.setattr(module, "available_memory", lambda: 4 << 30)


def test_tiered_storage_is_on_and_the_budget_is_half_of_the_memory(tmp_path: Path) -> None:
    found = Settings().with_defaults(defaults(Settings(), tmp_path))
    assert found.flag(SYSTEM) and found.flag(TOPICS)
    assert found.text(URL) == f"file://{tmp_path}/segments"
    assert found.integer(BUDGET) == 2 << 30


@pytest.mark.parametrize(
    "given",
    [
        {SYSTEM: "false"},
        {SYSTEM: "false", BUDGET: "-1"},
        {SYSTEM: "true"},
        {URL: "s3://bucket"},
        {TOPICS: "false"},
        {BUDGET: "7"},
    ],
)
def test_a_given_value_wins(tmp_path: Path, given: dict[str, str]) -> None:
    start = Settings(given)
    found = start.with_defaults(defaults(start, tmp_path))
    for name in (SYSTEM, URL, TOPICS, BUDGET):
        if name in given:
            assert found.text_of(name) == given[name]
            assert found.describe(name).source is Source.STATIC_BROKER
    is_on = given.get(SYSTEM) != "false"
    assert found.flag(SYSTEM) is is_on
    assert TopicConfigs(found).policy("t", {}).remote_storage is (
        is_on and given.get(TOPICS) != "false"
    )


def test_they_are_shown_as_defaults(tmp_path: Path) -> None:
    found = Settings({"num.partitions": "3"}).with_defaults(defaults(Settings(), tmp_path))
    for each in (found, found.with_dynamic({"num.partitions": "4"}), found.of_listener("PLAIN")):
        shown = each.describe(BUDGET)
        assert (shown.value, shown.is_default) == (str(2 << 30), True)
        assert [row.value for row in shown.synonyms] == [str(2 << 30)]
        config = TopicConfigs(each).resolve("t", {})["remote.storage.enable"]
        assert (config.value, config.is_default) == ("true", True)
    changed = found.with_dynamic({BUDGET: "7"})
    assert [row.value for row in changed.synonyms(BUDGET)] == ["7", str(2 << 30)]


@pytest.mark.parametrize(
    ("memory", "budget"),
    [(2 << 30, 1 << 30), ((2 << 30) - 4, (1 << 29) - 1), (512 << 20, 128 << 20)],
)
def test_a_small_machine_gives_a_quarter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, memory: int, budget: int
) -> None:
    monkeypatch.setattr(module, "available_memory", lambda: memory)
    assert defaults(Settings(), tmp_path)[BUDGET] == str(budget)


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
