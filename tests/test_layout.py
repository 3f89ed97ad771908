"""Check the layout: folders of tests, sizes of modules, plain arguments."""

import ast
import graphlib
import re
from collections.abc import Iterator
from pathlib import Path

from benchmarks.source_size import arrows, small
from tests.support.syntax_nodes import nodes

TESTS = Path(__file__).parent
ROOT = TESTS.parent
PACKAGES = ROOT / "korvet"

OTHERS = {
    "acceptance": "the behaviour that the seeds of the project describe",
    "faults": "real clients while Redis and brokers fail",
    "conformance": "Kafka's recorded responses to bad requests",
    "interop": "real clients in separate processes",
    "lua": "scripts without a server",
    "support": "servers, clients and brokers that tests share",
}
"""The folders that test no single package, and their content."""
SMALL = """
    broker/ops/readiness broker/telemetry cli/bench
    cli/brokers console/thread embedded_redis/defaults
    spark/entry_points/pyspark_korvet testing/fixtures
"""
"""Modules below 100 lines with one importer that were there before the rule."""


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
    for node in nodes(ast.parse(text)):
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


def package_texts() -> dict[str, str]:
    """Return the text of each module by its path."""
    return {str(path.relative_to(ROOT)): path.read_text() for path in PACKAGES.rglob("*.py")}


def test_few_packages_import_few_others_without_a_circle() -> None:
    graph: dict[str, set[str]] = {}
    for package, other in arrows(package_texts()):
        graph.setdefault(package, set()).add(other)
    assert len(list(graphlib.TopologicalSorter(graph).static_order())) <= 32
    assert sum(map(len, graph.values())) <= 220


def test_a_new_module_has_100_lines_or_two_importers() -> None:
    texts = package_texts()
    known = {f"korvet/{name}.py" for name in SMALL.split()}
    found = small(texts)
    assert found - known == set(), "join it with its importer, or with a module of its subject"
    assert known - found == set(), "take it out of SMALL"
