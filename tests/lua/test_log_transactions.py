"""Check transactions in a partition: log.begin_txn, log.append, log.write_txn_marker, readers."""

import pytest

from korvet.base.errors import ErrorCode
from korvet.scripts.append_call import EXPIRED_IN_TXN
from korvet.store.errors import ScriptFailed
from korvet.testing import ScriptError
from tests.lua.transactions import KEYS, Logs
from tests.support.store_runners import Runner


@pytest.fixture(params=["time", "dense"])
def logs(request: pytest.FixtureRequest, runner: Runner) -> Logs:
    """An empty topic."""
    return Logs(runner, mode=request.param).create()


def test_a_transactional_record_needs_a_begun_transaction(logs: Logs) -> None:
    assert logs.append(0, b"a", (1, 0, 0), 0).error == ErrorCode.INVALID_TXN_STATE
    assert logs.begin(0, 1, 0, 1) == 0
    assert logs.append(0, b"a", (1, 0, 0), 0).error == 0


def test_a_number_begins_the_transaction_with_its_first_record(logs: Logs) -> None:
    assert logs.append(0, b"a", (1, 0, 0), 1).error == 0
    assert logs.append(0, b"b", (1, 0, 1), 1).error == 0
    assert (logs.committed(0), logs.everything(0)) == ([], [b"a", b"b"])
    assert logs.mark(0, 1, 1, 1, True).offset >= 0
    assert logs.committed(0) == [b"a", b"b"]


def test_a_plain_record_of_a_producer_with_an_open_transaction_is_refused(logs: Logs) -> None:
    logs.append(0, b"a", (1, 0, 0), 1)
    assert logs.append(0, b"b", (1, 0, 1)).error == ErrorCode.INVALID_TXN_STATE
    logs.mark(0, 1, 0, 1, True)
    assert logs.append(0, b"b", (1, 0, 1)).error == 0


def test_the_stable_end_is_where_the_oldest_open_transaction_found_it(logs: Logs) -> None:
    logs.append(0, b"plain")
    end = logs.stable(0)
    logs.append(0, b"one", (1, 0, 0), 1)
    logs.append(0, b"more")
    later = logs.entries(0)[-1][0] + 1
    logs.append(0, b"two", (2, 0, 0), 1)
    assert logs.stable(0) == end
    logs.mark(0, 1, 0, 1, False)
    assert logs.stable(0) == later
    assert logs.committed(0) == [b"plain", b"more"]
    logs.mark(0, 2, 0, 1, True)
    assert logs.stable(0) == logs.entries(0)[-1][0] + 1
    assert logs.committed(0) == [b"plain", b"more", b"two"]


def test_a_marker_is_written_once(logs: Logs) -> None:
    logs.append(0, b"a", (1, 0, 0), 1)
    first = logs.mark(0, 1, 0, 1, False)
    assert first.offset >= 0
    assert logs.mark(0, 1, 0, 1, False).offset == -1
    assert logs.mark(0, 1, 0, 1, True).offset == -1
    assert len(logs.entries(0)) == 2
    assert logs.aborted(0) == [(1, logs.entries(0)[0][0], first.offset)]


def test_a_late_marker_does_not_end_the_next_transaction(logs: Logs) -> None:
    logs.begin(0, 1, 0, 1)
    logs.append(0, b"a", (1, 0, 0), 0)
    logs.mark(0, 1, 0, 1, False)
    logs.begin(0, 1, 0, 2)
    logs.append(0, b"b", (1, 0, 1), 0)
    assert logs.mark(0, 1, 0, 1, False).offset == -1
    assert logs.committed(0) == []
    logs.mark(0, 1, 0, 2, True)
    assert logs.committed(0) == [b"b"]


def test_what_comes_late_opens_nothing(logs: Logs) -> None:
    assert logs.mark(0, 1, 1, 1, False).offset == -1
    assert logs.begin(0, 1, 0, 1) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert logs.begin(0, 1, 1, 1) == ErrorCode.INVALID_TXN_STATE
    assert logs.append(0, b"a", (1, 0, 0), 1).error == ErrorCode.INVALID_PRODUCER_EPOCH
    assert logs.append(0, b"a", (1, 1, 0), 1).error == ErrorCode.INVALID_TXN_STATE
    assert logs.append(0, b"a", (1, 1, 0), 0).error == ErrorCode.INVALID_TXN_STATE
    assert logs.entries(0) == []
    assert logs.append(0, b"a", (1, 1, 0), 2).error == 0


def test_sequences_continue_after_a_marker_of_the_same_epoch(logs: Logs) -> None:
    logs.append(0, b"a", (1, 0, 0), 1)
    logs.mark(0, 1, 0, 1, True)
    assert logs.append(0, b"a", (1, 0, 0), 2).stored == 0
    assert logs.append(0, b"b", (1, 0, 5), 2).error == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert logs.append(0, b"b", (1, 0, 1), 2).error == 0


def test_sequences_begin_again_behind_a_marker_that_raises_the_epoch(logs: Logs) -> None:
    logs.append(0, b"a", (1, 0, 0), 1)
    logs.mark(0, 1, 1, 1, True)
    assert logs.append(0, b"b", (1, 0, 1), 2).error == ErrorCode.INVALID_PRODUCER_EPOCH
    assert logs.append(0, b"b", (1, 1, 1), 2).error == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert logs.append(0, b"b", (1, 1, 0), 2).error == 0


def test_a_topic_that_is_another_one_takes_no_marker(logs: Logs) -> None:
    logs.append(0, b"a", (1, 0, 0), 1)
    logs.runner.command("DEL", "{korvet:t:0}:log")
    assert logs.mark(0, 1, 0, 1, True).error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert logs.begin(0, 1, 0, 1) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_native_entry_before_a_marker_is_passed(logs: Logs) -> None:
    logs.append(0, b"a", (1, 0, 0), 1)
    at = "*" if logs.mode == "dense" else "4000000000000-5"
    logs.runner.command("XADD", "korvet:t:0", at, "value", "native")
    assert logs.mark(0, 1, 0, 1, True).offset > logs.entries(0)[1][0]
    assert logs.committed(0) == [b"a", b"native"]


def test_an_end_without_the_open_number_returns_it_and_ends_nothing(logs: Logs) -> None:
    logs.append(0, b"a", (1, 4, 0), 7)
    assert (logs.close(1, 4, -1).transaction, logs.close(1, 4, 6).transaction) == (7, 7)
    assert (logs.stable(0), len(logs.entries(0))) == (0, 1)
    logs.append(0, b"plain")
    reply = logs.close(1, 4, 7)
    assert (reply.error, reply.transaction, reply.offset) == (0, -1, logs.entries(0)[-1][0])
    assert (logs.committed(0), logs.stable(0)) == ([b"plain"], reply.offset + 1)


def test_a_hanging_transaction_can_be_committed(logs: Logs) -> None:
    logs.append(0, b"a", (1, 4, 0), 7)
    assert logs.close(1, 5, 7, committed=1).offset > 0
    assert logs.committed(0) == [b"a"]
    assert logs.append(0, b"b", (1, 4, 1), 8).error == ErrorCode.INVALID_PRODUCER_EPOCH


def test_old_producers_and_coordinators_end_nothing(logs: Logs) -> None:
    logs.append(0, b"a", (1, 4, 0), 7)
    assert logs.close(1, 3, 7).error == ErrorCode.INVALID_PRODUCER_EPOCH
    assert logs.close(1, 4, 7, raised=1).error == ErrorCode.INVALID_PRODUCER_EPOCH
    assert logs.stable(0) == 0
    assert logs.close(1, 5, 7, raised=1, coordinator_epoch=-1).offset > 0
    fenced = logs.close(1, 5, 7, coordinator_epoch=-1)
    assert fenced.error == ErrorCode.TRANSACTION_COORDINATOR_FENCED
    logs.runner.command("DEL", "{korvet:t:0}:log")
    assert logs.close(1, 5, 7).error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_where_nothing_is_open_nothing_is_ended(logs: Logs) -> None:
    for _ in range(2):
        reply = logs.close(1, 5, -1)
        assert (reply.error, reply.transaction, reply.offset) == (0, -1, -1)
        assert logs.append(0, b"a", (1, 0, 0)).error == 0, "the epoch is still valid"


def test_a_transaction_is_ended_that_only_readers_know_of(logs: Logs) -> None:
    logs.append(0, b"a", (1, 0, 0), 1)
    logs.runner.command("HDEL", KEYS.partition("t", 0).producers, 1)
    assert logs.close(1, 0, -1).transaction == 0
    assert logs.close(1, 0, 0).offset > 0
    assert (logs.committed(0), logs.stable(0)) == ([], logs.entries(0)[-1][0] + 1)


def test_a_transaction_whose_end_was_lost_takes_no_records_of_the_next(logs: Logs) -> None:
    logs.append(0, b"lost", (1, 0, 0), 3)
    assert logs.append(0, b"next", (1, 1, 0), 4).error == ErrorCode.INVALID_TXN_STATE
    assert logs.begin(0, 1, 1, 4) == ErrorCode.INVALID_TXN_STATE
    assert logs.append(0, b"again", (1, 1, 0), 3).error == ErrorCode.INVALID_TXN_STATE
    assert logs.begin(0, 1, 1, 3) == ErrorCode.INVALID_TXN_STATE
    assert logs.mark(0, 1, 2, 4, False).offset > 0
    assert logs.append(0, b"next", (1, 2, 0), 5).error == 0
    assert logs.mark(0, 1, 3, 5, True).offset > 0
    assert logs.committed(0) == [b"next"]


def test_a_commit_commits_no_records_of_an_earlier_transaction_whose_end_was_lost(
    logs: Logs,
) -> None:
    logs.begin(0, 1, 0, 1)
    logs.append(0, b"a", (1, 0, 0), 0)
    # Redis has lost the marker of an abort, and that the next transaction has begun.
    assert logs.append(0, b"b", (1, 0, 1), 0).error == 0
    for _ in range(2):
        assert logs.mark(0, 1, 0, 2, True).error == ErrorCode.INVALID_TXN_STATE
    assert len(logs.entries(0)) == 2
    assert logs.mark(0, 1, 0, 2, False).offset >= 0
    assert logs.mark(0, 1, 0, 2, True).offset == -1
    assert logs.committed(0) == []
    logs.append(0, b"c", (1, 0, 2), 3)
    logs.mark(0, 1, 0, 3, True)
    assert logs.committed(0) == [b"c"]


def test_an_expired_producer_continues_in_its_next_transaction(logs: Logs) -> None:
    assert logs.begin(0, 1, 0, 8) == 0
    for number, code in ((0, "UNKNOWN_PRODUCER_ID"), (8, "OUT_OF_ORDER_SEQUENCE_NUMBER")):
        assert logs.append(0, b"a", (1, 0, 70), number).error == ErrorCode[code]
    assert logs.append(0, b"a", (1, 0, 70), EXPIRED_IN_TXN).error == 0
    assert logs.append(0, b"b", (1, 0, 71), 0).error == 0
    assert logs.append(0, b"c", (1, 0, 73), 0).error == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    logs.mark(0, 1, 0, 8, True)
    assert logs.committed(0) == [b"a", b"b"]


def test_an_expired_producer_continues_after_transactions_without_records(logs: Logs) -> None:
    logs.begin(0, 1, 0, 8)
    logs.mark(0, 1, 0, 8, False)
    logs.mark(1, 1, 0, 8, False)
    for partition in (0, 1):
        assert logs.begin(partition, 1, 0, 9) == 0
        reply = logs.append(partition, b"a", (1, 0, 70), 0)
        assert reply.error == ErrorCode.UNKNOWN_PRODUCER_ID
        assert logs.append(partition, b"a", (1, 0, 70), EXPIRED_IN_TXN).stored == 1


def test_a_producer_whose_epoch_a_marker_raised_is_not_expired(logs: Logs) -> None:
    logs.begin(0, 1, 0, 8)
    logs.mark(0, 1, 1, 8, False)
    logs.begin(0, 1, 1, 9)
    for number in (0, EXPIRED_IN_TXN):
        reply = logs.append(0, b"a", (1, 1, 70), number)
        assert reply.error == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert logs.append(0, b"a", (1, 1, 0), 0).error == 0


def test_an_expired_producer_needs_a_begun_transaction(logs: Logs) -> None:
    for number in (0, EXPIRED_IN_TXN):
        assert logs.append(0, b"a", (1, 0, 70), number).error == ErrorCode.INVALID_TXN_STATE


def test_a_transaction_whose_marker_could_not_be_written_is_open_still(logs: Logs) -> None:
    """A repeated end has to find the open transaction."""
    stream = KEYS.partition("t", 0).stream
    logs.append(0, b"a", (1, 0, 0), 1)
    logs.runner.command("RENAME", stream, "elsewhere")
    logs.runner.command("SET", stream, "no stream")
    with pytest.raises((ScriptError, ScriptFailed), match="WRONGTYPE"):
        logs.mark(0, 1, 0, 1, True)
    logs.runner.command("RENAME", "elsewhere", stream)
    assert logs.committed(0) == []
    assert logs.mark(0, 1, 0, 1, True).offset >= 0
    assert (logs.committed(0), logs.stable(0)) == ([b"a"], logs.entries(0)[-1][0] + 1)
