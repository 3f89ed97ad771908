"""Run the faults with many seeds, in turn, and write `results.json`."""

import argparse
import sys
import tempfile
from pathlib import Path

import msgspec

from tests.faults.judge import RESULTS, Cell, Outcome, run
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
    wanted = [(fault, setting) for fault, row in FAULTS.items() for setting in row.promises]
    with tempfile.TemporaryDirectory(prefix="kf-programs-") as built:
        programs = {client: words(client, builder(Path(built))) for client in chosen.clients}
        for fault, setting in wanted:
            if chosen.only not in fault or chosen.setting not in ("", setting):
                continue
            if not chosen.first:
                results.pop((fault, setting), None)
            cell = results.setdefault((fault, setting), Cell(fault, setting))
            for seed in range(chosen.first, chosen.first + chosen.seeds):
                outcome = _outcome(fault, setting, seed, programs)
                cell.add(outcome, with_others=bool(programs))
                anomalies += outcome.anomalies
            if chosen.write:
                rows = [results[place] for place in wanted if place in results]
                text = msgspec.json.format(msgspec.json.encode(rows), indent=1)
                RESULTS.write_bytes(text + b"\n")
    return int(bool(anomalies))


def _outcome(fault: str, setting: str, seed: int, programs: dict[str, list[str]]) -> Outcome:
    """Run a fault with the seed's kind of topics, and print the outcome."""
    mode, form = SHAPES[seed % len(SHAPES)]
    is_tiered = seed // len(SHAPES) % 2 == 1
    with tempfile.TemporaryDirectory(prefix="kf-") as folder:
        outcome = run(Path(folder), fault, setting, mode, form, seed, programs, is_tiered=is_tiered)
    topics = f"{mode} {form}{' tiered' * is_tiered}"
    sys.stdout.write(f"{fault} | {setting} | {topics} | seed {seed} | {outcome}\n")
    sys.stdout.flush()
    return outcome


sys.exit(main())
