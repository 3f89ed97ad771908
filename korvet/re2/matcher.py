"""Patterns of names: RE2's syntax, as Kafka's brokers take it, matched in linear time.

Rules
- Nothing looks back or ahead, so no pattern and no name can keep a broker busy: time is the length
  of the name times the size of the pattern at most.
- Only characters that a name may hold can match, a topic's unless told otherwise; a class is what
  it holds of these.
- The whole name has to match. So `s`, `m`, `U` and lazy repetitions are read, and change nothing.
"""

from functools import lru_cache

from korvet.re2.parser import CHARACTERS, WORD, BadPattern, SyntaxNode, parse

__all__ = ["BadPattern", "Pattern", "compiled"]

MOST_STATES = 20_000
MOST_STEPS = 50_000
"""Steps one pattern remembers."""

ACCEPT = -1
START, END = "start", "end"


class Pattern:
    """A pattern that can be asked for names."""

    def __init__(self, text: str, characters: frozenset[str] = CHARACTERS) -> None:
        self._sets: list[frozenset[str]] = []
        self._outs: list[list[int]] = []
        self._ats: dict[int, str] = {}
        self._steps: dict[tuple[frozenset[int], str, str], frozenset[int]] = {}
        self._first = frozenset((self._build(parse(text, characters), ACCEPT),))

    def matches(self, name: str) -> bool:
        """Whether the whole name is one of the pattern's."""
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
            if len(self._steps) >= MOST_STEPS:
                self._steps.clear()
            self._steps[key] = found
        return found

    def _closure(self, states: frozenset[int], before: str, after: str) -> set[int]:
        """The states reached without reading anything, between these two characters."""
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
        """The state that begins `node` and goes on with `after`."""
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
def compiled(text: str) -> Pattern:
    """The pattern, or BadPattern."""
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
