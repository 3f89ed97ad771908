"""Run the faults until each cell has that many seeds, and write `results.json`."""

import argparse
import sys
import tempfile
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

import msgspec

from tests.faults.judge import RESULTS, Cell, Outcome, report
from tests.faults.table import FAULTS
from tests.interop.lost_programs import CLIENTS, words
from tests.support.programs import builder


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--seeds", type=int, default=20, help="the runs of each cell")
    parser.add_argument("--again", action="store_true", help="forget the results of earlier runs")
    parser.add_argument("--only", default="", help="a part of the fault's name")
    parser.add_argument("--setting", default="")
    parser.add_argument("--jobs", type=int, default=1, help="the runs at one time")
    parser.add_argument("--write", action="store_true", help="replace these in results.json")
    parser.add_argument("--clients", nargs="*", choices=CLIENTS, default=[], help="consume too")
    chosen = parser.parse_args()
    known = msgspec.json.decode(RESULTS.read_bytes(), type=list[Cell])
    results = {(cell.fault, cell.setting): cell for cell in known}
    wanted = [(fault, setting) for fault, row in FAULTS.items() for setting in row.promises]
    asked = [
        (fault, setting)
        for fault, setting in wanted
        if chosen.only in fault and chosen.setting in ("", setting)
    ]
    anomalies: list[str] = []
    with (
        tempfile.TemporaryDirectory(prefix="kf-programs-") as built,
        ProcessPoolExecutor(chosen.jobs, get_context("spawn")) as pool,
    ):
        programs = {client: words(client, builder(Path(built))) for client in chosen.clients}
        for place in asked:
            if chosen.again or place not in results:
                results[place] = Cell(*place)
        running: dict[Future[Outcome], Cell] = {}
        for seed in range(chosen.seeds):
            for place in asked:
                if seed >= results[place].runs:
                    running[pool.submit(report, *place, seed, programs)] = results[place]
        for ended in as_completed(running):
            if error := ended.exception():
                # The servers of this run did not do what the fault needs: it says nothing.
                sys.stdout.write(f"{running[ended].fault} | {running[ended].setting} | {error!r}\n")
                continue
            running[ended].add(ended.result(), with_others=bool(programs))
            anomalies += ended.result().anomalies
            if chosen.write:
                rows = [results[place] for place in wanted if place in results]
                text = msgspec.json.format(msgspec.json.encode(rows), indent=1)
                RESULTS.write_bytes(text + b"\n")
    return int(bool(anomalies))


if __name__ == "__main__":
    sys.exit(main())
