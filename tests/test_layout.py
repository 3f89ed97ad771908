"""Check the layout: folders of tests mirror the packages of `korvet`, arguments are plain."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parent
ROOT = TESTS.parent
PACKAGES = ROOT / "korvet"

OTHERS = {
    "acceptance": "the behaviour that the seeds of the project describe",
    "conformance": "Kafka's recorded responses to bad requests",
    "interop": "real clients in separate processes",
    "lua": "scripts without a server",
    "support": "servers, clients and brokers that tests share",
}
"""The folders that test no single package, and their content."""


def folders(root: Path) -> set[str]:
    """Return the names of the folders with Python files."""
    return {path.parent.name for path in root.glob("*/*.py")}


def test_every_folder_of_tests_has_the_name_of_a_package() -> None:
    assert folders(TESTS) - folders(PACKAGES) == OTHERS.keys()


def test_every_package_has_a_folder_of_tests() -> None:
    assert folders(PACKAGES) - folders(TESTS) == set()


def test_every_folder_of_tests_is_a_package() -> None:
    assert {name for name in folders(TESTS) if not (TESTS / name / "__init__.py").exists()} == set()


def starred(text: str) -> Iterator[int]:
    """Yield the lines of arguments and elements that unpack a literal, such as `*(a, b)`."""
    if not re.search(r"\*[(\[]", text):
        return  # To parse every file takes ten seconds.
    for node in ast.walk(ast.parse(text)):
        if (
            isinstance(node, ast.Starred)
            and isinstance(node.ctx, ast.Load)
            and isinstance(node.value, ast.Tuple | ast.List)
            and node.value.elts
        ):
            yield node.lineno


def test_arguments_are_written_plainly() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for folder in ("korvet", "tests", "benchmarks", "docs", "examples")
        for path in (ROOT / folder).rglob("*.py")
        for line in starred(path.read_text())
    ]
    assert found == [], "write `a, b` in place of `*(a, b)`"
