"""The header of a script, parsed: its contract.

The grammar, every line of it after `---`:

name  version N  reads|writes
One sentence (it may continue until an empty line).

KEYS     name    type   meaning        type: hash, zset, stream, set, list, string
ARGV     name    type   meaning        type: int, bytes, text; id: encoded by `encode_group`
RETURNS  name    type   meaning        type: int, bytes, list (of bytes), ints, values (of both),
                                       or a script: a list of its replies; `error` is first
REFUSES  NAME NAME ...                 answered with nothing written, in the order of checking
SIGNALS  NAME ...                      answered together with a finished write
FULL     always: why it may grow       written even if Redis is full; `name:` if that local is true
COST     words, at most N calls + M per unit
NOTES    free text

- A row begins at the column of its section's first row; a line further in continues the meaning
  above. Columns are separated by two spaces or more.
- `int=-1` gives an argument its default in Python, `text=` an empty one.
- A name that ends in `...` may be given any number of times. Such rows are the last of their
  section; several of them repeat together, as one group. A section without rows is left out.
- FULL: `bundle` lets the script write at maxmemory. What follows the colon bounds its growth.
- COST is counted by the tests: `at most 4 calls`, or `at most 4 calls + 2 per record + 1 per key`.
  The units are words: `key` counts KEYS, `arg` counts ARGV, the name of a `...` row (without the
  dots) counts that row. Every other unit is for people: a budget with one is not checked.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import takewhile

CHECKS_ITSELF = "log.append"
"""The script that checks its own arguments.

It runs once a batch, where a check of eight integers costs 1 us, and shares its check with
log.append_many, whose arguments repeat.
"""
_TITLE = re.compile(r"^([a-z][a-z0-9_]*(?:\.[a-z][a-z0-9_]*)+)  version (\d+)  (reads|writes)$")
_SECTION = re.compile(r"^([A-Z]+)(?:\s+(.*))?$")
_SECTIONS = ("KEYS", "ARGV", "RETURNS", "REFUSES", "SIGNALS", "FULL", "COST", "NOTES")
_BUDGET = re.compile(r"at most (\d+) calls?((?: \+ \d+ per [a-z_]+)*)")
_FULL = re.compile(r"([a-z_]+): \S")
_PER = re.compile(r"\+ (\d+) per ([a-z_]+)")
_TYPES = {
    "KEYS": frozenset({"hash", "zset", "stream", "set", "list", "string"}),
    "ARGV": frozenset({"int", "bytes", "text", "id"}),
    "RETURNS": frozenset({"int", "bytes", "list", "ints", "values"}),
}


class ContractError(Exception):
    """A script's header does not follow the grammar; the message names file and line."""


@dataclass(frozen=True)
class Row:
    """A key, argument or element of the reply."""

    name: str
    type: str
    meaning: str
    repeated: bool = False
    default: str | None = None


@dataclass(frozen=True)
class Budget:
    """The most `redis.call`s of one run: a fixed number plus a number per counted unit."""

    fixed: int
    per: Mapping[str, int] = field(default_factory=dict)

    def limit(self, counts: Mapping[str, int]) -> int | None:
        """Return the limit for these counts; None if a unit is not among them."""
        if any(unit not in counts for unit in self.per):
            return None
        return self.fixed + sum(times * counts[unit] for unit, times in self.per.items())


@dataclass(frozen=True)
class Contract:
    """A script's contract, as its header states it."""

    name: str
    version: int
    writes: bool
    sentence: str
    keys: tuple[Row, ...]
    args: tuple[Row, ...]
    returns: tuple[Row, ...]
    refuses: tuple[str, ...]
    signals: tuple[str, ...]
    full: str
    """When it is written although Redis is full: `always`, a local's name, or empty for never."""
    cost: str
    budget: Budget
    notes: str

    @cached_property
    def takes_absent_key(self) -> bool:
        """Return whether it takes one key more: see `korvet.store.slots.whole`."""
        return self.writes and len(self.keys) > 1 and len({row.repeated for row in self.keys}) == 1

    def most_calls(self, key_count: int, arg_count: int) -> int | None:
        """Return the most `redis.call`s of a run with that many KEYS and ARGV, or None."""
        counts = {"key": key_count, "arg": arg_count}
        for rows, given in ((self.keys, key_count), (self.args, arg_count)):
            repeated = [row.name for row in rows if row.repeated]
            if repeated:
                groups = (given - (len(rows) - len(repeated))) // len(repeated)
                counts.update(dict.fromkeys(repeated, groups))
        return self.budget.limit(counts)


def parse_contract(source: str, name: str) -> Contract:
    """Parse the contract in a script's source; `name` is the one that its path gives it."""
    return _Parser(name, header_lines(source)).parse()


def header_lines(source: str) -> list[str]:
    """Return the text after `---` of the lines that open a file."""
    header = takewhile(lambda line: line.startswith("---"), source.split("\n"))
    return [line[3:].rstrip() for line in header]


class _Parser:
    def __init__(self, name: str, lines: list[str]) -> None:
        self._name = name
        self._lines = lines

    def parse(self) -> Contract:
        title = _TITLE.match(self._lines[0].strip()) if self._lines else None
        if not title:
            raise self._wrong(1, "the first line is `--- name  version N  reads|writes`")
        if title[1] != self._name:
            raise self._wrong(1, f"the header says {title[1]}, the path says {self._name}")
        sentence, lines = self._sentence()
        sections = self._split(lines)
        cost = " ".join(text.strip() for _, text in sections.get("COST", []))
        return Contract(
            name=self._name,
            version=int(title[2]),
            writes=title[3] == "writes",
            sentence=sentence,
            keys=self._rows("KEYS", sections),
            args=self._rows("ARGV", sections),
            returns=self._rows("RETURNS", sections),
            refuses=tuple(self._words("REFUSES", sections)),
            signals=tuple(self._words("SIGNALS", sections)),
            full=self._full(sections.get("FULL", [])),
            cost=cost,
            budget=self._budget(cost),
            notes=" ".join(text.strip() for _, text in sections.get("NOTES", [])),
        )

    def _wrong(self, line: int, what: str) -> ContractError:
        return ContractError(f"{self._name.replace('.', '/')}.lua:{line}: {what}")

    def _sentence(self) -> tuple[str, int]:
        words = [line.strip() for line in takewhile(str.strip, self._lines[1:])]
        if not words:
            raise self._wrong(2, "the second line is a sentence that says what the script does")
        return " ".join(words), len(words) + 2

    def _split(self, start: int) -> dict[str, list[tuple[int, str]]]:
        """Return each section's lines with their numbers; labels become spaces of equal width."""
        sections: dict[str, list[tuple[int, str]]] = {}
        current: list[tuple[int, str]] | None = None
        for number, line in enumerate(self._lines[start:], start + 1):
            label = _SECTION.match(line[1:])
            if label and label[1] in _SECTIONS:
                if label[1] in sections:
                    raise self._wrong(number, f"{label[1]} is repeated")
                if sections and _SECTIONS.index(label[1]) < _SECTIONS.index(list(sections)[-1]):
                    raise self._wrong(number, f"{label[1]} comes before {list(sections)[-1]}")
                current = sections[label[1]] = []
                line = " " * (1 + len(label[1])) + line[1 + len(label[1]) :]
            if not line.strip():
                continue
            if current is None or not line.startswith("  "):
                raise self._wrong(number, f"`{line.strip()}` belongs to no section")
            current.append((number, line))
        return sections

    def _rows(self, section: str, sections: Mapping[str, list[tuple[int, str]]]) -> tuple[Row, ...]:
        rows: list[Row] = []
        column = -1
        for number, line in sections.get(section, []):
            indent = len(line) - len(line.lstrip())
            if column < 0:
                column = indent
            if indent > column:
                last = rows[-1]
                meaning = f"{last.meaning} {line.strip()}"
                rows[-1] = replace(last, meaning=meaning)
            elif indent < column:
                raise self._wrong(number, f"a row of {section} begins at column {column + 4}")
            else:
                rows.append(self._row(section, number, line))
                if rows[:-1] and rows[-2].repeated and not rows[-1].repeated:
                    raise self._wrong(number, f"{rows[-1].name} comes after a repeated row")
        if len({row.name for row in rows}) != len(rows):
            raise self._wrong(sections[section][0][0], f"a name is repeated in {section}")
        return tuple(rows)

    def _row(self, section: str, number: int, line: str) -> Row:
        cells = re.split(r"\s{2,}", line.strip(), maxsplit=2)
        if len(cells) != 3:
            raise self._wrong(number, "a row is `name  type  meaning`, two spaces between")
        name, typed, meaning = cells
        kind, defaults, default = typed.partition("=")
        is_reply = section == "RETURNS" and "." in kind
        if (kind not in _TYPES[section] and not is_reply) or (defaults and section != "ARGV"):
            known = ", ".join(sorted(_TYPES[section]))
            raise self._wrong(number, f"a type of {section} is one of {known}, not {typed}")
        bare = name.removesuffix("...")
        if not re.fullmatch(r"[a-z][a-z0-9_]*", bare):
            raise self._wrong(number, f"`{name}` is no name")
        return Row(bare, kind, meaning, bare != name, default if defaults else None)

    def _words(self, section: str, sections: Mapping[str, list[tuple[int, str]]]) -> Iterable[str]:
        for number, line in sections.get(section, []):
            for word in line.split():
                if not re.fullmatch(r"[A-Z][A-Z0-9_]*", word):
                    raise self._wrong(number, f"{section} holds names of errors, not `{word}`")
                yield word

    def _full(self, lines: list[tuple[int, str]]) -> str:
        if not lines:
            return ""
        found = _FULL.match(lines[0][1].strip())
        if not found:
            raise self._wrong(lines[0][0], "FULL says `always: why` or `name of a local: why`")
        return found[1]

    def _budget(self, cost: str) -> Budget:
        found = _BUDGET.search(cost)
        if not found:
            raise self._wrong(len(self._lines), "COST says `at most N calls`")
        per = {unit: int(times) for times, unit in _PER.findall(found[2])}
        return Budget(int(found[1]), per)


def argument_check(contract: Contract) -> str:
    """Return the Lua line that fails, naming the script, unless the call matches the header.

    It checks the counts of KEYS and ARGV, and integers, and is a bundle's first line: a wrong call
    by hand fails with the reason and writes nothing. A script checks repeated ARGV itself.
    """
    wrong = [
        *_wrong_count("KEYS", contract.keys, int(contract.takes_absent_key)),
        *_wrong_count("ARGV", contract.args),
    ]
    takes = f"{_taken('KEYS', contract.keys)} and {_taken('ARGV', contract.args)}"
    checks = [f'if {" or ".join(wrong)} then error("{contract.name} takes {takes}", 0) end']
    for first, last in () if contract.name == CHECKS_ITSELF else _runs_of_ints(contract.args):
        names = ", ".join(f'"{row.name}"' for row in contract.args[first - 1 : last])
        checks.append(
            f'for i = {first}, {last} do if not string.find(ARGV[i], "^%-?%d+$") then '
            f'error("{contract.name}: ARGV[" .. i .. "], " .. ({{ {names} }})[i - {first - 1}] '
            '.. ", is no integer", 0) end end'
        )
    return " ".join(checks)


def _wrong_count(section: str, rows: Sequence[Row], spare: int = 0) -> Iterator[str]:
    """Yield the conditions under which the count is none of the header's, nor `spare` more."""
    repeated = sum(row.repeated for row in rows)
    fixed = len(rows) - repeated
    if not repeated:
        yield " and ".join(f"#{section} ~= {fixed + more}" for more in range(spare + 1))
        return
    if fixed:
        yield f"#{section} < {fixed}"
    if repeated > 1:
        yield f"(#{section} - {fixed}) % {repeated} > {spare}"


def _taken(section: str, rows: Sequence[Row]) -> str:
    repeated = sum(row.repeated for row in rows)
    fixed = len(rows) - repeated
    if repeated < 2:
        return f"{fixed} {section}{' or more' if repeated else ''}"
    return f"{fixed} {section} and as many times {repeated} more as there are"


def _runs_of_ints(rows: Sequence[Row]) -> Iterator[tuple[int, int]]:
    """Yield first and last position, from 1, of adjacent ints that are given once."""
    first = 0
    for at, row in enumerate((*rows, Row("", "bytes", "")), 1):
        if row.type == "int" and not row.repeated:
            first = first or at
        elif first:
            yield first, at - 1
            first = 0
