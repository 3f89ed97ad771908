"""Check the memory limit of processes: that of the machine, or of a control group."""

import os
from pathlib import Path

import pytest

from korvet.embedded_redis.defaults import available_memory

GB = 1 << 30
MACHINE = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def groups(tmp_path: Path, text: str, files: dict[str, str]) -> tuple[Path, Path]:
    """Return the list of groups of a process, and the mount with these files."""
    for name, content in files.items():
        path = tmp_path / "mount" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    listed = tmp_path / "cgroup"
    listed.write_text(text)
    return listed, tmp_path / "mount"


@pytest.mark.parametrize(
    ("text", "files", "limit"),
    [
        ("0::/\n", {}, MACHINE),
        ("0::/\n", {"memory.max": "max\n"}, MACHINE),
        ("0::/\n", {"memory.max": "1048576\n"}, 1 << 20),
        ("0::/a/b\n", {"a/memory.max": "1048576\n", "a/b/memory.max": "max\n"}, 1 << 20),
        ("0::/a/b\n", {"a/memory.max": "2097152\n", "a/b/memory.max": "1048576\n"}, 1 << 20),
        # The path is the host's: in the container the mount is the group.
        ("0::/docker/1f\n", {"memory.max": "1048576\n"}, 1 << 20),
        ("4:memory:/\n", {"memory/memory.limit_in_bytes": "1048576\n"}, 1 << 20),
        ("4:cpu,memory:/x\n", {"memory/x/memory.limit_in_bytes": "1048576\n"}, 1 << 20),
        ("4:memory:/x\n", {"memory/memory.limit_in_bytes": "9223372036854771712\n"}, MACHINE),
        ("5:cpu:/x\n", {"memory/x/memory.limit_in_bytes": "1048576\n"}, MACHINE),
        ("0::/\n", {"memory.max": f"{MACHINE * 2}\n"}, MACHINE),
    ],
)
def test_the_lowest_limit_counts(
    tmp_path: Path, text: str, files: dict[str, str], limit: int
) -> None:
    assert available_memory(*groups(tmp_path, text, files)) == limit


def test_without_control_groups_it_is_the_machines_memory(tmp_path: Path) -> None:
    assert available_memory(tmp_path / "none", tmp_path / "nothing") == MACHINE
