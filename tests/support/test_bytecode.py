"""Where the bytecode of the tests' processes goes."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.bytecode import folder_for


@pytest.mark.parametrize("has_plugin", [True, False])
def test_a_run_that_has_no_cache_to_write_to_has_a_folder_of_its_own(has_plugin: bool) -> None:
    def refuse(_: str) -> Path:
        raise PermissionError

    ends: list[Callable[[], None]] = []
    config: Any = SimpleNamespace(
        pluginmanager=SimpleNamespace(has_plugin=lambda _: has_plugin),
        cache=SimpleNamespace(mkdir=refuse),
        add_cleanup=ends.append,
    )
    folder = Path(folder_for(config))
    assert folder.is_dir()
    for end in ends:
        end()
    assert not folder.exists()
