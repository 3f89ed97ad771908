"""Read the code blocks of docs pages, and run them as printed.

A comment directly before a block says which test runs it, or why none does:

    <!-- run: tests/test_examples.py -->
    <!-- not run: it needs two machines -->

`<!-- run python: tests/test_examples.py -->` is for all blocks of the language that have no such
comment. `<!-- prints -->` before a block of text says that the blocks before it print that.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from doctest import ELLIPSIS, OutputChecker
from pathlib import Path

ROOT = Path(__file__).parents[2]
_FENCE = re.compile(
    r"(?:^<!-- (?P<mark>run|not run|prints)(?:: (?P<said>[^>]+?))? -->\n)?"
    r'^(?P<indent> *)```(?P<language>\w*)(?: title="(?P<title>[^"]+)")?\n'
    r"(?P<code>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
_OF_A_LANGUAGE = re.compile(r"^<!-- (run|not run) (\w+): ([^>]+?) -->$", re.MULTILINE)
_HEADING = re.compile(r"^## (.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A fenced code block of a page."""

    page: str
    line: int
    section: str
    language: str
    title: str
    code: str
    mark: str
    """`run`, `not run`, `prints`, or "" without a comment."""
    said: str
    """The test file, or the reason."""


def blocks(page: str) -> list[Block]:
    """Return the blocks of a page, which is a path below the project's folder."""
    text = (ROOT / page).read_text()
    of_language = {language: (mark, said) for mark, language, said in _OF_A_LANGUAGE.findall(text)}
    headings = [(found.start(), found[1]) for found in _HEADING.finditer(text)]
    rows = []
    for found in _FENCE.finditer(text):
        mark, said = found["mark"] or "", found["said"] or ""
        if not mark:
            mark, said = of_language.get(found["language"], ("", ""))
        before = [title for start, title in headings if start < found.start()]
        rows.append(
            Block(
                page,
                text.count("\n", 0, found.start("language")) + 1,
                before[-1] if before else "",
                found["language"],
                found["title"] or "",
                re.sub(f"^{found['indent']}", "", found["code"], flags=re.MULTILINE),
                mark,
                said,
            )
        )
    return rows


def run_by(test: str, page: str, language: str = "") -> list[Block]:
    """Return the blocks of a page that a test file has to run, and what they print."""
    name = Path(test).relative_to(ROOT).as_posix()
    return [
        block
        for block in blocks(page)
        if (block.mark == "prints" or (block.mark, block.said) == ("run", name))
        and language in ("", block.language)
    ]


_BEGINS = "--- output of "
_PIP = """#!{python}
import importlib.metadata, re, sys
for word in sys.argv[1:]:
    if word != "install" and not word.startswith("-"):
        importlib.metadata.version(re.match(r"[\\w-]+", word)[0])
"""


def installed_pip(folder: Path) -> None:
    """Write a pip for the shell that fails unless the named packages are installed already."""
    (folder / "bin").mkdir()
    (folder / "bin/pip").write_text(_PIP.format(python=sys.executable))
    (folder / "bin/pip").chmod(0o755)


def run_in_a_shell(
    chosen: Iterable[Block],
    folder: Path,
    replaced: Mapping[str, str],
    environment: Mapping[str, str] | None = None,
    before: str = "",
) -> None:
    """Run the blocks in one shell, in their order; write titled ones to files; compare the output.

    `before` is run first. `replaced` has printed addresses, which a test may not use, and those to
    use. Servers that the shell has started end with it.
    """
    script = ["set -eu", "trap 'kill $(jobs -p) 2>&- || :; wait' EXIT", before]
    expected: dict[str, str] = {}
    place = ""
    for block in chosen:
        code = block.code
        if block.mark == "prints":
            expected[place] = code  # of the block before it
        elif block.title:
            script.append(f"cat > {block.title} <<'END OF FILE'\n{code}END OF FILE")
        else:
            place = f"{block.page} line {block.line}"
            script.append(f"echo; echo '{_BEGINS}{place}'\n{code}")
    text = "\n".join(script)
    for address, used in replaced.items():
        text = text.replace(address, used)
    variables = {**os.environ, "PYTHONPATH": str(ROOT), **(environment or {})}
    variables.pop("KORVET_REDIS_URL", None)
    variables["PATH"] = f"{folder / 'bin'}:{Path(sys.executable).parent}:{variables['PATH']}"
    done = subprocess.run(
        ["bash", "-c", text],
        cwd=folder,
        env=variables,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    logs = "".join(f"\n{path.name}:\n{path.read_text()[-2000:]}" for path in folder.glob("*.log"))
    assert done.returncode == 0, done.stdout + done.stderr + logs
    parts = (part.partition("\n") for part in done.stdout.split(_BEGINS)[1:])
    reported = {at: text.rstrip("\n") + "\n" for at, _, text in parts}
    different = {
        at: reported[at]
        for at, lines in expected.items()
        if not OutputChecker().check_output(lines, reported[at], ELLIPSIS)
    }
    assert not different, "\n".join(f"{at} printed:\n{text}" for at, text in different.items())
