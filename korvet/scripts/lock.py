"""`lua/scripts.lock`: one line a script, `name  version  sha1`.

`python -m korvet.scripts.lock` updates the file, and the calls that are generated from the headers
(`korvet/scripts/generate.py`). It refuses a script whose text changed under a
locked version: brokers in the field run that version, and one name and version must mean one text.
`--rewrite` declares that no release has the version yet. `--check` only checks.
"""

import sys
from collections.abc import Mapping
from functools import cache
from importlib.resources.abc import Traversable
from pathlib import Path

from korvet.scripts import bundle, generate


def render(root: Traversable) -> str:
    """Return the text of an up-to-date lock."""
    bundles = [bundle.load(name, root) for name in bundle.names(root)]
    return "".join(f"{b.name}  {b.version}  {b.sha1}\n" for b in bundles)


def read(root: Traversable) -> dict[str, tuple[int, str]]:
    """Return name to version and sha1, as locked; empty without a lock."""
    path = root / "scripts.lock"
    rows = (line.split() for line in path.read_text().splitlines()) if path.is_file() else ()
    return {name: (int(version), sha1) for name, version, sha1 in rows}


@cache
def shipped() -> Mapping[str, str]:
    """Return the sha1 of each of Korvet's scripts: the texts take time and memory to build."""
    root = bundle.default_root()
    return {name: sha1 for name, (_, sha1) in read(root).items()} or {
        name: bundle.load(name).sha1 for name in bundle.names()
    }


def conflicts(root: Traversable) -> list[str]:
    """Return one sentence for each script whose version already means another text."""
    locked = read(root)
    found = []
    for name in locked.keys() & set(bundle.names(root)):
        version, sha1 = locked[name]
        current = bundle.load(name, root)
        if current.version < version:
            found.append(f"{name} has version {current.version}, locked is the later {version}")
        elif current.version == version and current.sha1 != sha1:
            found.append(f"{name} changed under version {version}: raise it in the header")
    return sorted(found)


def stale(root: Traversable) -> list[str]:
    """Return one sentence for each line that `make lock` would add, change or remove."""
    locked = read(root)
    found = [f"{name} is locked and has no file" for name in locked.keys() - bundle.names(root)]
    for name in bundle.names(root):
        version = bundle.load(name, root).version
        if version > locked.get(name, (0, ""))[0]:
            found.append(f"{name} version {version} is not locked yet: make lock")
    return sorted(found)


def main(arguments: list[str]) -> int:
    """Update or check the lock; return the exit code."""
    root = Path(str(bundle.default_root()))
    calls = root.parent / "korvet" / "scripts" / "calls"
    wrong = [] if "--rewrite" in arguments else conflicts(root)
    if "--check" in arguments:
        wrong += stale(root)
        wrong += generate.stale(calls) if calls.is_dir() else []
    elif not wrong:
        (root / "scripts.lock").write_text(render(root))
        if calls.is_dir():
            generate.write(calls)
    sys.stderr.writelines(f"{sentence}\n" for sentence in wrong)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
