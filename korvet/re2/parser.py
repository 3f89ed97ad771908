"""The syntax of RE2 parsed into a tree, over the characters of names."""

import re
import string
import unicodedata

import msgspec

CHARACTERS = frozenset(string.ascii_letters + string.digits + "._-")
"""The characters of topic names."""
WORD = frozenset(string.ascii_letters + string.digits + "_")
MOST_REPEATS = 1000
DEEPEST = 100

_DIGITS, _LETTERS = frozenset(string.digits), frozenset(string.ascii_letters)
_NOTHING: frozenset[str] = frozenset()
_ASCII = frozenset(map(chr, range(128)))
_PUNCTUATION = frozenset(string.punctuation)
_PERL = {"d": _DIGITS, "w": WORD, "s": frozenset(" \t\n\r\f")}
_POSIX = {
    "alnum": _LETTERS | _DIGITS,
    "alpha": _LETTERS,
    "ascii": _ASCII,
    "blank": frozenset(" \t"),
    "cntrl": frozenset(char for char in _ASCII if unicodedata.category(char) == "Cc"),
    "digit": _DIGITS,
    "graph": _LETTERS | _DIGITS | _PUNCTUATION,
    "lower": frozenset(string.ascii_lowercase),
    "print": _LETTERS | _DIGITS | _PUNCTUATION | {" "},
    "punct": _PUNCTUATION,
    "space": frozenset(" \t\n\r\f\v"),
    "upper": frozenset(string.ascii_uppercase),
    "word": WORD,
    "xdigit": frozenset(string.hexdigits),
}
_CATEGORIES = """
    C Cc Cf Co Cs L Ll Lm Lo Lt Lu M Mc Me Mn N Nd Nl No P Pc Pd Pe Pf Pi Po Ps S Sc Sk Sm So Z Zl
    Zp Zs
"""
_OTHER_SCRIPTS = """
    Arabic Armenian Cyrillic Georgian Greek Han Hangul Hebrew Hiragana Katakana Thai
"""
_SCRIPTS = {
    "Latin": _LETTERS,
    "Common": _DIGITS | _PUNCTUATION,
    **dict.fromkeys(_OTHER_SCRIPTS.split(), _NOTHING),
}
_PLACES = {"A": "start", "z": "end", "b": "edge", "B": "inside"}
_CONTROLS = dict(zip("aftnrv", "\a\f\t\n\r\v", strict=True))
_FLAGS = re.compile(r"\(\?([imsU]*)(?:-([imsU]+))?([:)])")
_NAMED = re.compile(r"\(\?P?<(\w+)>")
_COUNTED = re.compile(r"\{(\d+)(,)?(\d+)?\}")
_OCTAL = re.compile(r"0[0-7]{0,2}|[1-7][0-7]{1,2}")
_HEX = re.compile(r"x(?:([0-9A-Fa-f]{2})|\{([0-9A-Fa-f]+)\})")
_QUOTED = re.compile(r"\\(?:Q(.*?)(?:\\E|$)|.)", re.DOTALL)
_PROPERTY = re.compile(r"[pP](?:(\w)|\{(\^?)(\w+)\})")


class BadPattern(ValueError):
    """The text is not a pattern; the message says why."""


class SyntaxNode(msgspec.Struct, frozen=True):
    """A part of a pattern: `set`, `at`, `all`, `either` or `repeat`."""

    kind: str
    chars: frozenset[str] = _NOTHING
    place: str = ""
    parts: tuple["SyntaxNode", ...] = ()
    least: int = 0
    most: int | None = None
    size: int = 1
    """Repetitions of the innermost part by counted repetition."""


def parse(text: str, characters: frozenset[str] = CHARACTERS) -> SyntaxNode:
    """Parse a pattern into its tree. Raises BadPattern."""
    parser = _Parser(text, characters)
    tree = parser.either(0)
    if parser.at < len(parser.text):
        raise BadPattern("There is a ) without its (.")
    return tree


class _Parser:
    def __init__(self, text: str, characters: frozenset[str]) -> None:
        self.characters = characters
        self.text, self.at = _QUOTED.sub(_unquoted, text), 0
        self.folds = False
        self.names: set[str] = set()

    def either(self, depth: int) -> SyntaxNode:
        if depth > DEEPEST:
            raise BadPattern("The pattern nests too deeply.")
        folds, parts = self.folds, [self._all(depth)]
        while self._take("|"):
            parts.append(self._all(depth))
        self.folds = folds
        return _several("either", parts)

    def _all(self, depth: int) -> SyntaxNode:
        parts: list[SyntaxNode] = []
        repeated = False
        while self.at < len(self.text) and self.text[self.at] not in "|)":
            bounds = self._repetition()
            if bounds is None:
                found = self._one(depth)
                parts += [] if found is None else [found]
                repeated = found is None
            elif not parts or repeated:
                raise BadPattern("A repetition has nothing to repeat.")
            else:
                parts[-1] = _repeat(parts[-1], *bounds)
                repeated = True
        return _several("all", parts)

    def _repetition(self) -> tuple[int, int | None] | None:
        simple = {"*": (0, None), "+": (1, None), "?": (0, 1)}
        bounds: tuple[int, int | None] | None = simple.get(self.text[self.at])
        counted = _COUNTED.match(self.text, self.at)
        if bounds is not None:
            self.at += 1
        elif counted:
            self.at = counted.end()
            bounds = _counts(counted)
        else:
            return None
        self._take("?")
        return bounds

    def _one(self, depth: int) -> SyntaxNode | None:
        char = self.text[self.at]
        if char == "(":
            return self._group(depth)
        if char == "[":
            return SyntaxNode("set", self._class())
        if char == "\\":
            return self._escape()
        self.at += 1
        if char == ".":
            return SyntaxNode("set", self.characters)
        if char in "^$":
            return SyntaxNode("at", place="start" if char == "^" else "end")
        return self._literal(char)

    def _literal(self, char: str) -> SyntaxNode:
        return SyntaxNode("set", self._folded(frozenset(char)))

    def _folded(self, chars: frozenset[str]) -> frozenset[str]:
        if self.folds:
            chars |= {char.swapcase() for char in chars}
        return chars & self.characters

    def _group(self, depth: int) -> SyntaxNode | None:
        folds = self.folds
        flags, named = _FLAGS.match(self.text, self.at), _NAMED.match(self.text, self.at)
        if named:
            if named[1] in self.names:
                raise BadPattern("Two groups have one name.")
            self.names.add(named[1])
            self.at = named.end()
        elif flags:
            self.at = flags.end()
            self.folds = (self.folds or "i" in flags[1]) and "i" not in (flags[2] or "")
            if flags[3] == ")":
                return None
        elif self.text.startswith("(?", self.at):
            raise BadPattern("Such a group is not known: nothing looks ahead or back.")
        else:
            self.at += 1
        inside = self.either(depth + 1)
        if not self._take(")"):
            raise BadPattern("There is a ( without its ).")
        self.folds = folds
        return SyntaxNode("all", parts=(inside,), size=inside.size)

    def _escape(self) -> SyntaxNode:
        place = _PLACES.get(self.text[self.at + 1 : self.at + 2])
        if place:
            self.at += 2
            return SyntaxNode("at", place=place)
        return SyntaxNode("set", self._escaped())

    def _escaped(self) -> frozenset[str]:
        """Return the meaning of an escape, in a class or outside."""
        at = self.at + 1
        char = self.text[at : at + 1]
        self.at += 2
        if char.lower() in _PERL:
            return self._side(_PERL[char.lower()], char.isupper())
        found = _PROPERTY.match(self.text, at)
        if found:
            self.at = found.end()
            return self._side(self._of(found[1] or found[3]), (char == "P") != bool(found[2]))
        return self._folded(frozenset(self._code(char, at)))

    def _of(self, name: str) -> frozenset[str]:
        """Return the characters of a category, or the ASCII characters of a script."""
        if name == "Any":
            return self.characters
        if name in _CATEGORIES.split():
            found = (c for c in self.characters if unicodedata.category(c).startswith(name))
            return frozenset(found)
        if name not in _SCRIPTS:
            raise BadPattern(f"There is no class of characters {name!r}.")
        return _SCRIPTS[name]

    def _side(self, chars: frozenset[str], negated: bool) -> frozenset[str]:
        return self.characters - chars if negated else chars & self.characters

    def _code(self, char: str, at: int) -> str:
        """Return the one character of an escape."""
        found = _OCTAL.match(self.text, at) or _HEX.match(self.text, at)
        if found:
            self.at = found.end()
            digits = found[1] or found[2] if char == "x" else None
            code = int(digits, 16) if digits else int(found[0], 8)
            if code > 0x10FFFF:
                raise BadPattern("There is no such character.")
            return chr(code)
        if char in _CONTROLS:
            return _CONTROLS[char]
        if not char or char.isalnum():
            raise BadPattern(f"The escape \\{char} is not known.")
        return char

    def _class(self) -> frozenset[str]:
        self.at += 1
        negated = self._take("^")
        chars: set[str] = set()
        first = True
        while first or not self.text.startswith("]", self.at):
            if self.at >= len(self.text):
                raise BadPattern("There is a [ without its ].")
            chars |= self._item()
            first = False
        self.at += 1
        return self._side(self._folded(frozenset(chars)), negated)

    def _item(self) -> frozenset[str]:
        """Return one item of a class: a character, a range, or a named class."""
        if self.text.startswith("[:", self.at):
            end = self.text.find(":]", self.at)
            name = self.text[self.at + 2 : end].removeprefix("^")
            if end >= 0 and name not in _POSIX:
                raise BadPattern(f"There is no class of characters {name!r}.")
            if end >= 0:
                negated = self.text[self.at + 2] == "^"
                self.at = end + 2
                return self._side(_POSIX[name], negated)
        escape = re.compile(r"\\[dDwWsSpP]").match(self.text, self.at)
        if escape:
            return self._escaped()
        low = self._end_of_range()
        ranges = self.text.startswith("-", self.at) and not self.text.startswith("-]", self.at)
        if not ranges:
            return frozenset(low)
        self.at += 1
        high = self._end_of_range()
        if high < low:
            raise BadPattern("A range ends before it begins.")
        return frozenset(char for char in self.characters if low <= char <= high)

    def _end_of_range(self) -> str:
        char = self.text[self.at : self.at + 1]
        if not char:
            raise BadPattern("There is a [ without its ].")
        self.at += 1
        if char != "\\":
            return char
        self.at += 1
        return self._code(self.text[self.at - 1 : self.at], self.at - 1)

    def _take(self, char: str) -> bool:
        there = self.text.startswith(char, self.at)
        self.at += there
        return there


def _unquoted(found: re.Match[str]) -> str:
    r"""Return the characters between \Q and \E, each literal."""
    if found[1] is None:
        return found[0]
    return "".join(char if char.isalnum() else f"\\{char}" for char in found[1])


def _several(kind: str, parts: list[SyntaxNode]) -> SyntaxNode:
    return SyntaxNode(kind, parts=tuple(parts), size=max((part.size for part in parts), default=1))


def _counts(counted: re.Match[str]) -> tuple[int, int | None]:
    least = int(counted[1])
    most = int(counted[3]) if counted[3] else None if counted[2] else least
    if max(least, most or 0) > MOST_REPEATS or (most is not None and most < least):
        raise BadPattern("A repetition is of a wrong size.")
    return least, most


def _repeat(part: SyntaxNode, least: int, most: int | None) -> SyntaxNode:
    size = part.size * max(least, most or 0, 1)
    if size > MOST_REPEATS:
        raise BadPattern("Repetitions of repetitions are too many.")
    return SyntaxNode("repeat", parts=(part,), least=least, most=most, size=size)
