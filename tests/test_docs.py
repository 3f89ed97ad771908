"""What is written from tables is as the tables have it."""

from pathlib import Path

import pytest

from korvet.docs import PARTS, fill, stale

DOCS = Path(__file__).parents[1] / "docs"


def test_no_page_is_stale() -> None:
    assert [path.name for path, _ in stale(DOCS)] == [], "make docs"


def test_every_part_stands_on_some_page() -> None:
    pages = "".join(path.read_text() for path in DOCS.glob("*.md"))
    for name in PARTS:
        assert f"<!-- {name}: written by make docs -->" in pages


def test_a_stale_part_is_replaced_and_the_rest_is_left_alone() -> None:
    page = "a\n<!-- metrics: written by make docs -->\nold\n<!-- end of metrics -->\nb\n"
    filled = fill(page)
    assert filled.startswith("a\n<!-- metrics: written by make docs -->\n\n| Metric |")
    assert filled.endswith("<!-- end of metrics -->\nb\n")
    assert "old" not in filled
    assert fill(filled) == filled


def test_a_part_that_never_ends_is_refused() -> None:
    with pytest.raises(ValueError, match="is never closed"):
        fill("<!-- metrics: written by make docs -->\n")
