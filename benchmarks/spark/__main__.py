"""Count, sum, Parquet, stream and write on Spark, beside Spark's Kafka connector on a Kafka.

    python -m benchmarks.spark --redis redis://localhost:6379 [--kafka HOST:PORT] [--records N]

Fills topics `bench-record` and `bench-batch` (four partitions, values of 100 B), the same on the
Kafka, and prints one JSON line a case: seconds of the first run and the median of the others.
Nothing else should run on the machine. With --kafka Spark fetches its connector from Maven.
"""

import argparse
import json
import shutil
import statistics
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.spark.filling import Target, fill_kafka, fill_korvet, kafka_target, korvet_target
from tests.spark.sessions import session

RUNS = 5


def main() -> None:
    """Runs the cases that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--redis", required=True)
    parser.add_argument("--kafka")
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=RUNS)
    given = parser.parse_args()
    conf = {"spark__sql__shuffle__partitions": "2"}
    if given.kafka:
        import pyspark

        package = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}"
        conf["spark__jars__packages"] = package
    with session("local[2]", **conf) as spark:
        targets = [korvet_target(given.redis, form) for form in ("batch", "record")]
        for target in targets:
            fill_korvet(given.redis, target, given.records)
        if given.kafka:
            targets.append(kafka_target(given.kafka))
            fill_kafka(given.kafka, targets[-1], given.records)
        source = rows_to_write(spark, given.records // 2)
        for target in targets:
            for name, case in cases(spark, target, source, given.records).items():
                report(target.name, name, case, given.runs)


def cases(spark: Any, target: Target, source: Any, records: int) -> dict[str, Callable[[], None]]:
    """What is measured, by name."""

    def read() -> Any:
        return spark.read.format(target.format).options(**target.reading).load()

    def count() -> None:
        assert read().count() == records

    def sum_of_lengths() -> None:
        assert read().selectExpr("sum(length(value))").first()[0] == records * 100

    def parquet() -> None:
        with folder() as out:
            read().write.parquet(f"{out}/out")

    def stream() -> None:
        with folder() as out:
            frame = spark.readStream.format(target.format)
            frame = frame.options(**target.reading).option("startingOffsets", "earliest").load()
            query = frame.writeStream.format("parquet").option("path", f"{out}/out")
            query = query.option("checkpointLocation", f"{out}/check").trigger(availableNow=True)
            query.start().awaitTermination()

    def write() -> None:
        topic = target.fresh(f"bench-{uuid.uuid4().hex}")
        writer = source.write.format(target.format).mode("append").options(**target.writing)
        writer.option("topic", topic).save()

    return {
        "count": count,
        "sum of lengths": sum_of_lengths,
        "parquet": parquet,
        "stream to parquet": stream,
        "write half as many": write,
    }


def rows_to_write(spark: Any, count: int) -> Any:
    """Rows of 100 B, made once and held by Spark."""
    rows = spark.range(count, numPartitions=2).selectExpr(
        "cast(id as string) key", "lpad(cast(id as string), 100, 'x') value"
    )
    rows = rows.cache()
    rows.count()
    return rows


def report(target: str, name: str, case: Callable[[], None], runs: int) -> None:
    """One line: the first run, and the median of the others."""
    taken = []
    for _ in range(runs + 1):
        begun = time.perf_counter()
        case()
        taken.append(round(time.perf_counter() - begun, 2))
    median = round(statistics.median(taken[1:]), 2)
    line = {"target": target, "case": name, "first_s": taken[0], "median_s": median}
    print(json.dumps(line), flush=True)


class folder:
    """A folder for one run."""

    def __enter__(self) -> str:
        self._path = tempfile.mkdtemp(prefix="korvet-bench-")
        return self._path

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(Path(self._path), ignore_errors=True)


if __name__ == "__main__":
    main()
