"""Join a script and the libraries it requires into the text that Redis gets.

Rules
- A library is required on a line by itself: `local codes = require("lib.codes")`. The name is a
  literal, begins with `lib.`, and maps to `lua/lib/codes.lua`. Libraries may require libraries.
- Each library is in the text once, inside a function: locals of two files cannot collide. It is
  built at its first require, so a `require` inside a branch costs nothing unless the branch runs.
- Comments are blanked, never removed. A reworded comment changes no sha1, and a line number in a
  Redis error is a line number in a file: `Bundle.locate`.
- A function of a library that the text does not name is blanked too: Redis creates every function
  of a library at every call, for 0.1 us each. So a library's functions begin with `function
  M.name(` or `local function name(` and end with `end`, all in column 0.
- A library whose first line is `--- lib.name  constants` is a table of constants, one a line. Only
  the constants that the bundle names are included, on one line: Redis builds that table at every
  call, and a new error code must not change every script's sha1.
- A header with FULL lets the script write at maxmemory: each of its lines `-- Write.` becomes a
  PERSIST of the first key, which changes nothing. Redis allows it, and after a write of a script
  its others too: in every supported version, other than the flag `allow-oom`, which Redis 6.2
  lacks and which comes with other rules on keys. A library's lines `-- Write.` become one as well.
- The first line has the script's name and version, for the slow log and `SCRIPT SHOW`; a new
  version always changes the sha1. The second line checks the arguments against the header
  (`korvet/scripts/contract.py`).
"""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from korvet.scripts.contract import Contract, argument_check, parse_contract

_REQUIRE = re.compile(r"^local\s+[A-Za-z_]\w*\s*=\s*require\(\"([^\"]*)\"\)$")
_LIBRARY = re.compile(r"^lib(\.[a-z][a-z0-9_]*)+$")
_LOADER = (
    "local loaders, modules = {}, {}",
    "local function require(name)",
    "  local module = modules[name]",
    "  if module == nil then module = loaders[name]() modules[name] = module end",
    "  return module",
    "end",
)
_FUNCTION = re.compile(r"^(?:local )?function (M\.)?(\w+)\(.*?^end$", re.MULTILINE | re.DOTALL)
_WRITE = re.compile(r"^( *)-- Write\..*$", re.MULTILINE)
_WORD = re.compile(r"\.?\w+")
_CONSTANT = re.compile(r"^([A-Z][A-Z0-9_]*) = (-?\d+|\"[^\"]*\"),$")
_KEPT = 512
"""Texts of libraries and functions that are kept for the next script: more than the libraries'."""
_CONSTANTS_HEADER = re.compile(r"^---\s+lib\.[\w.]+\s+constants\b")


class BundleError(Exception):
    """A script cannot be bundled; the message has the chain of requires."""


@dataclass(frozen=True)
class Bundle:
    """A script as Redis runs it; `parts` maps lines of `text` to files."""

    name: str
    text: str
    contract: Contract
    parts: tuple[tuple[int, int, str], ...] = field(repr=False)

    @property
    def version(self) -> int:
        return self.contract.version

    @cached_property
    def sha1(self) -> str:
        return hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()

    def locate(self, line: int) -> tuple[str, int]:
        """Return the file, relative to `lua/`, and its line for a line of the text."""
        for start, length, path in self.parts:
            if start <= line < start + length:
                return path, line - start + 1
        raise LookupError(f"line {line} of {self.name} is the bundle's own, no file's")


@cache
def default_root() -> Traversable:
    """Return the directory of the scripts: in the installed package, or in the checkout.

    The package may be inside an archive on the path.
    """
    package = files("korvet")
    installed = package / "_lua"
    if installed.is_dir():
        return installed
    siblings = Path(str(package)).parent / "lua"
    if not siblings.is_dir():
        raise BundleError(f"no scripts: neither {installed} nor {siblings} is a directory")
    return siblings


def names(root: Traversable | None = None) -> list[str]:
    """Return the names of all scripts, sorted: `lua/log/append.lua` is `log.append`."""
    found = (name for name in _named(root or default_root()) if not name.startswith("lib."))
    return sorted(found)


def _named(folder: Traversable) -> Iterator[str]:
    for each in folder.iterdir():
        if each.is_dir():
            yield from (f"{each.name}.{name}" for name in _named(each))
        elif each.name.endswith(".lua"):
            yield each.name.removesuffix(".lua")


def load(name: str, root: Traversable | None = None) -> Bundle:
    """Return the bundle of one script, built once per process for Korvet's scripts."""
    return _load_shipped(name) if root is None else _Builder(root).build(name)


def source(name: str) -> str:
    """Return the source of one of Korvet's scripts, header included."""
    return (default_root() / _path(name)).read_text(encoding="utf-8")


def inline(name: str, without: Set[str]) -> str:
    """Return one of Korvet's libraries as one line of Lua, the body of a function that returns it.

    The libraries of `without` are left out: the caller knows that none of their functions runs.
    """
    return _Builder(default_root()).inline(name, without)


def share(names: Iterable[str], before: str) -> tuple[str, dict[str, str]]:
    """Return Lua that loads the libraries of scripts, and by name each script's lines after that.

    These begin with the line `before`. `-- Write.` is a comment here: the caller lets a FULL script
    write at maxmemory by other means.
    """
    return _Builder(default_root()).share(names, before)


@cache
def _load_shipped(name: str) -> Bundle:
    return _Builder(default_root()).build(name)


@lru_cache(_KEPT)
def blank_comments(source: str) -> str:
    """Return the lines without their comments. A string may hold two dashes."""
    return "\n".join(_blank_line(line) for line in source.split("\n"))


def allow_when_full(source: str, full: str) -> str:
    """Return the lines, those with `-- Write.` as a header's FULL has them."""
    if not full:
        return source
    allow = 'redis.call("PERSIST", KEYS[1])'
    line = allow if full == "always" else f"if {full} then {allow} end"
    return _WRITE.sub(lambda found: found[1] + line, source)


def _blank_line(line: str) -> str:
    if "--" not in line:
        return line.rstrip()
    quote = ""
    at = 0
    while at < len(line):
        char = line[at]
        if quote:
            if char == "\\":
                at += 1
            elif char == quote:
                quote = ""
        elif char in "\"'":
            quote = char
        elif line.startswith("--", at):
            return line[:at].rstrip()
        at += 1
    return line.rstrip()


def requires(code: str, where: str) -> Iterator[str]:
    """Return the libraries that a file requires, in order. `code` has no comments."""
    for number, line in enumerate(code.split("\n"), 1):
        if "require" not in line or not re.search(r"\brequire\b", line):
            continue
        found = _REQUIRE.match(line.strip())
        if not found:
            raise BundleError(
                f'{where}:{number}: a require is a line `local x = require("lib.x")`, '
                f"not `{line.strip()}`"
            )
        if not _LIBRARY.match(found[1]):
            raise BundleError(
                f'{where}:{number}: "{found[1]}" is no library; names begin with lib.'
            )
        yield found[1]


class _Builder:
    """Follows the requires of one script, depth first, and builds the text."""

    def __init__(self, root: Traversable) -> None:
        self._root = root
        self._code: dict[str, str] = {}
        self._full = ""
        self._constants: set[str] = set()
        self._without: Set[str] = frozenset()

    def build(self, name: str) -> Bundle:
        source = self._read(name, [])
        contract = parse_contract(source, name)
        script = blank_comments(allow_when_full(source, contract.full))
        self._full = "always" if contract.full else ""
        self._follow(script, [name])
        self._drop_unused(script)
        lines = [f"-- korvet {name} v{contract.version}", argument_check(contract)]
        parts: list[tuple[int, int, str]] = []
        self._add_modules(lines, parts, script)
        self._append(lines, parts, script, _path(name))
        return Bundle(name, "\n".join(lines) + "\n", contract, tuple(parts))

    def share(self, names: Iterable[str], before: str) -> tuple[str, dict[str, str]]:
        """Return the lines of the libraries, and each script's lines by its name."""
        scripts = {}
        for name in names:
            source = self._read(name, [])
            code = blank_comments(source)
            self._follow(code, [name])
            checks = argument_check(parse_contract(source, name))
            scripts[name] = re.sub(r"\n\n+", "\n", f"{before}\n{checks}\n{code}\n")
        every = "".join(scripts.values())
        self._drop_unused(every)
        lines: list[str] = []
        self._add_modules(lines, [], every)
        return re.sub(r"\n\n+", "\n", "\n".join(lines)) + "\n", scripts

    def inline(self, name: str, without: Set[str]) -> str:
        """Return a library and those it requires, as one line that returns its table."""
        self._without = without
        code = blank_comments(self._read(name, []))
        self._follow(code, [name])
        self._drop_unused(code)
        lines: list[str] = []
        self._add_modules(lines, [], code)
        stripped = (line.strip() for line in "\n".join([*lines, code]).split("\n"))
        return " ".join(filter(None, stripped))

    def _add_modules(
        self, lines: list[str], parts: list[tuple[int, int, str]], script: str
    ) -> None:
        if self._code:
            lines += _LOADER
        for module, code in self._code.items():
            if module in self._constants:
                table = self._constants_named(module, code, script)
                lines.append(f'modules["{module}"] = {table}')
                continue
            lines.append(f'loaders["{module}"] = function()')
            self._append(lines, parts, code, _path(module))
            lines.append("end")

    def _read(self, name: str, chain: list[str]) -> str:
        path = self._root / _path(name)
        try:
            return path.read_text(encoding="utf-8").rstrip("\n")
        except FileNotFoundError:
            led = " -> ".join([*chain, name])
            raise BundleError(f"{led}: there is no file {_path(name)}") from None

    def _follow(self, code: str, chain: list[str]) -> None:
        for module in requires(code, _path(chain[-1])):
            if module in chain:
                raise BundleError(" -> ".join([*chain, module]) + ": a cycle")
            if module in self._code or module in self._without:
                continue
            source = self._read(module, chain)
            if _CONSTANTS_HEADER.match(source):
                self._constants.add(module)
            body = blank_comments(allow_when_full(source, self._full))
            self._follow(body, [*chain, module])
            self._code[module] = body

    def _drop_unused(self, script: str) -> None:
        """Blank the library functions that no other line names."""
        while True:
            before = dict(self._code)
            everywhere = [_words_in(code) for code in (script, *before.values())]
            for module, code in before.items():
                for text, names, is_local in _functions_of(code):
                    within = [_words_in(code)] if is_local else everywhere
                    own = _words_in(text)
                    if all(sum(words[name] for words in within) == own[name] for name in names):
                        blank = "\n" * text.count("\n")
                        self._code[module] = self._code[module].replace(text, blank, 1)
            if self._code == before:
                return

    def _constants_named(self, module: str, code: str, script: str) -> str:
        others = [text for name, text in self._code.items() if name != module]
        used = set(re.findall(r"\.([A-Z][A-Z0-9_]*)\b", "\n".join([script, *others])))
        rows = [line.strip() for line in code.split("\n") if line.strip()]
        if rows[0] != "return {" or rows[-1] != "}":
            raise BundleError(f"{_path(module)}: constants are one table that is returned")
        kept: list[str] = []
        for row in rows[1:-1]:
            constant = _CONSTANT.match(row)
            if not constant:
                raise BundleError(f"{_path(module)}: `{row}` is no constant: `NAME = 1,`")
            if constant[1] in used:
                kept.append(f"{constant[1]} = {constant[2]}")
        return "{ " + ", ".join(kept) + " }"

    def _append(
        self, lines: list[str], parts: list[tuple[int, int, str]], code: str, path: str
    ) -> None:
        body = code.split("\n")
        parts.append((len(lines) + 1, len(body), path))
        lines += body


@lru_cache(_KEPT)
def _words_in(code: str) -> Counter[str]:
    """Count each name in the lines; a name after a dot counts as `.name`."""
    return Counter(_WORD.findall(code))


@lru_cache(_KEPT)
def _functions_of(code: str) -> tuple[tuple[str, tuple[str, ...], bool], ...]:
    """Return the text of each function, the words that name it, and whether it is local.

    A function of the module is named `.name` anywhere, a local one `name` in its file.
    """
    return tuple(
        (text[0], (f".{text[2]}",) if text[1] else (text[2], f".{text[2]}"), not text[1])
        for text in _FUNCTION.finditer(code)
    )


def _path(name: str) -> str:
    return name.replace(".", "/") + ".lua"
