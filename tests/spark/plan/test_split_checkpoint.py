"""Check streams over small partitions: splits share tasks, by default or by option."""

import json
from typing import Any

import pytest

from tests.spark.test_stream_reader import Offset, Query, all_of, ranges, through_json
from tests.spark.topic_log import LAYOUTS, Log, plain

MANY = 70
layouts = pytest.mark.parametrize(("form", "mode"), LAYOUTS)


def filled(log: Log, count: int = MANY, *made: str) -> Any:
    topic = log.create("s", count, *made)
    for part in range(count):
        log.append(topic, part, plain(1 + part % 3))
    return topic


def asked(log: Log, **options: object) -> Query:
    return Query(log.url, subscribe="s", startingOffsets="earliest", **options)


def planned(query: Query) -> tuple[Offset, Offset, list[tuple[int, int, int, int]]]:
    """Plan a batch like Spark 4.1: return start, end, and the ranges of its tasks."""
    end = through_json(query.reader.latestOffset())
    start = query.checkpoint[-1] if query.checkpoint else query.reader.initialOffset()
    return through_json(start), end, ranges(query, start, end)


def count(found: list[tuple[int, int, int, int]]) -> int:
    return len({task for task, *_ in found})


def test_a_stream_of_many_partitions_has_few_tasks_unless_options_say_otherwise(
    log: Log,
) -> None:
    filled(log)
    for options, tasks in (
        ({}, 32),
        ({"joinPartitions": "false"}, 70),
        ({"joinPartitions": "true"}, 32),
        ({"minPartitions": 20}, 32),
        ({"minPartitions": 40}, 40),
        ({"joinPartitions": "true", "minPartitions": 40}, 40),
        ({"minPartitions": 100}, 100),
        ({"maxBytesPerPartition": "64k"}, 70),
        ({"maxBytesPerPartition": "100k"}, 45),
        ({"maxRecordsPerPartition": 2}, 93),
    ):
        query = asked(log, **options)
        *_, found = planned(query)
        assert count(found) == tasks, options
        assert {part for _, part, *_ in found} == set(range(MANY))
        assert query.trigger() == sum(1 + part % 3 for part in range(MANY))


def test_a_batch_of_few_partitions_has_a_task_for_each(log: Log) -> None:
    topic = filled(log)
    query = asked(log)
    assert query.trigger() > 0
    for part in range(64):
        log.append(topic, part, plain(1))
    _, end, found = planned(query)
    assert count(found) == 64 and "/splits" not in end
    assert query.trigger() == 64
    for part in range(65):
        log.append(topic, part, plain(1))
    *_, found = planned(query)
    assert count(found) == 32
    assert query.trigger() == 65
    assert sorted(query.rows) == all_of(log)


@layouts
def test_a_joined_batch_has_the_same_tasks_when_it_is_repeated(
    log: Log, form: str, mode: str
) -> None:
    topic = filled(log, MANY, form, mode)
    query = asked(log)
    for first in (True, False):
        start, end, tasks = planned(query)
        assert count(tasks) == 32
        # The driver is killed between planning and commit; then the log grows and options change.
        topic = log.grow(topic, MANY + 5) if first else topic
        for part in range(MANY):
            log.append(topic, part, plain(2))
        for options in ({}, {"joinPartitions": "false"}, {"minPartitions": 50}):
            query.reader = asked(log, **options).reader
            assert query.reader.partitions(end, end) == []
            again = start if query.checkpoint else query.reader.initialOffset()
            assert ranges(query, again, end) == tasks
        query.rows += query.batch(again, end)
        query.checkpoint.append(end)
        query.restart()
    while query.trigger():
        pass
    assert sorted(query.rows) == all_of(log)


def test_a_stream_groups_splits_once_join_partitions_is_unset(log: Log) -> None:
    topic = filled(log)
    query = asked(log, joinPartitions="false")
    assert query.trigger() > 0
    query.reader = asked(log).reader
    last = through_json(query.checkpoint[-1])
    assert query.reader.partitions(last, last) == []
    for part in range(MANY):
        log.append(topic, part, plain(1))
    *_, tasks = planned(query)
    assert count(tasks) == 32


def test_a_stream_groups_splits_once_it_has_many_partitions(log: Log) -> None:
    topic = filled(log, 3)
    query = asked(log)
    assert query.trigger() == 6
    query.restart()
    topic = log.grow(topic, MANY)
    for part in range(MANY):
        log.append(topic, part, plain(1))
    start, end, tasks = planned(query)
    assert count(tasks) == 32
    topic = log.grow(topic, MANY + 10)
    for part in range(MANY + 10):
        log.append(topic, part, plain(1))
    query.restart()
    assert ranges(query, start, end) == tasks
    assert query.trigger() == 2 * MANY + 10
    assert sorted(query.rows) == all_of(log)


def test_a_stream_that_gets_its_start_groups_splits_as_well(log: Log) -> None:
    """PySpark 4.2 and newer pass the initial offset first, then request the end after it."""
    filled(log)
    reader = asked(log).reader
    start = through_json(reader.initialOffset())
    end = through_json(reader.latestOffset(start))
    assert end["/splits"]["joinPartitions"] is True
    fresh = asked(log).reader
    assert fresh.partitions(end, end) == []
    assert json.loads(json.dumps(fresh.initialOffset())) == end["/start"]
