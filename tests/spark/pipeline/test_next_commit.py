"""Check the plan of the next commit, and the plans that are rejected."""

import pytest

from korvet.spark.metadata import MetadataClient
from korvet.spark.options import Connection
from korvet.spark.pipeline.commit_metadata import EMPTY, CommitMetadata, next_commit
from korvet.spark.pipeline.errors import TopicMismatch, TrimmedEarly
from korvet.spark.pipeline.next_commit import NextCommit, archive_target, plan_next_commit
from tests.spark.topic_log import LAYOUTS, Log, plain


def metadata(log: Log) -> MetadataClient:
    return MetadataClient(Connection(log.url), log.store)


def step(
    log: Log, state: CommitMetadata, *, max_records: int = 10**6, skip_lost: bool = False
) -> NextCommit | None:
    found = metadata(log)
    return plan_next_commit(
        found, state, archive_target(found, ["orders"]), max_records, skip_lost=skip_lost
    )


@pytest.mark.parametrize(("form", "mode"), LAYOUTS)
def test_commits_are_contiguous(log: Log, form: str, mode: str) -> None:
    topic = log.create("orders", 3, form, mode)
    for n, count in enumerate((500, 70, 0)):
        for _ in range(4):
            if count:
                log.append(topic, n, plain(count))
    state, records, rounds = EMPTY, 0, 0
    while (found := step(log, state, max_records=600)) is not None:
        for each in found.spans:
            held = state.archived_range(each.topic, each.partition)
            assert each.start == (0 if held is None else held.end)
        state = next_commit(state, found.spans)
        records += found.records
        rounds += 1
    assert records == 2280
    assert rounds >= 4
    for (name, number), written in log.written.items():
        held = state.archived_range(name, number)
        assert held is not None and held.end > written[-1][0]


def test_an_empty_log_needs_no_commit(log: Log) -> None:
    log.create("orders", 2)
    assert step(log, EMPTY) is None


def test_offsets_trimmed_before_they_were_archived_are_named(log: Log) -> None:
    topic = log.create("orders", records=10)
    first = step(log, EMPTY)
    assert first is not None
    state = next_commit(EMPTY, first.spans)
    log.append(topic, 0, plain(10))
    log.truncate(topic, 0, 15)
    with pytest.raises(TrimmedEarly, match="'orders' partition 0: offsets 10 to 14"):
        step(log, state)


def test_lost_offsets_are_skipped_only_on_request_and_reported(log: Log) -> None:
    topic = log.create("orders", records=10)
    first = step(log, EMPTY)
    assert first is not None
    log.append(topic, 0, plain(10))
    log.truncate(topic, 0, 15)
    second = step(log, next_commit(EMPTY, first.spans), skip_lost=True)
    assert second is not None
    state = next_commit(next_commit(EMPTY, first.spans), second.spans)
    assert [(each.start, each.end) for each in state.lost] == [(10, 15)]
    assert second.records == 5


def test_a_topic_created_again_is_not_the_one_in_the_table(log: Log) -> None:
    log.create("orders", records=10)
    first = step(log, EMPTY)
    assert first is not None
    log.store.command("FLUSHALL")
    log.create("orders")
    with pytest.raises(TopicMismatch, match="another topic 'orders'"):
        step(log, next_commit(EMPTY, first.spans))


def grown_by(state: CommitMetadata, found: NextCommit | None) -> CommitMetadata:
    """Return the state after the planned commit."""
    assert found is not None
    return next_commit(state, found.spans, partitions={**state.partitions, **found.partitions})


def test_trimmed_records_of_a_partition_that_was_empty_are_noticed(log: Log) -> None:
    topic = log.create("orders", 2, records=10)
    state = grown_by(EMPTY, step(log, EMPTY))
    assert step(log, state) is None
    log.append(topic, 1, plain(10))
    log.truncate(topic, 1, 5)
    with pytest.raises(TrimmedEarly, match="partition 1: offsets 0 to 4"):
        step(log, state)


def test_trimmed_records_of_a_partition_left_for_a_later_commit_are_noticed(log: Log) -> None:
    topic = log.create("orders", 2)
    for number in range(2):
        log.append(topic, number, plain(10))
    log.truncate(topic, 1, 2)
    state = grown_by(EMPTY, step(log, EMPTY, max_records=1))
    waits = next(span for span in state.archived if span.start == span.end)
    assert waits.start == (0, 2)[waits.partition]
    log.truncate(topic, waits.partition, 5)
    with pytest.raises(TrimmedEarly, match=f"partition {waits.partition}"):
        step(log, state)


def test_trimmed_records_of_a_partition_added_since_the_last_commit_are_noticed(log: Log) -> None:
    topic = log.create("orders", records=10)
    state = grown_by(EMPTY, step(log, EMPTY))
    topic = log.grow(topic, 2)
    assert step(log, state) is None
    log.append(topic, 1, plain(10))
    log.truncate(topic, 1, 5)
    with pytest.raises(TrimmedEarly, match="partition 1: offsets 0 to 4"):
        step(log, state)
    state = grown_by(state, step(log, state, skip_lost=True))
    assert [(each.partition, each.start, each.end) for each in state.lost] == [(1, 0, 5)]
    assert step(log, state) is None


def test_records_trimmed_before_the_first_archive_are_no_loss(log: Log) -> None:
    topic = log.create("orders", 2)
    for number in range(2):
        log.append(topic, number, plain(10))
    log.truncate(topic, 0, 5)
    log.truncate(topic, 1, 10)
    state = grown_by(EMPTY, step(log, EMPTY))
    assert step(log, state) is None and not state.lost
