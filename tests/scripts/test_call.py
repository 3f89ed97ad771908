"""Check replies that fit their call, and replies that do not."""

from enum import IntEnum
from pathlib import Path

import pytest

from korvet.scripts.call import Call, ContractBroken, Reply, Script

ROOT = Path(__file__).parent.parent / "lua" / "fixtures" / "rules"


class Number(IntEnum):
    NONE = 0
    ONE = 1


class Found(Reply):
    error: Number
    rows: list[tuple[bytes, int]]
    rest: list[int | bytes]


CALL = Call(Script("rule.kept", Found, ROOT), ("key",), (1,))


def test_a_reply_becomes_its_type() -> None:
    reply = CALL.decode([1, [[b"a", 1], [b"b", 2]], [b"x", 3]])
    assert reply == Found(Number.ONE, [(b"a", 1), (b"b", 2)], [b"x", 3])
    assert reply.error is Number.ONE


@pytest.mark.parametrize(
    "raw",
    [
        [0, []],
        [0, [], [], 1],
        [0, [], None],
        [0, None, []],
        [7, [], []],
        [b"0", [], []],
        [0, [[b"a"]], []],
        [0, [["a", 1]], []],
        None,
        5,
        b"OK",
    ],
)
def test_a_reply_that_does_not_fit_is_a_broken_contract(raw: object) -> None:
    with pytest.raises(ContractBroken, match=r"reply of rule\.kept v1: "):
        CALL.decode(raw)


def test_calls_and_replies_are_frozen() -> None:
    with pytest.raises(AttributeError):
        CALL.keys = ()  # type: ignore[misc]
    reply = CALL.decode([0, [], []])
    with pytest.raises(AttributeError):
        reply.error = Number.ONE  # type: ignore[misc]


def test_a_script_has_its_text_version_and_mode() -> None:
    script = CALL.script
    assert script.text.startswith("-- korvet rule.kept v1")
    assert len(script.sha1) == 40
    assert (script.version, script.writes) == (1, True)
    assert [row.name for row in script.contract.keys] == ["mine"]
