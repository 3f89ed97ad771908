"""Generate the table of faults from the last long run of tests/faults."""

import json
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[2] / "tests" / "faults" / "results.json"
COLUMNS = {"none": "no file", "everysec": "`everysec`", "always": "`always`"}


def render() -> str:
    """Return the table: what survives each fault, by Redis's persistence."""
    cells = {
        (row["fault"], row["persistence"]): row for row in json.loads(RESULTS.read_text("utf-8"))
    }
    lines = [
        f"| Fault | {' | '.join(COLUMNS.values())} |",
        f"|---{'|---' * len(COLUMNS)}|",
    ]
    for fault in dict.fromkeys(fault for fault, _ in cells):
        row = [_cell(cells.get((fault, persistence))) for persistence in COLUMNS]
        lines.append(f"| {fault} | {' | '.join(row)} |")
    return "\n".join(lines) + "\n"


def _cell(found: dict[str, Any] | None) -> str:
    if found is None:
        return ""
    kept = "all kept"
    if found["lost"]:
        kept = f"{found['lost']} lost{', noticed' if found['noticed'] else ''}"
    return f"{kept}; {found['gap_s']:.1f} s"
