"""Check lua/share: dead letters keep their number until they are copied."""

from korvet.base.errors import ErrorCode
from korvet.share.service import Acknowledge
from tests.lua.partition import ID, KEYS, OTHER_ID, Part
from tests.lua.share import Group
from tests.support.store_runners import Runner

ACCEPT, RELEASE, REJECT, GAP = (
    Acknowledge.ACCEPT,
    Acknowledge.RELEASE,
    Acknowledge.REJECT,
    Acknowledge.GAP,
)
REJECTED, DELIVERED_TOO_OFTEN = 1, 2


def group_in(runner: Runner, records: int = 10, **words: int) -> Group:
    part = Part(runner, mode="dense").create()
    part.append(records)
    return Group(part, **{"dead_letters": 1, **words})


def test_rejected_records_are_dead_letters_and_gaps_are_not(runner: Runner) -> None:
    group = group_in(runner)
    group.acquire("m", (0, 9))
    group.acknowledge("m", (0, 1, ACCEPT), (2, 3, REJECT), (4, 4, GAP), (6, 6, REJECT))
    assert group.list_dead_letters(producer_id=9) == (
        9,
        [(0, 2, 3, 1, REJECTED), (2, 6, 6, 1, REJECTED)],
    )
    assert group.describe().dead_letters == 3


def test_the_last_delivery_makes_a_dead_letter(runner: Runner) -> None:
    group = group_in(runner, limit=2)
    for _ in range(2):
        group.acquire("m", (0, 0))
        group.acknowledge("m", (0, 0, RELEASE))
    assert group.list_dead_letters()[1] == [(0, 0, 0, 2, DELIVERED_TOO_OFTEN)]


def test_a_group_without_a_queue_has_no_dead_letters(runner: Runner) -> None:
    group = group_in(runner, dead_letters=0)
    group.acquire("m", (0, 9))
    group.acknowledge("m", (0, 9, REJECT))
    assert group.list_dead_letters() == (0, [])
    assert group.counts() == (10, 10, 0, 0, 0, 10)


def test_the_first_producer_id_stays(runner: Runner) -> None:
    group = group_in(runner)
    group.acquire("m", (0, 9))
    assert group.list_dead_letters()[0] == 0
    assert group.list_dead_letters(producer_id=3)[0] == 3
    assert group.list_dead_letters(producer_id=4)[0] == 3


def test_copied_letters_go_and_a_repeated_call_removes_no_more(runner: Runner) -> None:
    group = group_in(runner)
    group.acquire("m", (0, 9))
    group.acknowledge("m", (0, 4, REJECT))
    assert group.copied(2) == 3
    assert group.list_dead_letters()[1] == [(2, 2, 4, 1, REJECTED)]
    assert group.copied(1) == 3
    group.acknowledge("m", (5, 5, REJECT))
    assert group.list_dead_letters()[1] == [(2, 2, 4, 1, REJECTED), (5, 5, 5, 1, REJECTED)]
    assert group.list_dead_letters(most=1)[1] == [(2, 2, 4, 1, REJECTED)]
    assert group.copied(100) == 0
    assert group.list_dead_letters()[1] == []
    group.acknowledge("m", (6, 6, REJECT))
    assert group.list_dead_letters()[1] == [(6, 6, 6, 1, REJECTED)]


def test_letters_outlive_a_reset_and_the_log_start_but_not_a_deletion(runner: Runner) -> None:
    group = group_in(runner)
    group.acquire("m", (0, 9))
    group.acknowledge("m", (0, 1, REJECT))
    group.list_dead_letters(producer_id=5)
    group.part.truncate(8)
    group.probe()
    runner.run(KEYS.partition(group.part.topic, 0, ID).share_reset(group="g", offset=9))
    assert group.list_dead_letters() == (5, [(0, 0, 1, 1, REJECTED)])
    assert group.counts()[:2] == (9, 9)
    runner.run(KEYS.partition(group.part.topic, 0, ID).share_delete(group="g"))
    assert group.list_dead_letters() == (0, [])
    assert group.rows() == []


def test_letters_of_another_topic_of_the_name_are_refused(runner: Runner) -> None:
    part = Part(runner, mode="dense")
    place = KEYS.partition(part.topic, 0, OTHER_ID)
    for error in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID):
        letters = place.share_dead_letters(group="g", producer_id=0, most=1)
        assert runner.run(letters).error == error
        assert runner.run(place.share_dead_letters_copied(group="g", to=1)).error == error
        if error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            part.create()
