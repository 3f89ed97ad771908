"""Where Korvet's answer is another than Kafka's, and why."""

from copy import deepcopy
from typing import Any, NamedTuple

REFUSED = {"error_code": 42, "error_message": True, "resource_type": 2, "resource_name": "t"}


class Decision(NamedTuple):
    """What Korvet says at one place of a case's answers; an empty place is all of them."""

    case: str
    place: tuple[str | int, ...]
    value: Any


CRASHES = (
    # Apache Kafka meets an error of its own there (-1, or no answer at all). Korvet says what is
    # wrong.
    Decision(
        "DescribeTopicPartitions.partitions_described_of_illegal_names",
        (),
        [["", 17], ["not legal", 17]],
    ),
    Decision("AlterConfigs.a_resource_named_twice", (), {"responses": [REFUSED, REFUSED]}),
    *(
        Decision(
            "IncrementalAlterConfigs.operations_that_make_no_sense",
            (row, "responses", 0, "error_code"),
            42,
        )
        for row in (0, 1)
    ),
)

SHARES = (
    # Kafka meets an error of its own there (-1), and counts the request. Korvet says what is wrong.
    *(Decision("ShareFetch.records_at_most", (row,), [42, 0, []]) for row in (4, 5)),
)

OTHERWISE = (
    # Kafka keeps any setting of a broker for plugins to read. Nobody reads one here: it is refused.
    Decision(
        "IncrementalAlterConfigs.changes_of_brokers_that_cannot_be",
        (0, "responses", 0),
        {"error_code": 40, "error_message": True, "resource_type": 4, "resource_name": ""},
    ),
    # Kafka says OUT_OF_ORDER_SEQUENCE_NUMBER of a batch older than the last five, and its producer
    # gives up. It was stored: DUPLICATE_SEQUENCE_NUMBER, which is success to a producer.
    *(
        Decision("Produce.a_batch_sent_again_after_five_others", (row,), [46, "none"])
        for row in (7, 8)
    ),
    # Kafka's lag of a share group that starts after the end of the log is negative.
    *(
        Decision(
            "AlterShareGroupOffsets.a_share_group_moved",
            (row, "groups", 0, "topics", 0, "partitions", number, "lag"),
            0,
        )
        for row, number in ((1, 0), (1, 1), (3, 0))
    ),
    # Kafka takes a producer with an epoch of -1, which InitProducerId gives nobody.
    Decision("Produce.numbers_below_nothing", (2,), [87, "none"]),
)

DECISIONS = (*CRASHES, *SHARES, *OTHERWISE)

NOT_AS_KAFKA = frozenset(
    {
        # Kafka fails (-1). Here the last metadata of a protocol named twice counts.
        "JoinGroup.a_protocol_named_twice",
        # To Kafka the empty text is a name like any other, though its own client refuses to send
        # it. Here it means that there is none.
        "JoinGroup.an_instance_without_a_name",
    }
)
"""Cases whose whole answer is another; `test_as_kafka` says what it is."""


def decided(name: str, recorded: Any) -> Any:
    """What Korvet has to answer where Kafka answered that."""
    wanted = deepcopy(recorded)
    for decision in DECISIONS:
        if decision.case == name:
            wanted = _put(wanted, decision.place, decision.value)
    return wanted


def _put(told: Any, place: tuple[str | int, ...], value: Any) -> Any:
    if not place:
        return value
    told[place[0]] = _put(told[place[0]], place[1:], value)
    return told


def without_reasons(told: Any, wanted: Any) -> Any:
    """The answer without the reasons it gives for refusals where Kafka gives only a code."""
    if isinstance(told, list | tuple) and isinstance(wanted, list):
        pairs = zip(told, wanted, strict=False)
        return [without_reasons(*pair) for pair in pairs] + list(told[len(wanted) :])
    if isinstance(told, dict) and isinstance(wanted, dict):
        return {
            name: without_reasons(value, wanted.get(name))
            for name, value in told.items()
            if name != "error_message" or name in wanted
        }
    return told
