"""Patterns of names: RE2's syntax, as Kafka's brokers take it, matched in linear time.

Rules
- There is no backtracking, so no pattern and no name can keep a broker busy: the time is at most
  the length of the name times the size of the pattern.
- Only characters that a name may hold can match, by default those of topic names; a class is
  reduced to these.
- The whole name has to match. So `s`, `m`, `U` and lazy repetitions are accepted without effect.
"""

from functools import lru_cache

from korvet.re2.parser import CHARACTERS, WORD, BadPattern, SyntaxNode, parse

__all__ = ["BadPattern", "Pattern", "compile_pattern"]

MOST_STATES = 20_000
MAX_CACHED_STEPS = 50_000
"""Max cached steps of one pattern."""

ACCEPT = -1
START, END = "start", "end"


class Pattern:
    """A pattern to match names with."""

    def __init__(self, text: str, characters: frozenset[str] = CHARACTERS) -> None:
        self._sets: list[frozenset[str]] = []
        self._outs: list[list[int]] = []
        self._ats: dict[int, str] = {}
        self._steps: dict[tuple[frozenset[int], str, str], frozenset[int]] = {}
        self._first = frozenset((self._build(parse(text, characters), ACCEPT),))

    def matches(self, name: str) -> bool:
        """Return whether the pattern matches the whole name."""
        states, before = self._first, START
        for char in name:
            states = self._step(states, before, char)
            if not states:
                return False
            before = char
        return ACCEPT in self._closure(states, before, END)

    def _step(self, states: frozenset[int], before: str, char: str) -> frozenset[int]:
        key = (states, _kind(before), char)
        found = self._steps.get(key)
        if found is None:
            reached = self._closure(states, before, char)
            found = frozenset(
                self._outs[state][0]
                for state in reached
                if state != ACCEPT and char in self._sets[state]
            )
            if len(self._steps) >= MAX_CACHED_STEPS:
                self._steps.clear()
            self._steps[key] = found
        return found

    def _closure(self, states: frozenset[int], before: str, after: str) -> set[int]:
        """Return the states reached without reading a character, between these two characters."""
        seen: set[int] = set()
        left = list(states)
        while left:
            state = left.pop()
            if state in seen:
                continue
            seen.add(state)
            if state == ACCEPT or self._sets[state]:
                continue
            if state not in self._ats or _holds(self._ats[state], before, after):
                left += self._outs[state]
        return seen

    def _add(self, outs: list[int], chars: frozenset[str] = frozenset()) -> int:
        if len(self._outs) >= MOST_STATES:
            raise BadPattern("The pattern is too large.")
        self._sets.append(chars)
        self._outs.append(outs)
        return len(self._outs) - 1

    def _build(self, node: SyntaxNode, after: int) -> int:
        """Return the state that begins `node` and continues with `after`."""
        if node.kind == "set":
            return self._add([after], node.chars) if node.chars else self._add([])
        if node.kind == "at":
            state = self._add([after])
            self._ats[state] = node.place
            return state
        if node.kind == "either":
            return self._add([self._build(part, after) for part in node.parts])
        if node.kind == "repeat":
            return self._repeat(node, after)
        for part in reversed(node.parts):
            after = self._build(part, after)
        return after

    def _repeat(self, node: SyntaxNode, after: int) -> int:
        (part,) = node.parts
        state = after
        if node.most is None:
            state = self._add([after])
            self._outs[state].append(self._build(part, state))
        else:
            for _ in range(node.most - node.least):
                state = self._add([self._build(part, state), after])
        for _ in range(node.least):
            state = self._build(part, state)
        return state


@lru_cache(maxsize=256)
def compile_pattern(text: str) -> Pattern:
    """Compile the pattern. Raises BadPattern."""
    return Pattern(text)


def _kind(char: str) -> str:
    if char in (START, END):
        return char
    return "word" if char in WORD else "other"


def _holds(place: str, before: str, after: str) -> bool:
    if place == START:
        return before == START
    if place == END:
        return after == END
    edge = (_kind(before) == "word") != (_kind(after) == "word")
    return edge == (place == "edge")


assert not CHARACTERS & {START, END}
