"""Run the faults with many seeds, in turn, and write `results.json`."""

import argparse
import sys
import tempfile
from pathlib import Path

import msgspec

from tests.faults.judge import RESULTS, Cell, run
from tests.faults.world import FAULTS, PERSISTENCE

SHAPES = [("dense", "record"), ("time", "record"), ("dense", "batch"), ("time", "batch")]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--only", default="", help="a part of the fault's name")
    parser.add_argument("--persistence", default="")
    parser.add_argument("--write", action="store_true", help="write results.json")
    chosen = parser.parse_args()
    cells: list[Cell] = []
    for fault, row in FAULTS.items():
        for persistence in PERSISTENCE:
            if not getattr(row, persistence) or chosen.only not in fault:
                continue
            if chosen.persistence not in ("", persistence):
                continue
            cell = Cell(fault, persistence)
            for seed in range(chosen.first, chosen.first + chosen.seeds):
                mode, form = SHAPES[seed % len(SHAPES)]
                with tempfile.TemporaryDirectory(prefix="kf-") as folder:
                    outcome = run(Path(folder), fault, persistence, mode, form, seed)
                cell.add(outcome)
                where = f"{fault} | {persistence} | {mode} {form} | seed {seed}"
                sys.stdout.write(f"{where} | {outcome}\n")
                sys.stdout.flush()
            cells.append(cell)
    if chosen.write:
        RESULTS.write_bytes(msgspec.json.format(msgspec.json.encode(cells), indent=1) + b"\n")
    return int(any(cell.anomalies for cell in cells))


sys.exit(main())
