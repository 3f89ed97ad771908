"""Pages, and parts of pages, that are written from tables: `python -m korvet.docs`.

A part stands between `<!-- NAME: written by make docs -->` and `<!-- end of NAME -->`; what is
around it is written by people. `--check` only looks, and exits with 1 when something is stale.
"""

import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from korvet import api_docs, key_docs
from korvet.config.broker_config import OPTIONS, Config
from korvet.config.broker_settings import BROKER
from korvet.config.group_settings import GROUP
from korvet.config.setting import Setting
from korvet.config.topic_settings import FROM_BROKER, TOPIC
from korvet.metrics import Metrics
from korvet.scripts import docs as scripts


def options() -> str:
    """The start options as a table."""
    rows = ["| Option | Default | |", "|---|---|---|"]
    defaults = Config()
    for name, sentence in OPTIONS.items():
        value = getattr(defaults, name.replace("-", "_"))
        rows.append(f"| `--{name}` | {_code(None if value is None else str(value))} | {sentence} |")
    return "\n".join(rows) + "\n"


def settings() -> str:
    """The broker's settings as a table."""
    rows = ["| Setting | Default | Changes while running | |", "|---|---|---|---|"]
    for setting in BROKER.values():
        dynamic = "yes" if setting.dynamic else "no"
        rows.append(
            f"| `{setting.name}` | {_code(setting.default)} | {dynamic} | {_says(setting)} |"
        )
    return "\n".join(rows) + "\n"


def topic_configs() -> str:
    """The topic configs as a table, with the broker settings that give their defaults."""
    rows = ["| Config | Default | From the broker's | |", "|---|---|---|---|"]
    for setting in TOPIC.values():
        stand_ins = ", ".join(f"`{stand_in.name}`" for stand_in in FROM_BROKER[setting.name])
        rows.append(
            f"| `{setting.name}` | {_code(setting.default)} | {stand_ins} | {_says(setting)} |"
        )
    return "\n".join(rows) + "\n"


def group_configs() -> str:
    """The group configs as a table."""
    rows = ["| Config | Default | |", "|---|---|---|"]
    for setting in GROUP.values():
        rows.append(f"| `{setting.name}` | {_code(setting.default)} | {_says(setting)} |")
    return "\n".join(rows) + "\n"


def metrics() -> str:
    """The metrics as a table, under the names that Prometheus sees."""
    rows = ["| Metric | Kind | Labels | |", "|---|---|---|---|"]
    for family in Metrics().snapshot():
        name = f"{family.name}_total" if family.kind == "counter" else family.name
        labels = ", ".join(family.labels)
        rows.append(f"| `{name}` | {family.kind} | {labels} | {family.sentence} |")
    return "\n".join(rows) + "\n"


PARTS: dict[str, Callable[[], str]] = {
    "options": options,
    "settings": settings,
    "topic configs": topic_configs,
    "group configs": group_configs,
    "keys": key_docs.render,
    "metrics": metrics,
}
WHOLE: dict[str, Callable[[], str]] = {
    "protocol.md": api_docs.render,
    "scripts.md": scripts.render,
}


def fill(page: str) -> str:
    """The page with each of its parts as the tables have it now."""
    for name, render in PARTS.items():
        begin, end = f"<!-- {name}: written by make docs -->\n", f"<!-- end of {name} -->"
        before, found, rest = page.partition(begin)
        if found:
            _, closed, after = rest.partition(end)
            if not closed:
                raise ValueError(f"{begin.strip()} is never closed by {end}")
            page = before + begin + "\n" + render() + "\n" + end + after
    return page


def stale(root: Path) -> Iterator[tuple[Path, str]]:
    """Each page that is not as the tables have it, and its right text."""
    for path in sorted([*root.glob("*.md"), root.parent / "README.md"]):
        text = path.read_text(encoding="utf-8")
        whole = WHOLE.get(path.name)
        right = whole() if whole else fill(text)
        if right != text:
            yield path, right
    for name, render in WHOLE.items():
        if not (root / name).exists():
            yield root / name, render()


def main(arguments: Iterable[str]) -> int:
    """The pages are up to date, or with --check are named on stderr; returns the exit code."""
    found = list(stale(Path(__file__).parents[1] / "docs"))
    for path, right in found:
        if "--check" in arguments:
            sys.stderr.write(f"{path.name} is stale: make docs\n")
        else:
            path.write_text(right, encoding="utf-8")
    return 1 if found and "--check" in arguments else 0


def _says(setting: Setting) -> str:
    return setting.documentation.replace("|", "\\|")


def _code(text: str | None) -> str:
    return "" if text is None else f"`{text}`"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
