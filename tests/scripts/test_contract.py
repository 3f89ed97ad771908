"""Check the parser of headers: the parts it reads, and the headers it refuses."""

import pytest

from korvet.scripts.contract import ContractError, Row, parse_contract

HEADER = """\
--- group.join  version 3  writes
--- Add a member to the group, and store
--- what it requested.
---
--- KEYS     group      hash   state, generation
---          offset...  hash   what was committed,
---                            one a topic
--- ARGV     member     bytes  member id
---          timeout    int    ms
---          name...    bytes  protocol
---          data...    bytes  and its metadata
--- RETURNS  error      int    a lib.codes value
---          members    list   ids
--- REFUSES  UNKNOWN_MEMBER_ID ILLEGAL_GENERATION
---          GROUP_ID_NOT_FOUND
--- SIGNALS  REBALANCE_IN_PROGRESS
--- COST     O(names), at most 4 calls + 2 per name + 1 per key
--- NOTES    Why, and
---          what else.
local codes = require("lib.codes")
--- no header any more
"""
SHORT = """\
--- a.b  version 1  reads
--- Nothing changed.
---
--- COST  O(1), at most 1 call
return { 0 }
"""


def test_a_whole_header_is_read() -> None:
    contract = parse_contract(HEADER, "group.join")
    assert (contract.name, contract.version, contract.writes) == ("group.join", 3, True)
    assert contract.sentence.endswith("to the group, and store what it requested.")
    assert contract.keys == (
        Row("group", "hash", "state, generation"),
        Row("offset", "hash", "what was committed, one a topic", True),
    )
    assert [row.name for row in contract.args] == ["member", "timeout", "name", "data"]
    assert [row.repeated for row in contract.args] == [False, False, True, True]
    assert contract.returns[1] == Row("members", "list", "ids")
    assert contract.refuses == ("UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION", "GROUP_ID_NOT_FOUND")
    assert contract.signals == ("REBALANCE_IN_PROGRESS",)
    assert contract.notes == "Why, and what else."


def test_the_budget_counts_keys_and_repeated_rows() -> None:
    contract = parse_contract(HEADER, "group.join")
    assert contract.most_calls(key_count=1, arg_count=2) == 4 + 0 + 1
    assert contract.most_calls(key_count=3, arg_count=2 + 2 * 5) == 4 + 2 * 5 + 3


def test_a_budget_in_a_unit_for_people_is_not_counted() -> None:
    contract = parse_contract(SHORT.replace("1 call", "1 call + 1 per entry removed"), "a.b")
    assert contract.most_calls(0, 0) is None


def test_a_short_header_is_enough() -> None:
    contract = parse_contract(SHORT, "a.b")
    assert not contract.writes
    assert (contract.keys, contract.args, contract.returns) == ((), (), ())
    assert contract.most_calls(0, 0) == 1


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("version 3", "v3", "a/b.lua:1: the first line is"),
        ("  writes", "  write", "a/b.lua:1: the first line is"),
        ("group.join", "group.leave", "the header says group.leave, the path says group.join"),
        (
            "--- Add a member to the group, and store\n",
            "---\n",
            "the second line is a sentence",
        ),
        ("hash   state", "table  state", "a type of KEYS is one of hash"),
        (
            "bytes  member id",
            "str    member id",
            "a type of ARGV is one of bytes, id, int, text, not str",
        ),
        ("bytes  member id", "bytes member id", "a row is `name  type  meaning`"),
        ("member     bytes", "Member     bytes", "`Member` is no name"),
        ("timeout    int  ", "member     int  ", "a name is repeated in ARGV"),
        ("---          data...    ", "---          data       ", "data comes after a repeated row"),
        ("UNKNOWN_MEMBER_ID", "unknown", "REFUSES holds names of errors, not `unknown`"),
        ("at most 4 calls", "few calls", "COST says `at most N calls`"),
        ("--- NOTES", "--- ARGV ", "ARGV is repeated"),
        ("--- NOTES   ", "--- SEE ALSO", "belongs to no section"),
        ("--- SIGNALS  R", "--- R", "belongs to no section"),
    ],
)
def test_a_header_that_breaks_the_grammar_is_refused(old: str, new: str, sentence: str) -> None:
    assert old in HEADER
    with pytest.raises(ContractError) as caught:
        parse_contract(HEADER.replace(old, new, 1), "group.join")
    assert sentence.removeprefix("a/b.lua") in str(caught.value)


def test_sections_keep_their_order() -> None:
    swapped = SHORT.replace("--- COST", "--- NOTES  Why.\n--- COST")
    with pytest.raises(ContractError, match="COST comes before NOTES"):
        parse_contract(swapped, "a.b")


def test_a_file_without_a_header_is_refused() -> None:
    with pytest.raises(ContractError, match=r"a/b\.lua:1: the first line is"):
        parse_contract("return { 0 }\n", "a.b")
