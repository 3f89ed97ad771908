"""Responses of Korvet that differ from Kafka's, with the reasons."""

from copy import deepcopy
from typing import Any, NamedTuple

REFUSED = {"error_code": 42, "error_message": True, "resource_type": 2, "resource_name": "t"}


class Decision(NamedTuple):
    """Korvet's value at one place of a case's responses; an empty place is all of them."""

    case: str
    place: tuple[str | int, ...]
    value: Any


CRASHES = (
    # Apache Kafka fails with an internal error there (-1, or no response). Korvet returns the error
    # of the request.
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
    # Kafka fails with an internal error there (-1), and counts the request. Korvet returns the
    # error of the request.
    *(Decision("ShareFetch.records_at_most", (row,), [42, 0, []]) for row in (4, 5)),
)

OTHERWISE = (
    # Kafka keeps any setting of a broker for plugins to read. Korvet has no plugins: it refuses
    # unknown settings.
    Decision(
        "IncrementalAlterConfigs.changes_of_brokers_that_cannot_be",
        (0, "responses", 0),
        {"error_code": 40, "error_message": True, "resource_type": 4, "resource_name": ""},
    ),
    # Kafka returns OUT_OF_ORDER_SEQUENCE_NUMBER for a batch older than the last five, and its
    # producer fails. The batch was stored: Korvet returns DUPLICATE_SEQUENCE_NUMBER, which is
    # success to a producer.
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
    # Kafka accepts a producer with an epoch of -1, which InitProducerId never returns.
    Decision("Produce.numbers_below_nothing", (2,), [87, "none"]),
)

DECISIONS = (*CRASHES, *SHARES, *OTHERWISE)

NOT_AS_KAFKA = frozenset(
    {
        # Kafka fails (-1). Here the last metadata of a protocol named twice counts.
        "JoinGroup.a_protocol_named_twice",
        # Kafka accepts the empty string as an instance id, though its Java client refuses to send
        # it. In Korvet the empty string means no instance id.
        "JoinGroup.an_instance_without_a_name",
    }
)
"""Cases whose whole response differs; `test_as_kafka` has separate tests of them."""


def decided(name: str, recorded: Any) -> Any:
    """Return the response expected of Korvet for Kafka's recorded one."""
    wanted = deepcopy(recorded)
    for decision in DECISIONS:
        if decision.case == name:
            wanted = _put(wanted, decision.place, decision.value)
    return wanted


def _put(answer: Any, place: tuple[str | int, ...], value: Any) -> Any:
    if not place:
        return value
    answer[place[0]] = _put(answer[place[0]], place[1:], value)
    return answer


def without_reasons(answer: Any, wanted: Any) -> Any:
    """Remove error messages from the response where Kafka returns only an error code."""
    if isinstance(answer, list | tuple) and isinstance(wanted, list):
        pairs = zip(answer, wanted, strict=False)
        return [without_reasons(*pair) for pair in pairs] + list(answer[len(wanted) :])
    if isinstance(answer, dict) and isinstance(wanted, dict):
        return {
            name: without_reasons(value, wanted.get(name))
            for name, value in answer.items()
            if name != "error_message" or name in wanted
        }
    return answer
