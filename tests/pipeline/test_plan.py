"""What is archived next, and what is refused."""

import pytest

from korvet.pipeline.errors import OtherLog, TrimmedEarly
from korvet.pipeline.plan import Step, aim, next_step
from korvet.pipeline.ranges import NOTHING, Commit, followed
from korvet.spark.catalog import Catalog
from korvet.spark.options import Connection
from tests.spark.logs import LAYOUTS, Log, plain


def catalog(log: Log) -> Catalog:
    return Catalog(Connection(log.url), log.store)


def step(log: Log, state: Commit, *, most: int = 10**6, skip_lost: bool = False) -> Step | None:
    found = catalog(log)
    return next_step(found, state, aim(found, ["orders"]), most, skip_lost=skip_lost)


@pytest.mark.parametrize(("form", "mode"), LAYOUTS)
def test_steps_cover_the_log_without_gap_or_overlap(log: Log, form: str, mode: str) -> None:
    topic = log.create("orders", 3, form, mode)
    for n, count in enumerate((500, 70, 0)):
        for _ in range(4):
            if count:
                log.append(topic, n, plain(count))
    state, records, rounds = NOTHING, 0, 0
    while (found := step(log, state, most=600)) is not None:
        for each in found.spans:
            held = state.held(each.topic, each.partition)
            assert each.start == (0 if held is None else held.end)
        state = followed(state, found.spans)
        records += found.records
        rounds += 1
    assert records == 2280
    assert rounds >= 4
    for (name, number), written in log.written.items():
        held = state.held(name, number)
        assert held is not None and held.end > written[-1][0]


def test_an_empty_log_needs_no_step(log: Log) -> None:
    log.create("orders", 2)
    assert step(log, NOTHING) is None


def test_offsets_trimmed_before_they_were_archived_are_named(log: Log) -> None:
    topic = log.create("orders")
    log.append(topic, 0, plain(10))
    first = step(log, NOTHING)
    assert first is not None
    state = followed(NOTHING, first.spans)
    log.append(topic, 0, plain(10))
    log.truncate(topic, 0, 15)
    with pytest.raises(TrimmedEarly, match="'orders' partition 0: offsets 10 to 14"):
        step(log, state)


def test_offsets_lost_are_given_up_only_by_order_and_told(log: Log) -> None:
    topic = log.create("orders")
    log.append(topic, 0, plain(10))
    first = step(log, NOTHING)
    assert first is not None
    log.append(topic, 0, plain(10))
    log.truncate(topic, 0, 15)
    second = step(log, followed(NOTHING, first.spans), skip_lost=True)
    assert second is not None
    state = followed(followed(NOTHING, first.spans), second.spans)
    assert [(each.start, each.end) for each in state.lost] == [(10, 15)]
    assert second.records == 5


def test_a_topic_made_again_is_not_the_one_in_the_table(log: Log) -> None:
    topic = log.create("orders")
    log.append(topic, 0, plain(10))
    first = step(log, NOTHING)
    assert first is not None
    log.store.command("FLUSHALL")
    log.create("orders")
    with pytest.raises(OtherLog, match="another topic 'orders'"):
        step(log, followed(NOTHING, first.spans))
