"""Check that each name a script uses of a library exists: Lua fails only when the line runs."""

import re
from pathlib import Path

import pytest

LUA = Path(__file__).parents[2] / "lua"
REQUIRE = re.compile(r'local (\w+) = require\("lib\.(\w+)"\)')
PROVIDES = re.compile(r"^(?:function M\.|M\.)(\w+)|, M\.(\w+)", re.MULTILINE)


def provided(library: str) -> set[str]:
    """Return every name of the library's table."""
    text = (LUA / "lib" / f"{library}.lua").read_text()
    if text.startswith(f"--- lib.{library}  constants"):
        return set(re.findall(r"^  ([A-Z0-9_]+) = ", text, re.MULTILINE))
    return {name for pair in PROVIDES.findall(text) for name in pair if name}


@pytest.mark.parametrize(
    "path", sorted(LUA.glob("*/*.lua")), ids=lambda path: f"{path.parent.name}.{path.stem}"
)
def test_every_name_used_of_a_library_is_there(path: Path) -> None:
    code = "\n".join(
        line for line in path.read_text().splitlines() if not line.lstrip().startswith("--")
    )
    for local, library in REQUIRE.findall(code):
        used = set(re.findall(rf"(?<![\w.]){local}\.(\w+)", code))
        assert used <= provided(library), f"{library}: {sorted(used - provided(library))}"
