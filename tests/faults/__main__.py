"""Run the faults with many seeds, in turn, and write `results.json`."""

import argparse
import sys
import tempfile
from pathlib import Path

import msgspec

from tests.faults.judge import RESULTS, Cell, run
from tests.faults.table import FAULTS
from tests.interop.lost_programs import CLIENTS, words
from tests.support.programs import builder

SHAPES = [("dense", "record"), ("time", "record"), ("dense", "batch"), ("time", "batch")]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument(
        "--first", type=int, default=0, help="the first seed: above 0, results are added"
    )
    parser.add_argument("--only", default="", help="a part of the fault's name")
    parser.add_argument("--setting", default="")
    parser.add_argument("--write", action="store_true", help="replace these in results.json")
    parser.add_argument("--clients", nargs="*", choices=CLIENTS, default=[], help="consume too")
    chosen = parser.parse_args()
    known = msgspec.json.decode(RESULTS.read_bytes(), type=list[Cell])
    results = {(cell.fault, cell.setting): cell for cell in known}
    anomalies: list[str] = []
    folder = Path(tempfile.mkdtemp(prefix="kf-programs-"))
    programs = {client: words(client, builder(folder)) for client in chosen.clients}
    wanted = [(fault, setting) for fault, row in FAULTS.items() for setting in row.promises]
    for fault, setting in wanted:
        if chosen.only not in fault or chosen.setting not in ("", setting):
            continue
        if not chosen.first:
            results.pop((fault, setting), None)
        cell = results.setdefault((fault, setting), Cell(fault, setting))
        before = len(cell.anomalies)
        for seed in range(chosen.first, chosen.first + chosen.seeds):
            mode, form = SHAPES[seed % len(SHAPES)]
            with tempfile.TemporaryDirectory(prefix="kf-") as folder:
                outcome = run(Path(folder), fault, setting, mode, form, seed, programs)
            cell.add(outcome, with_others=bool(programs))
            where = f"{fault} | {setting} | {mode} {form} | seed {seed}"
            sys.stdout.write(f"{where} | {outcome}\n")
            sys.stdout.flush()
        anomalies += cell.anomalies[before:]
        if chosen.write:
            rows = [results[place] for place in wanted if place in results]
            RESULTS.write_bytes(msgspec.json.format(msgspec.json.encode(rows), indent=1) + b"\n")
    return int(bool(anomalies))


sys.exit(main())
