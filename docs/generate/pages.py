"""Fill the generated parts of pages, and write the pages that are generated as a whole.

A part is the text between `<!-- NAME: generated -->` and `<!-- end of NAME -->`. With `--check`
nothing is written: the exit code is 1 if a page is stale.
"""

import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from docs.generate import commands, faults, keys, log_events, needs, protocol, scripts, settings

ROOT = Path(__file__).parents[1]

PARTS: dict[str, Callable[[], str]] = {
    "commands": commands.render,
    "options": settings.options,
    "first settings": settings.first,
    "settings": settings.settings,
    "topic configs": settings.topic_configs,
    "group configs": settings.group_configs,
    "faults": faults.render,
    "accepted settings": settings.accepted_settings,
    "keys": keys.render,
    "log events": log_events.render,
    "metrics": settings.metrics,
    "needs": needs.render,
    "scripts": scripts.table,
}


def whole() -> dict[str, str]:
    """Return the text of each page that is generated as a whole, by its path in docs."""
    families = {f"scripts/{name}.md": scripts.page(name) for name in scripts.families()}
    return {"protocol.md": protocol.render(), **families}


def fill(page: str) -> str:
    """Return the page with its generated parts renewed."""
    for name, render in PARTS.items():
        begin, end = f"<!-- {name}: generated -->\n", f"<!-- end of {name} -->"
        before, found, rest = page.partition(begin)
        if found:
            _, closed, after = rest.partition(end)
            if not closed:
                raise ValueError(f"{begin.strip()} is never closed by {end}")
            page = before + begin + "\n" + render() + "\n" + end + after
    return page


def stale(root: Path = ROOT) -> Iterator[tuple[Path, str]]:
    """Yield each page that differs from its sources, with its new text."""
    pages = whole()
    for path in sorted(root.rglob("*.md")):
        if path.relative_to(root).as_posix() not in pages:
            text = path.read_text(encoding="utf-8")
            filled = fill(text)
            if filled != text:
                yield path, filled
    for name, text in pages.items():
        path = root / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            yield path, text


def main(arguments: Iterable[str]) -> int:
    """Write the stale pages, or report them with --check. Return the exit code."""
    found = list(stale())
    for path, text in found:
        if "--check" in arguments:
            sys.stderr.write(f"{path.relative_to(ROOT)} is stale: run make docs\n")
        else:
            path.write_text(text, encoding="utf-8")
    return 1 if found and "--check" in arguments else 0
