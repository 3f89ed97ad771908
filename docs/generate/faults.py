"""Generate the table of faults from the last long run of tests/faults."""

import json
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[2] / "tests" / "faults" / "results.json"
TABLES = [
    {"none": "no file", "everysec": "`everysec`", "always": "`always`"},
    {"memory": "`memory`", "replicas:1": "`replicas:1`"},
    {"embedded": "default", "fsync": "`fsync`"},
]
"""The columns of each table."""


def render() -> str:
    """Return the tables: what survives each fault, by the setting."""
    cells = {(row["fault"], row["setting"]): row for row in json.loads(RESULTS.read_text("utf-8"))}
    runs = [row["runs"] for row in cells.values()]
    others = sum(row.get("with_others", 0) for row in cells.values())
    return "\n".join(
        [
            f"Each cell has the worst of {min(runs)} to {max(runs)} runs; together they are"
            f" {sum(runs)} runs, {others} of them with consumers of the other clients.\n",
            *(_table(columns, cells) for columns in TABLES),
        ]
    )


def _table(columns: dict[str, str], cells: dict[tuple[str, str], dict[str, Any]]) -> str:
    lines = [
        f"| Fault | {' | '.join(columns.values())} |",
        f"|---{'|---' * len(columns)}|",
    ]
    for fault in dict.fromkeys(fault for fault, setting in cells if setting in columns):
        row = [_cell(cells.get((fault, setting))) for setting in columns]
        lines.append(f"| {fault} | {' | '.join(row)} |")
    return "\n".join(lines) + "\n"


def _cell(found: dict[str, Any] | None) -> str:
    if found is None:
        return ""
    kept = "all kept"
    if found["lost"]:
        kept = f"{found['lost']} lost{', noticed' if found['noticed'] else ''}"
    anomalies = "; an anomaly" if found["anomalies"] else ""
    return f"{kept}; {found['gap_s']:.1f} s{anomalies}"
