"""Patterns of names: RE2's syntax, whole names, linear time."""

import re
from random import Random

import pytest

from korvet.re2.matcher import BadPattern, Pattern

# No repetition of a group: Python's own engine takes ages over some of those.
ATOMS = [
    *("a", "b", ".", r"\.", "-", "_", "[a-c]", "[^a]", r"\d", r"\w", r"[\d-]", "(a|)", "(?:a|b)"),
    *("a*", "b+", ".?", "[^b]{1,2}", r"\w{2}", ".*?", r"\b", r"\B", "^", "$", "(?i:A)"),
]


@pytest.mark.parametrize("seed", range(4))
def test_a_pattern_means_what_it_means_elsewhere(seed: int) -> None:
    random = Random(seed)
    for _ in range(200):
        words = [random.choice(ATOMS) for _ in range(random.randrange(1, 6))]
        text = "".join(words) + random.choice(("", "|" + random.choice(ATOMS)))
        ours, theirs = Pattern(text), re.compile(text)
        for _ in range(20):
            name = "".join(random.choices("abA1._-c", k=random.randrange(1, 6)))
            assert ours.matches(name) == bool(theirs.fullmatch(name)), (text, name)


@pytest.mark.parametrize(
    ("text", "yes", "no"),
    [
        ("", "", "a"),
        ("orders-.*", "orders-eu", "my-orders-eu"),
        ("^orders$", "orders", "orders-"),
        ("[[:alpha:]]+[[:digit:]]", "ab1", "ab"),
        ("[[:^alpha:]-]+", "1-", "a"),
        (r"\p{Lu}\pN\P{L}", "A1.", "a1."),
        (r"\Qa.b\E+", "a.bb", "a-b"),
        (r"\x41\x{42}\103\052*", "ABC", "ABD"),
        ("(?P<kind>a|b)(?<place>c)", "ac", "cc"),
        ("(?i)ab(?-i)c", "ABc", "ABC"),
        ("(?is-m:a)b", "Ab", "AB"),
        ("[]a]+[a-]", "a-", "b"),
        ("a{2}b{1,}c{0,1}", "aabb", "ab"),
        (r"\Aa\z", "a", "b"),
        (r"(a|b\b)*", "ab", "ba"),
        ("(|a)*b", "aab", "a"),
        ("ü|a", "a", "b"),
    ],
)
def test_the_syntax_is_that_of_re2(text: str, yes: str, no: str) -> None:
    pattern = Pattern(text)
    assert pattern.matches(yes)
    assert not pattern.matches(no)


@pytest.mark.parametrize(
    "text",
    [
        *("(", ")", "a)", "[", "[a", "[b-a]", "*", "a**", "a|*", "a*+", "x{2}{3}", "a{1001}"),
        *("a{2,1}", "(a{100}){100}", "\\", r"\y", r"(a)\1", "a(?=b)", "a(?!b)", "(?<=a)b", "(?>a)"),
        *(r"\p{Nobody}", "[[:nobody:]]", "(?P<n>a)(?P<n>b)", "(?x)a", r"\x{110000}", r"[a-\d]"),
        *("(" * 200 + ")" * 200, "((a{50}b){20}|" * 60 + ")" * 60),
    ],
)
def test_what_is_no_pattern_is_refused(text: str) -> None:
    with pytest.raises(BadPattern):
        Pattern(text)


@pytest.mark.parametrize("text", ["(a+)+c", "(a|a)*c", "(a*)*c", "(.*a){20}c", "(a?){250}a{200}c"])
def test_no_pattern_takes_long_over_a_name(text: str) -> None:
    assert not Pattern(text).matches("a" * 249)


@pytest.mark.parametrize(
    ("text", "yes", "no"),
    [
        (".*", "a b:ü", None),
        ("a[^b]c", "a:c", "abc"),
        ("a:b|ü+", "üü", "ab"),
        ("[[:punct:]]+", ":!", ":a"),
        (r"\p{Ll}+\pZ", "aü ", "AÜ "),
        (r"\P{L}\D\W\S", "::::", "aaaa"),
        ("[!-/]+", "!", ":"),
        (r"(?i)Ü\x{fc}", "Üü", "uu"),
    ],
)
def test_names_of_any_characters_can_be_matched(text: str, yes: str, no: str | None) -> None:
    pattern = Pattern(text, frozenset(yes + (no or "")))
    assert pattern.matches(yes)
    assert no is None or not pattern.matches(no)
