"""Archive to Parquet in one run, and verify: `python -m benchmarks.spark.archiving --redis URL`.

Prints one JSON line per case like `python -m benchmarks.spark`, whose case `parquet` on a Kafka is
the comparison: the first run of a session, and the median of the others. To make each first run
the first of its session, give one --target and one --case at a time. Run nothing else on the
machine.
"""

import argparse
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.spark.__main__ import Case, folder, report
from benchmarks.spark.filling import fill_korvet, korvet_target
from korvet.spark.options import Connection
from korvet.spark.pipeline.archive import ArchiveJob, Archiver, open_table
from korvet.spark.pipeline.spark_session import open_session
from korvet.spark.pipeline.table_location import parse_location
from korvet.spark.pipeline.verify import verify_archive
from tests.spark.spark_sessions import environment

FORMS = ("batch", "record")
CASES = ("archive", "verify")


def main() -> None:
    """Run the selected cases."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--redis", required=True)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--target", choices=FORMS, action="append")
    parser.add_argument("--case", choices=CASES, action="append")
    parser.add_argument("--lakes", default=f"{tempfile.gettempdir()}/korvet-bench-lakes")
    given = parser.parse_args()
    os.environ.update(environment())
    spark = open_session(None, app="benchmark", master="local[2]", conf={})
    for form in given.target or FORMS:
        target = korvet_target(given.redis, form)
        fill_korvet(given.redis, target, given.records)
        for case in given.case or CASES:
            run = (_archive if case == "archive" else _verify)(spark, given, form)
            report(target.name, case, Case(run), given.runs)
    spark.stop()


def _into(spark: Any, given: argparse.Namespace, form: str, lake: Path) -> int:
    """Archive into the lake and return the number of records."""
    table = open_table(spark, parse_location(str(lake), "parquet"), "bytes")
    job = ArchiveJob(Connection(given.redis), (f"bench-{form}",))
    return Archiver(spark, table, job).catch_up(lambda _: None)


def _archive(spark: Any, given: argparse.Namespace, form: str) -> Callable[[str], None]:
    def run(_: str) -> None:
        with folder() as out:
            assert _into(spark, given, form, Path(out, "lake")) == given.records

    return run


def _verify(spark: Any, given: argparse.Namespace, form: str) -> Callable[[str], None]:
    """Verify an existing lake if there is one: the session is then fresh."""
    lake = Path(given.lakes, form)
    _into(spark, given, form, lake)
    table = open_table(spark, parse_location(str(lake), "parquet"))

    def run(_: str) -> None:
        verdict = verify_archive(spark, table, Connection(given.redis), [f"bench-{form}"])
        assert verdict.equal and verdict.rows == given.records, verdict

    return run


if __name__ == "__main__":
    main()
