"""Check the docs: generated parts are current, links and named paths exist, lines are short."""

import re
from pathlib import Path

import pytest

from docs.generate.pages import PARTS, fill, stale, whole
from docs.generate.scripts import families
from tests.support.pages import Block, blocks

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.rglob("*.md"), *ROOT.glob("*.md")])
LINK = re.compile(r"(?:\]\(|\bsrc=\"|\bsrcset=\")([^)\"#:\s]+)(?:#[^)]*)?[)\"]")
QUESTIONS = re.compile(r"^## Twelve questions\n(.*?)(?=^## )", re.MULTILINE | re.DOTALL)
PATH = re.compile(r"`((?:korvet|lua|tests|docs)/[\w./]+)`")


def test_no_page_is_stale() -> None:
    assert [str(path.relative_to(DOCS)) for path, _ in stale(DOCS)] == [], "run make docs"


def test_every_generated_part_is_on_a_page() -> None:
    pages = "".join(path.read_text() for path in DOCS.rglob("*.md"))
    for name in PARTS:
        assert f"<!-- {name}: generated -->" in pages


def test_every_page_is_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text()
    names = [path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")]
    assert [name for name in names if f" {name}\n" not in navigation] == []
    index = (DOCS / "decisions" / "index.md").read_text()
    assert [path.name for path in (DOCS / "decisions").glob("0*") if path.name not in index] == []


def test_every_family_of_scripts_has_a_page_with_a_call_of_each() -> None:
    pages = whole()
    for family in families():
        page = pages[f"scripts/{family}.md"]
        assert page.count("\n## ") == page.count("\nredis-cli --eval ") > 0


def test_a_stale_part_is_replaced_and_the_rest_is_left_alone() -> None:
    page = "a\n<!-- metrics: generated -->\nstale line\n<!-- end of metrics -->\nb\n"
    filled = fill(page)
    assert filled.startswith("a\n<!-- metrics: generated -->\n\n| Metric |")
    assert filled.endswith("<!-- end of metrics -->\nb\n")
    assert "stale line" not in filled
    assert fill(filled) == filled


def test_a_part_that_is_never_closed_is_an_error() -> None:
    with pytest.raises(ValueError, match="is never closed"):
        fill("<!-- metrics: generated -->\n")


def test_links_between_files_lead_somewhere() -> None:
    links = [(page, link) for page in PAGES for link in LINK.findall(page.read_text())]
    assert [(page, link) for page, link in links if not (page.parent / link).exists()] == []


def _luminance(color: str) -> float:
    """Return the relative luminance of WCAG 2 of a color as #rgb or #rrggbb."""
    digits = color if len(color) == 6 else "".join(digit * 2 for digit in color)
    parts = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", ["default", "slate"])
def test_texts_have_a_contrast_of_at_least_4_5(scheme: str) -> None:
    style = (DOCS / "stylesheets" / "korvet.css").read_text()
    block = style.partition(f'[data-md-color-scheme="{scheme}"] {{')[2].partition("}")[0]
    colors = {name: _luminance(value) for name, value in re.findall(r"--(\w+): #(\w+)", block)}
    backgrounds = {name: colors.pop(name) for name in ("page", "card", "code")}
    del colors["line"]
    contrasts = {
        (name, back): (max(one, other) + 0.05) / (min(one, other) + 0.05)
        for name, one in colors.items()
        for back, other in backgrounds.items()
    }
    assert len(contrasts) == 24
    assert {pair: contrast for pair, contrast in contrasts.items() if contrast < 4.5} == {}


def test_the_twelve_questions_name_paths_that_exist() -> None:
    found = QUESTIONS.search((DOCS / "architecture.md").read_text())
    assert found
    assert len(re.findall(r"^\*\*\d+\. ", found[1], re.MULTILINE)) == 12
    paths = PATH.findall(found[1])
    assert len(paths) >= 10
    assert [path for path in paths if not (ROOT / path).exists()] == []


def _is_run(block: Block) -> bool:
    """Return whether the test file named before the block takes blocks of its page."""
    test = ROOT / block.said
    text = test.read_text() if block.mark == "run" and test.is_file() else ""
    return "run_by(__file__" in text and Path(block.page).name in text


def test_every_code_block_is_run_by_a_test_or_says_why_not() -> None:
    languages = {"bash", "go", "js", "lua", "python", "sh", "sql", "yaml"}
    pages = [page.relative_to(ROOT).as_posix() for page in PAGES if page.is_relative_to(DOCS)]
    code = [block for page in ["README.md", *pages] for block in blocks(page)]
    code = [block for block in code if block.language in languages]
    assert len(code) > 200
    missing = [block for block in code if not (block.mark == "not run" or _is_run(block))]
    assert [f"{block.page}:{block.line}" for block in missing] == []
    named = [block.said for block in code if block.mark == "not run"]
    tests = {path for reason in named for path in re.findall(r"tests/[\w/]+(?:\.py)?", reason)}
    assert [path for path in tests if not (ROOT / path).exists()] == []


def test_a_block_without_a_comment_or_with_a_wrong_one_is_run_by_no_test() -> None:
    page = "docs/jobs.md"
    rows = [("run", "tests/test_examples.py"), ("", ""), ("run", "tests/test_absent.py")]
    rows.append(("run", "tests/test_layers.py"))
    made = [Block(page, 1, "", "python", "", "", mark, said) for mark, said in rows]
    assert [_is_run(block) for block in made] == [True, False, False, False]


def _long_lines(page: Path) -> list[str]:
    """Return the lines above 100 characters outside of tables, code and generated parts."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"<!-- (.+?): generated -->.*?<!-- end of \1 -->", "", text, flags=re.DOTALL)
    lines = text.splitlines()
    return [line for line in lines if len(line) > 100 and not line.startswith(("|", "`GLIBC"))]


def test_lines_of_the_sources_have_at_most_100_characters() -> None:
    sources = [page for page in PAGES if not page.read_text().startswith("<!-- generated")]
    assert [(page, line) for page in sources for line in _long_lines(page)] == []
