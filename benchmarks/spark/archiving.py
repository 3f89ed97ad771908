"""Archive to Parquet in one shot, and verify: `python -m benchmarks.spark.archiving --redis URL`.

One JSON line a case, as of `python -m benchmarks.spark`, whose case `parquet` on a Kafka is what
to compare with. Nothing else should run on the machine.
"""

import argparse
from pathlib import Path

from benchmarks.spark.__main__ import folder, report
from benchmarks.spark.filling import fill_korvet, korvet_target
from korvet.pipeline.archive import Archiver, Job
from korvet.pipeline.places import parse
from korvet.pipeline.session import open_session
from korvet.pipeline.table import Making, open_table
from korvet.pipeline.verify import verify
from korvet.spark.options import Connection


def main() -> None:
    """Measures both layouts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--redis", required=True)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=5)
    given = parser.parse_args()
    spark = open_session(None, app="benchmark", master="local[2]", conf={})
    connection = Connection(given.redis)
    for form in ("batch", "record"):
        target = korvet_target(given.redis, form)
        fill_korvet(given.redis, target, given.records)
        job = Job(connection, (f"bench-{form}",))

        def archive(into: str, job: Job = job) -> None:
            table = open_table(spark, parse(into, "parquet"), Making())
            assert Archiver(spark, table, job).catch_up(lambda _: None) == given.records

        def archive_once() -> None:
            with folder() as out:
                archive(str(Path(out) / "lake"))

        with folder() as kept:
            lake = str(Path(kept) / "lake")
            archive(lake)
            table = open_table(spark, parse(lake, "parquet"))

            def verify_once(topic: str = job.topics[0], table: object = table) -> None:
                assert verify(spark, table, connection, [topic]).equal  # type: ignore[arg-type]

            report(target.name, "archive", archive_once, given.runs)
            report(target.name, "verify", verify_once, given.runs)
    spark.stop()


if __name__ == "__main__":
    main()
