"""Check the words of docstrings, comments, messages, scripts, docs and identifiers.

CONTRIBUTING.md ("Language") says which rules these are and why. `python -m tests.test_language`
prints what is left, by directory; with paths as arguments, each finding below them.
"""

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from tests.support.syntax_nodes import nodes

ROOT = Path(__file__).parents[1]

BANNED: dict[str, str] = {
    "nobody": r"nobody",
    "somebody": r"somebody",
    "whoever": r"whoever",
    "Who ... (as an actor)": r"(?-i:Who)(?! (?:Owns|Writes)\b)",
    "tell, told": r"tells?|told|telling",
    "stands": r"stands|standing",
    "lies": r"lies",
    "beside": r"besides?",
    "goes on": r"go(?:es)? on|went on|going on",
    "comes again": r"comes? again|came again",
    "of its own": r"of (?:its|their) own",
    "let go of": r"lets? go of|let it go",
    "ring, bell, ear": r"rings?|rung|bells?|ears?",
    "heard": r"heard",
    "spelled": r"spelled",
    "alive again": r"alive again",
    "travel together": r"travels? together",
    "is for ever": r"(?:is|for) ever",
    "as good as": r"as good as",
    "with what": r"with what",
    "now and then": r"now and then",
    "a while": r"a while",
}
"""Words that a Kafka or Redis user does not expect, and the pattern that finds each."""

VAGUE = frozenset(("held", "made", "most", "place", "rest", "each", "found"))
"""Names that say nothing: in korvet/, no parameter, attribute, function or class is one of them."""
VAGUE_LOCALS = VAGUE - {"each", "found"}
"""Those that no local variable is either."""

_BANNED = {name: re.compile(rf"\b(?:{text})\b", re.IGNORECASE) for name, text in BANNED.items()}
_ANY_BANNED = re.compile(rf"\b(?:{'|'.join(BANNED.values())})\b", re.IGNORECASE)
_QUESTIONS = "What|Who|Whom|Whose|Which|Where|When|Whether|How|Why|So|It|That|This|One|Some|There"
_ARTICLES = "The|A|An|Its|Their|Each|Every|All|No|As|Of|In|For|From|By|To|At|On|With|If"
_RIDDLE = re.compile(rf"^(?:{_QUESTIONS})\b|^(?:The )?same\b", re.IGNORECASE)
_NOT_A_VERB = re.compile(rf"^(?:{_QUESTIONS}|{_ARTICLES})\b|^[a-z]")
_THIRD_PERSON = re.compile(r"^[A-Z][a-z]+(?<![su])s\b(?! ?=)")
_RAISES = re.compile(
    r"(?<=[.] )(?!Raises|Returns)[A-Z]\w*(?:Error|Refused|Exception) (?:if|for|when)\b"
)
MAX_WORDS = 25
"""Words of a docstring's sentence. Lists of errors and versions of the protocol may be longer."""
_LISTS = ("korvet/handlers/", "korvet/wire/messages/")
_PARAGRAPHS = re.compile(r"\n\s*\n|\n\s*- ")
_SENTENCES = re.compile(r"(?<=[.:;?])\s+")
_NO_PROSE = re.compile(r"^ {4}|^>>>|^\||\S {2,}\S", re.MULTILINE)
_MARKED = re.compile(r"<!-- (.+?) -->\n.*?<!-- end of \1 -->", re.DOTALL)
_GENERATED = re.compile(r"<!-- (.+?): generated -->\n.*?<!-- end of \1 -->", re.DOTALL)
_FENCE = re.compile(r"^ *```.*?^ *```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Finding:
    """A text that breaks one rule, and the place of it."""

    path: str
    line: int
    rule: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.rule}: {' '.join(self.text.split())[:90]}"


def findings(root: Path = ROOT) -> Iterator[Finding]:
    """Check every file that users or contributors read."""
    for path in sorted((root / "korvet").rglob("*.py")):
        yield from _python(path)
    for folder in ("tests", "benchmarks"):
        for path in sorted((root / folder).rglob("*.py")):
            if path.name != Path(__file__).name:
                yield from _python(path)
    for folder in ("lua", "tests"):
        for path in sorted((root / folder).rglob("*.lua")):
            yield from _lua(path)
    for path in sorted([*root.glob("*.md"), *(root / "docs").rglob("*.md")]):
        yield from _markdown(path)
    for path in sorted((root / "docs").rglob("*.py")):
        yield from _python(path)


def _words(path: str, line: int, text: str) -> Iterator[Finding]:
    if not _ANY_BANNED.search(text):
        return
    for name, pattern in _BANNED.items():
        for found in pattern.finditer(text):
            at = line + text.count("\n", 0, found.start())
            context = text[max(0, found.start() - 30) : found.end() + 40]
            yield Finding(path, at, f"banned: {name}", context)


def _python(path: Path) -> Iterator[Finding]:
    name = path.relative_to(ROOT).as_posix()
    source = path.read_text(encoding="utf-8")
    tree = ast.parse(source)
    for node in nodes(tree):
        yield from _names(name, node)
        if isinstance(node, ast.Constant):
            if isinstance(node.value, str) and " " in node.value:
                yield from _words(name, node.lineno, node.value)
        elif isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _first_line(name, node)
    # A "#" within a string is not told from a comment: strings are checked by the same words.
    for line, text in enumerate(source.split("\n"), 1):
        if "#" in text:
            yield from _words(name, line, text.partition("#")[2])


def _names(path: str, node: ast.AST) -> Iterator[Finding]:
    """Check the identifiers that a node defines, split at underscores and capitals."""
    for line, identifier, is_local in _identifiers(node):
        words, is_banned = _split(identifier)
        if is_banned:
            yield from _words(path, line, words)
        is_checked = path.startswith("korvet/") and "/calls/" not in path
        if is_checked and words.lower() in (VAGUE_LOCALS if is_local else VAGUE):
            yield Finding(path, line, "a name that says nothing", identifier)


@cache
def _split(identifier: str) -> tuple[str, bool]:
    """Return the words of an identifier, and whether one of them is banned."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|_", " ", identifier).strip()
    return words, bool(_ANY_BANNED.search(words))


def _identifiers(node: ast.AST) -> Iterator[tuple[int, str, bool]]:
    """Yield line and name of what the node defines, and whether it is a local variable."""
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        yield node.lineno, node.name, False
    elif isinstance(node, ast.arguments):
        for arg in (*node.posonlyargs, *node.args, node.vararg, *node.kwonlyargs, node.kwarg):
            if arg is not None:  # a lambda's has no annotation: it counts as a local variable
                yield arg.lineno, arg.arg, arg.annotation is None
    elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
        yield node.lineno, node.attr, False
    elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        yield node.lineno, node.target.id, True
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.lineno, node.id, True


def _first_line(
    path: str, node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
) -> Iterator[Finding]:
    doc = ast.get_docstring(node)
    if not doc:
        return
    yield from _sentences(path, node.body[0].lineno, doc)
    first = doc.splitlines()[0]
    line = node.body[0].lineno
    if _RIDDLE.search(first) or (
        not first[0].isupper() and first[0].isalpha() and "(" not in first
    ):
        yield Finding(path, line, "first line: a question or a fragment", first)
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not _is_value(node):
        yield from _verb_first(path, line, first)


def _sentences(path: str, line: int, doc: str) -> Iterator[Finding]:
    if _RAISES.search(doc):
        yield Finding(path, line, "an exception: write 'Raises ...'", doc)
    for paragraph in [] if path.startswith(_LISTS) else _PARAGRAPHS.split(doc):
        if not _NO_PROSE.search(paragraph.strip("\n")):
            for sentence in _SENTENCES.split(paragraph):
                if len(sentence.split()) > MAX_WORDS:
                    yield Finding(
                        path, line, f"a sentence of more than {MAX_WORDS} words", sentence
                    )


def _verb_first(path: str, line: int, first: str) -> Iterator[Finding]:
    if _NOT_A_VERB.search(first):
        yield Finding(path, line, "first line: begin with a verb", first)
    elif _THIRD_PERSON.search(first):
        yield Finding(path, line, "first line: imperative, 'Return', not 'Returns'", first)


def _is_value(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Return whether the docstring describes a value, a command or a test, instead of a call."""
    if node.name.startswith("test_"):  # its name is the sentence, the docstring gives the reason
        return True
    decorators = " ".join(map(ast.unparse, node.decorator_list))
    return any(word in decorators for word in ("property", "command", "fixture", "composite"))


def _lua(path: Path) -> Iterator[Finding]:
    name = path.relative_to(ROOT).as_posix()
    lines = path.read_text(encoding="utf-8").splitlines()
    for number, text in enumerate(lines, 1):
        _, dashes, comment = text.partition("--")
        if dashes:
            yield from _words(name, number, comment)
    at = 1 if "  version " in lines[0] else 0  # a script's name comes before its sentence
    first = lines[at].strip("- ")
    if _RIDDLE.search(first):
        yield Finding(name, at + 1, "first line: a question or a fragment", first)
    elif at:
        yield from _verb_first(name, at + 1, first)


def _markdown(path: Path) -> Iterator[Finding]:
    name = path.relative_to(ROOT).as_posix()
    text = path.read_text(encoding="utf-8")
    if text.startswith("<!-- generated"):  # from sources that are checked themselves
        return
    for pattern in (_GENERATED, _MARKED, _FENCE):
        text = pattern.sub(lambda found: "\n" * found[0].count("\n"), text)
    yield from _words(name, 1, text)


def test_the_words_of_the_language_guide_are_kept() -> None:
    left = [str(finding) for finding in findings()]
    assert not left, "\n".join(left)


@pytest.mark.parametrize(
    ("first", "rule"),
    [
        ("What nobody reads.", "question"),
        ("The same.", "question"),
        ("The partition's offsets.", "verb"),
        ("Returns the offsets.", "imperative"),
    ],
)
def test_a_first_line_that_is_no_imperative_is_found(first: str, rule: str) -> None:
    node = ast.parse(f'def f():\n    """{first}"""').body[0]
    assert isinstance(node, ast.FunctionDef)
    assert [rule in finding.rule for finding in _first_line("x.py", node)] == [True]


@pytest.mark.parametrize(
    ("source", "rules"),
    [
        ("def heard_by(x: int): ...", ["banned: heard"]),
        ("def test_what_nobody_reads(): ...", ["banned: nobody"]),
        ("class BellTower: ...", ["banned: ring, bell, ear"]),
        ("def f(told: int): ...", ["banned: tell, told"]),
        ("x.stands = 1", ["banned: stands"]),
        ("def f(most: int): ...", ["a name that says nothing"]),
        ("self._held = 1", ["a name that says nothing"]),
        ("place = 1", ["a name that says nothing"]),
        ("class Found: ...", ["a name that says nothing"]),
        ("for each in []: found = [lambda each: each]", []),
        ("def held_until(max_bytes: int): ...", []),
    ],
)
def test_identifiers_are_split_into_words(source: str, rules: list[str]) -> None:
    found = [row for node in nodes(ast.parse(source)) for row in _names("korvet/x.py", node)]
    assert [row.rule for row in found] == rules


def test_a_long_sentence_and_a_bare_exception_are_found() -> None:
    long = "Return " + "one " * MAX_WORDS + "word."
    assert [each.rule for each in _sentences("x.py", 1, long)] == [
        "a sentence of more than 25 words"
    ]
    assert not list(_sentences("korvet/handlers/x.py", 1, long))
    assert list(_sentences("x.py", 1, "Read a group. StartError if there is none."))


@pytest.mark.parametrize("first", ["Return the offsets.", "Pass the batch on.", "Process it."])
def test_an_imperative_first_line_passes(first: str) -> None:
    assert not list(_verb_first("x.py", 1, first))


def main(paths: list[str]) -> int:
    """Print the findings below the given paths, or their number by directory."""
    found = [row for row in findings() if not paths or row.path.startswith(tuple(paths))]
    if paths:
        sys.stdout.writelines(f"{row}\n" for row in found)
    else:
        counts = Counter(str(Path(row.path).parent) for row in found)
        sys.stdout.writelines(f"{count:5} {where}\n" for where, count in sorted(counts.items()))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
