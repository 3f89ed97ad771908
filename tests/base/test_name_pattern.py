"""Check patterns of names: RE2's syntax, whole names, linear time."""

import pytest

from korvet.base.name_pattern import BadPattern, NamePattern


@pytest.mark.parametrize(
    ("text", "yes", "no"),
    [
        ("", "", "a"),
        ("orders-.*", "orders-eu", "my-orders-eu"),
        ("^orders$", "orders", "orders-"),
        ("[[:alpha:]]+[[:digit:]]", "ab1", "ab"),
        (r"\p{Lu}\pN\P{L}", "A1.", "a1."),
        (r"\Qa.b\E+", "a.bb", "a-b"),
        ("(?P<kind>a|b)(?<place>c)", "ac", "cc"),
        ("(?i)ab(?-i)c", "ABc", "ABC"),
        ("[]a]+[a-]", "a-", "b"),
        (r"(a|b\b)*", "ab", "ba"),
        ("(|a)*b", "aab", "a"),
        ("a[^b]c", "a:c", "abc"),
        (r"\p{Ll}+\pZ", "aü ", "AÜ "),
    ],
)
def test_a_pattern_matches_whole_names(text: str, yes: str, no: str) -> None:
    pattern = NamePattern(text)
    assert pattern.matches(yes)
    assert not pattern.matches(no)


@pytest.mark.parametrize(
    "text",
    [
        "(",
        ")",
        "a)",
        "[",
        "[b-a]",
        "*",
        "a**",
        "a|*",
        "a*+",
        "x{2}{3}",
        "a{1001}",
        "a{2,1}",
        "(a{100}){100}",
        "\\",
        r"\y",
        r"(a)\1",
        "a(?=b)",
        "(?<=a)b",
        "(?>a)",
        r"\p{Missing}",
        "[[:missing:]]",
        "(?x)a",
        r"\x{110000}",
        r"[a-\d]",
        "(" * 500 + "a{1000}" + ")" * 500 + "{1000}",
    ],
)
def test_what_is_no_pattern_is_refused_with_a_reason(text: str) -> None:
    with pytest.raises(BadPattern, match=r"is not a pattern of RE2: [a-z]"):
        NamePattern(text)


@pytest.mark.parametrize("text", ["(a+)+c", "(a|a)*c", "(a*)*c", "(.*a){20}c", "(a?){250}a{200}c"])
def test_no_pattern_takes_long_over_a_name(text: str) -> None:
    assert not NamePattern(text).matches("a" * 249)
