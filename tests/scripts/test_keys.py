"""Check Redis keys: built in one module, related keys in one slot, all documented on one page."""

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from redis.crc import key_slot

from docs.generate.keys import every_key, writers
from korvet.scripts.call import Call, decode_group, encode_group
from korvet.scripts.keys import Keys
from tests.support.script_calls import sample_calls

PAGE = (Path(__file__).parents[2] / "docs" / "keys.md").read_text()
KNOWN = list(every_key())
KEYS = [key for key in KNOWN if key.type != "channel"]

anything = st.text(max_size=30)
topics = st.from_regex(r"[a-zA-Z0-9._-]{1,20}", fullmatch=True)
few = settings(max_examples=50, deadline=None, derandomize=True, database=None)


def slot(key: str) -> int:
    return int(key_slot(key.encode()))


def pattern(text: str) -> re.Pattern[str]:
    """Return a pattern of the keys that a row of the page describes."""
    return re.compile(re.sub(r"<\w+>", "[^:{}]*", re.escape(text).replace("<", "<")))


def test_every_key_has_a_type_of_redis_and_a_row() -> None:
    assert {key.type for key in KEYS} <= {"hash", "stream", "sorted set", "set", "string", "list"}
    rows = [line for line in PAGE.splitlines() if line.startswith("| `")]
    for key in KNOWN:
        assert sum(line.startswith(f"| `{key.text}` |") for line in rows) >= 1, key.text
    assert len({key.text for key in KEYS}) == len(KEYS)


def test_every_key_is_written_by_a_script() -> None:
    assert [key.text for key in KEYS if not writers(key.name)] == []


def test_the_page_names_only_keys_that_exist() -> None:
    reported = set(re.findall(r"^\| `([^`]+)` \|", PAGE, re.MULTILINE))
    assert reported == {key.text for key in KNOWN}


@pytest.mark.parametrize("call", sample_calls(), ids=lambda call: call.script.name)
def test_a_script_touches_only_keys_of_the_page(call: Call[Any]) -> None:
    patterns = [pattern(key.text) for key in KEYS]
    for key in call.keys:
        assert any(one.fullmatch(key) for one in patterns), key


@few
@given(topic=topics, partition=st.integers(0, 9999))
def test_a_partitions_keys_share_the_slot_of_its_stream(topic: str, partition: int) -> None:
    keys = Keys().partition(topic, partition)
    assert keys.stream == f"korvet:{topic}:{partition}"
    assert {slot(key) for key in (*keys.all, keys.channel)} == {slot(keys.stream)}


@few
@given(group=anything)
def test_a_groups_keys_share_a_slot_whatever_its_id_holds(group: str) -> None:
    keys = Keys().group(group)
    texts = [getattr(keys, name) for name in keys.__struct_fields__]
    assert len({slot(text) for text in texts}) == 1
    assert len(set(texts)) == len(texts)
    for text in texts:
        assert text.count("{") == text.count("}") <= 1
        assert text.isprintable() and text.isascii()


@few
@given(group=anything)
def test_an_encoded_group_id_is_decoded_to_itself(group: str) -> None:
    assert decode_group(encode_group(group)) == group


@few
@given(st.lists(st.one_of(anything, st.text(alphabet="%:{}aB7\x00é", max_size=8)), unique=True))
def test_no_two_groups_share_a_key(groups: list[str]) -> None:
    assert len({Keys().group_offsets(group) for group in groups}) == len(groups)


@few
@given(topic=topics, group=anything, partition=st.integers(0, 99))
def test_no_group_can_reach_into_a_topic(topic: str, group: str, partition: int) -> None:
    of_topic = Keys().partition(topic, partition)
    of_group = Keys().group(group)
    assert {*of_topic.all, of_topic.channel}.isdisjoint(
        getattr(of_group, name) for name in of_group.__struct_fields__
    )


def test_namespaces_share_nothing() -> None:
    one, other = Keys("one"), Keys("other")
    assert one.topics() != other.topics()
    assert one.partition("t", 0).stream != other.partition("t", 0).stream
    assert one.group_offsets("g") != other.group_offsets("g")
