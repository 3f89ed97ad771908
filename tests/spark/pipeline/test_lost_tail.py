"""Check a log that lost its end in a failover and reused offsets of archived records."""

import pytest

from korvet.spark.metadata import MetadataClient
from korvet.spark.options import Connection
from korvet.spark.pipeline.commit_metadata import EMPTY, CommitMetadata, decode, encode
from korvet.spark.pipeline.errors import TailLost
from korvet.spark.pipeline.next_commit import archive_target, find_replaced_tails, tail_lost_error
from korvet.spark.plan.tail_fingerprint import fingerprints
from tests.spark.pipeline.test_next_commit import grown_by, metadata, step
from tests.spark.topic_log import LAYOUTS, Log, begun, forgotten, plain

FORMS = ["record", "batch"]


def archived(log: Log, state: CommitMetadata = EMPTY) -> CommitMetadata:
    """Return the commit of a table with all records of the log, encoded and decoded."""
    return decode(encode(grown_by(state, step(log, state))))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("others", [(20,), (12,), (6, 30), (3, 7)])
def test_replaced_records_are_reported(log: Log, form: str, others: tuple[int, ...]) -> None:
    topic = log.create("orders", 2, form)
    for number in range(2):
        log.append(topic, number, plain(10))
    with forgotten(log):
        log.append(topic, 1, plain(5))
        log.append(topic, 1, plain(5))
        state = archived(log)
    for count in others:
        log.append(topic, 1, plain(count, size=30))
    with pytest.raises(TailLost, match="'orders' partition 1: offset 19"):
        step(log, state)


@pytest.mark.parametrize("form", FORMS)
def test_replaced_records_are_skipped_only_on_request_and_reported(log: Log, form: str) -> None:
    topic = log.create("orders", 1, form)
    with forgotten(log):
        log.append(topic, 0, plain(10))
        state = archived(log)
    log.append(topic, 0, plain(15, size=30))
    found = step(log, state, skip_lost=True)
    assert found is not None
    assert [(each.start, each.end) for each in found.ranges] == [(10, 15)]
    state = grown_by(state, found)
    assert [(each.start, each.end) for each in state.lost] == [(9, 10)]
    assert [(each.start, each.end) for each in state.archived] == [(0, 15)]
    log.append(topic, 0, plain(1))
    assert step(log, state) is not None


@pytest.mark.parametrize("form", FORMS)
def test_trimmed_or_compacted_records_are_no_loss(log: Log, form: str) -> None:
    topic = log.create("orders", 1, form, records=10)
    state = archived(log)
    log.append(topic, 0, plain(10))
    log.truncate(topic, 0, 10)
    state = archived(log, state)
    assert state.archived[0].fingerprint
    # Mark the log as compacted: compaction rewrites entries and records that it did.
    log.store.command("HSET", log.keys.partition("orders", 0).log, "cleaned", 20)
    log.store.command("DEL", "korvet:orders:0")
    log.append(topic, 0, plain(3))
    assert step(log, state) is not None


def test_records_replaced_between_planning_and_reading_are_noticed(log: Log) -> None:
    topic = log.create("orders")
    with forgotten(log):
        log.append(topic, 0, plain(10))
        found = step(log, EMPTY)
        assert found is not None
        assert not find_replaced_tails(metadata(log), found.fingerprinted)
    log.append(topic, 0, plain(10, size=30))
    others = find_replaced_tails(metadata(log), found.fingerprinted)
    assert "partition 0: offset 9" in str(tail_lost_error(others))


def test_time_mode_offsets_are_not_reused(log: Log) -> None:
    log.create("orders", 1, "record", "time", records=10)
    assert archived(log).archived[0].fingerprint == ""


def test_each_offset_has_the_fingerprint_of_its_entry(log: Log) -> None:
    topic = log.create("orders", 70)
    for number in range(0, 70, 2):
        log.append(topic, number, plain(1 + number))
    parts = MetadataClient(Connection(log.url), log.store)
    logs = archive_target(parts, ["orders"]).logs
    found = fingerprints(parts, [(part, part.partition) for part in logs])
    assert [bool(each) for each in found] == [part.partition % 2 == 0 for part in logs]
    assert len(set(found)) == 36


@pytest.mark.parametrize(("form", "mode"), LAYOUTS)
def test_a_table_keeps_records_that_redis_lost(
    log: Log, form: str, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    topic = log.create("orders", 1, form, mode)
    ended = log.append(topic, 0, plain(10))[-1][0] + 1
    with forgotten(log):
        position = log.append(topic, 0, plain(5))[-1][0] + 1
        state = archived(log)
    begun(log, topic, position)
    assert step(log, state) is None
    assert f"Redis has lost offsets {ended} to {position - 1}" in caplog.text
    log.append(topic, 0, plain(7))
    found = step(log, state)
    assert found is not None and found.records == 7 and found.ranges[0].start > position
    caplog.clear()
    assert step(log, grown_by(state, found)) is None
    assert not caplog.messages


@pytest.mark.parametrize("form", FORMS)
def test_in_time_mode_a_log_may_lose_records_that_a_table_has(log: Log, form: str) -> None:
    topic = log.create("orders", 2, form, "time", records=10)
    with forgotten(log):
        log.append(topic, 0, plain(5))
        state = archived(log)
    assert step(log, state) is None
    log.append(topic, 1, plain(3))
    state = archived(log, state)
    log.append(topic, 0, plain(7))
    found = step(log, state)
    assert found is not None and found.records == 7
