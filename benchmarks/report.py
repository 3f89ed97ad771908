"""Print result lines, and Markdown tables of them."""

import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

Line = Mapping[str, object]

COLUMNS = {
    "p1k": "records_per_s",
    "p1k4": "records_per_s",
    "p100": "records_per_s",
    "p100lz4": "records_per_s",
    "psmall": "requests_per_s",
    "psmall32": "requests_per_s",
    "f1k": "records_per_s",
    "f100": "records_per_s",
    "c1k": "records_per_s",
    "c100": "records_per_s",
}
"""Cases that report a rate, and the name of its figure: higher is better."""

LATENCIES = ("ack_p50_ms", "ack_p99_ms", "end_to_end_p50_ms", "end_to_end_p99_ms")
ABOUT = ("case", "label")


def emit(line: Line) -> None:
    """Print the line as JSON and flush standard output."""
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def load(path: Path) -> list[Line]:
    """Return the result lines of a file, without its other lines."""
    rows = [line for line in path.read_text().splitlines() if line.startswith("{")]
    return [json.loads(row) for row in rows]


def ratios(ours: Iterable[Line], theirs: Iterable[Line], names: tuple[str, str]) -> str:
    """Return a table of both brokers and their ratio.

    If a case has several lines, the last one counts.
    """
    left, right = _last(ours), _last(theirs)
    rows = [
        f"| case | {names[0]} | {names[1]} | ratio | CPU s/GB | CPU s/GB, {names[1]} |",
        "|---|---|---|---|---|---|",
    ]
    for case, measure in COLUMNS.items():
        if case in left and case in right:
            rows.append(_rate_row(case, left[case], right[case], measure))
    if "lat" in left and "lat" in right:
        for name in LATENCIES:
            mine, other = _number(left["lat"], name), _number(right["lat"], name)
            rows.append(f"| lat {name} | {mine} | {other} | {_ratio(mine, other)} | | |")
    return "\n".join(rows) + "\n"


def table(lines: Iterable[Line]) -> str:
    """Return a table with a row for each case and a column for each label."""
    labels: dict[str, dict[str, Line]] = {}
    for line in lines:
        labels.setdefault(str(line["label"]), {})[str(line["case"])] = line
    rows = ["| case | " + " | ".join(labels) + " |", "|---|" + "---|" * len(labels)]
    first = [*COLUMNS, "lat", "start", "memory"]
    others = {case: None for of in labels.values() for case in of if case not in first}
    for case in [*first, *others]:
        cells = [_cell(case, of.get(case)) for of in labels.values()]
        if any(cells):
            rows.append(f"| {case} | " + " | ".join(cells) + " |")
    return "\n".join(rows) + "\n"


def _cell(case: str, line: Line | None) -> str:
    if line is None:
        return ""
    if case == "lat":
        return " / ".join(str(line[name]) for name in LATENCIES) + " ms"
    if case == "start":
        return f"{line['seconds_to_metadata']} s; {line['resident_mb']} MB"
    if case == "memory":
        return f"{line['redis_bytes_per_record']} B a record"
    if case not in COLUMNS:
        figures = (f"{name} {value}" for name, value in line.items() if name not in ABOUT)
        return ", ".join(figures)
    text = f"{_number(line, COLUMNS[case]):,.0f}/s"
    if case.startswith("psmall"):
        return text + (f", {line['cpu_us_per_request']} us" if "cpu_us_per_request" in line else "")
    text += f", {line['cpu_s_per_gb']} s/GB" if "cpu_s_per_gb" in line else ""
    return text + (f", from {line['reads']}" if "reads" in line else "")


def _rate_row(case: str, mine: Line, other: Line, measure: str) -> str:
    left, right = _number(mine, measure), _number(other, measure)
    spent = [line.get("cpu_s_per_gb", "") for line in (mine, other)]
    cells = [
        case + (f" ({mine['reads']})" if "reads" in mine else ""),
        f"{left:,.0f}/s",
        f"{right:,.0f}/s",
        _ratio(left, right),
        *map(str, spent),
    ]
    return "| " + " | ".join(cells) + " |"


def _ratio(mine: float, other: float) -> str:
    return f"{mine / other:.2f}" if other else "-"


def _last(lines: Iterable[Line]) -> dict[str, Line]:
    return {str(line["case"]): line for line in lines}


def _number(line: Line, name: str) -> float:
    value = line[name]
    assert isinstance(value, int | float)
    return value
