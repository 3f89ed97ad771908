"""Check any order of appends, trims, partitions, triggers, restarts: each record once, in order."""

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.spark.test_stream_reader import Query
from tests.spark.topic_log import LAYOUTS, Log, plain


def machine(log: Log, form: str, mode: str) -> type[RuleBasedStateMachine]:
    """Return the state machine for one layout."""

    class Streaming(RuleBasedStateMachine):
        @initialize(
            limit=st.sampled_from([None, 1, 7, 100]),
            partitions=st.integers(1, 3),
            start=st.sampled_from(["earliest", "latest"]),
        )
        def begin(self, limit: int | None, partitions: int, start: str) -> None:
            log.store.command("FLUSHALL")
            log.written.clear()
            self.topic = log.create("s", partitions, form, mode)
            more = {} if limit is None else {"maxOffsetsPerTrigger": limit}
            self.limit = limit
            self.query = Query(log.url, subscribe="s", startingOffsets=start, **more)
            self.query.reader.initialOffset()

        @rule(
            partition=st.integers(0, 2), count=st.integers(1, 30), size=st.sampled_from([10, 9000])
        )
        def append(self, partition: int, count: int, size: int) -> None:
            log.append(self.topic, partition % self.topic.partitions, plain(count, size=size))

        @rule()
        def trigger(self) -> None:
            count = self.query.trigger()
            assert self.limit is None or count <= self.limit

        @rule(count=st.integers(1, 30))
        def die_in_a_batch(self, count: int) -> None:
            self.query.die_in_a_batch(lambda: log.append(self.topic, 0, plain(count)))

        @precondition(lambda self: self.query.checkpoint)
        @rule()
        def restart(self) -> None:
            self.query.restart()

        @precondition(lambda self: self.query.checkpoint)
        @rule(partition=st.integers(0, 2))
        def trim_what_was_read(self, partition: int) -> None:
            partition %= self.topic.partitions
            log.truncate(self.topic, partition, self.query.checkpoint[-1]["s"][str(partition)])

        def teardown(self) -> None:
            if hasattr(self, "query"):
                all_is_there(log, self.query)

    return Streaming


def all_is_there(log: Log, query: Query) -> None:
    """Run the query to the end and expect each record once, in order."""
    while query.trigger():
        pass
    for (_, partition), records in log.written.items():
        mine = [o for _, p, o in query.rows if p == partition]
        assert mine == [record[0] for record in records]


@pytest.mark.parametrize(("form", "mode"), LAYOUTS)
def test_a_stream_reads_each_record_once_in_any_sequence_of_events(
    log: Log, form: str, mode: str
) -> None:
    run_state_machine_as_test(
        machine(log, form, mode),
        settings=settings(
            max_examples=6,
            stateful_step_count=20,
            deadline=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
