"""Check lib.num: integers as text, with all digits."""

from hypothesis import example, given
from hypothesis import strategies as st

from korvet.testing.lua_sandbox import library

text = library("lib.num")[b"text"]


@given(st.integers(-(2**53), 2**53))
@example(100_000_000_000_000)
@example(2**53)
@example(1234567890123 << 10)
def test_an_integer_keeps_every_digit(n: int) -> None:
    assert text(n) == b"%d" % n
