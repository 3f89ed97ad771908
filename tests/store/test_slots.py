"""Check slots and redirections in the syntax of Redis Cluster."""

import pytest

from korvet.scripts.keys import Keys
from korvet.store.slots import (
    Redirect,
    parse_redirect,
    parse_slots,
    slot_of_command,
    slot_of_key,
)


def test_a_partition_is_in_one_slot() -> None:
    k = Keys().partition("orders", 0)
    slots = {slot_of_key(key) for key in (k.stream, k.log, k.index, k.producers)}
    assert len(slots) == 1
    assert slot_of_key("foo") == 12182


@pytest.mark.parametrize(
    ("command", "key"),
    [
        (("GET", "foo"), "foo"),
        ((b"hget", b"foo", "x"), "foo"),
        (("SET", memoryview(b"foo"), 1), "foo"),
        (("XINFO", "STREAM", "foo"), "foo"),
        (("XREAD", "COUNT", 1, "STREAMS", "foo", "0"), "foo"),
        (("EVAL", "return 1", 1, "foo"), "foo"),
        (("EVAL", "return 1", 0, "foo"), None),
        (("PING",), None),
        (("SCRIPT", "LOAD", "x"), None),
        (("PUBLISH", "foo", "x"), None),
    ],
)
def test_the_slot_of_a_command_is_that_of_its_first_key(
    command: tuple[str | bytes | int, ...], key: str | None
) -> None:
    assert slot_of_command(command) == (slot_of_key(key) if key else None)


@pytest.mark.parametrize(
    ("message", "redirect"),
    [
        ("MOVED 3999 127.0.0.1:6381", Redirect(False, 3999, "127.0.0.1", 6381)),
        ("ASK 1 ::1:7", Redirect(True, 1, "::1", 7)),
        ("MOVED 5 :6381", Redirect(False, 5, "asked", 6381)),
        ("CLUSTERDOWN Hash slot not served", None),
        ("ERR MOVED", None),
    ],
)
def test_a_redirection_is_read(message: str, redirect: Redirect | None) -> None:
    assert parse_redirect(message, "asked") == redirect


def test_a_node_without_a_name_is_at_the_host_that_was_asked() -> None:
    reply = [[0, 5, [b"", 1, b"id"]], [6, 9, [None, 2, b"id"]], [10, 12, [b"h", 3, b"id"], []]]
    assert parse_slots(reply, "asked") == [
        (0, 5, "asked", 1),
        (6, 9, "asked", 2),
        (10, 12, "h", 3),
    ]
