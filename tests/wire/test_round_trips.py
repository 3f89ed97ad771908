"""Check that an encoded value decodes to the same value, in every version of every message."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from korvet.wire.layout import Message
from korvet.wire.schema import decode, encode, encode_parts
from tests.wire.values import CLASSES, a_message, case_id


@pytest.mark.parametrize("cls", CLASSES, ids=case_id)
@settings(max_examples=15, deadline=None, derandomize=True, database=None)
@given(data=st.data(), random=st.randoms(use_true_random=False))
def test_every_message_survives_a_round_trip_in_every_version(
    cls: type[Message], data: st.DataObject, random: Random
) -> None:
    version = data.draw(st.integers(*cls.__message__.versions))
    value = a_message(cls, version, random)
    encoded = encode(value, version)
    assert decode(cls, encoded, version) == value
    assert decode(cls, bytearray(b"xyz" + encoded), version, offset=3) == value
    assert decode(cls, memoryview(encoded), version) == value
    assert b"".join(encode_parts(decode(cls, encoded, version), version)) == encoded
