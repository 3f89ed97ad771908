"""Count the hand-written source: `python -m benchmarks.source_size [COMMIT ...]`.

Generated files are left out. Each commit is read from git, without a checkout; none is the work
tree's HEAD.

- lines: of `korvet/` (Python, templates, style and scripts of pages), `lua/` and `tests/`
- files: of `korvet/`, without messages and handlers, which are one file an API
- small: modules below 100 lines with fewer than two importers
- wide: functions outside the command line with more than six parameters
- rooms, arrows: packages and modules at the top of `korvet/`, and their imports of each other
"""

import ast
import io
import re
import subprocess
import sys
import tarfile
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import PurePath

FOLDERS = ("korvet", "lua", "tests")
GENERATED = ("korvet/scripts/calls/", "lua/scripts.lock")
TEXT = {".py", ".lua", ".html", ".js", ".css"}
ONE_AN_API = ("korvet/wire/messages/", "korvet/handlers/")
SMALL = 100
WIDE = 6
_IMPORT = re.compile(r"^ *from (korvet[\w.]*) import (\([^)]*\)|.*)", re.MULTILINE)


def sources(commit: str) -> dict[str, str]:
    """Return the text of each hand-written file of a commit by its path."""
    archive = subprocess.run(
        ["git", "archive", commit, *FOLDERS], check=True, capture_output=True
    ).stdout
    found = {}
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        for member in tar:
            file = tar.extractfile(member)
            if file and PurePath(member.name).suffix in TEXT:
                found[member.name] = file.read().decode()
    return {path: text for path, text in found.items() if not path.startswith(GENERATED)}


def imports(text: str) -> Iterator[str]:
    """Yield the names of Korvet's modules, or of what they define, that a module imports."""
    for module, listed in _IMPORT.findall(text):
        names = (each.split()[0] for each in listed.strip("()").split(",") if each.strip())
        yield from (f"{module}.{name}" for name in names)


def importers(texts: Mapping[str, str]) -> Counter[str]:
    """Return for each module of `korvet/` how many others import it."""
    known = {module_name(path) for path in texts}
    found: Counter[str] = Counter()
    for path, text in texts.items():
        named = {name if name in known else name.rpartition(".")[0] for name in imports(text)}
        found.update(named - {module_name(path)})
    return found


def module_name(path: str) -> str:
    """Return the name of the module in a file."""
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def wide(texts: Mapping[str, str]) -> int:
    """Count the functions with more than six parameters, `self` not among them."""
    count = 0
    for path, text in texts.items():
        if path.startswith("korvet/cli/"):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                taken = [each.arg for each in (*node.args.args, *node.args.kwonlyargs)]
                count += len([name for name in taken if name not in ("self", "cls")]) > WIDE
    return count


def arrows(texts: Mapping[str, str]) -> set[tuple[str, str]]:
    """Return the imports of one room by another."""
    found = set()
    for path, text in texts.items():
        room = module_name(path).split(".")[1:2]
        for name in imports(text):
            other = name.split(".")[1:2]
            if room and other and room != other:
                found.add((room[0], other[0]))
    return found


def small(texts: Mapping[str, str]) -> set[str]:
    """Return the modules below 100 lines that fewer than two others import."""
    users = importers(texts)
    return {
        path
        for path, text in texts.items()
        if text.count("\n") < SMALL
        and users[module_name(path)] < 2
        and not path.startswith((*ONE_AN_API, *GENERATED))
        and not path.endswith(("__init__.py", "__main__.py"))
    }


def measure(commit: str) -> dict[str, int]:
    """Return the counts of a commit."""
    texts = sources(commit)
    korvet = {path: text for path, text in texts.items() if re.match(r"korvet/.*\.py$", path)}
    rows = {f"lines {name}": 0 for name in FOLDERS}
    for path, text in texts.items():
        rows[f"lines {path.split('/')[0]}"] += text.count("\n")
    between = arrows(korvet)
    return rows | {
        "files": len(korvet),
        "small": len(small(korvet)),
        "wide": wide(korvet),
        "top modules": sum(path.count("/") == 1 for path in korvet) - 2,
        "rooms": len({room for arrow in between for room in arrow}),
        "arrows": len(between),
    }


def main(commits: list[str]) -> int:
    """Print the counts of each commit; return the exit code."""
    columns = {commit: measure(commit) for commit in commits or ["HEAD"]}
    print("".join(f"{name:>14}" for name in ("", *columns)))
    for row in next(iter(columns.values())):
        print(f"{row:>14}" + "".join(f"{found[row]:>14,}" for found in columns.values()))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
