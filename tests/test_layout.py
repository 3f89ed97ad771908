"""Check that the folders of tests mirror the packages of `korvet`."""

from pathlib import Path

TESTS = Path(__file__).parent
PACKAGES = TESTS.parent / "korvet"

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
