"""Count, sum, Parquet, stream and write on Spark, on Korvet and on a Kafka for comparison.

python -m benchmarks.spark --redis redis://localhost:6379 [--kafka HOST:PORT]
[--connector VERSION|JARS] [--records N]
[--target batch|record|kafka ...] [--case NAME ...] [--runs N]

Fills topics `bench-record` and `bench-batch` (four partitions, values of 100 B), and the same on
the Kafka. Prints one JSON line per case: seconds of the first run, the median of the others, and
the median CPU seconds of Spark's Java, its Python processes and Redis. Run nothing else on the
machine. Java gets faster with every case of a session: to compare targets, give each --target its
own session. With --kafka Spark downloads its connector from Maven.
"""

import argparse
import json
import os
import shutil
import statistics
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.spark.filling import Target, fill_kafka, fill_korvet, kafka_target, korvet_target
from korvet.store.sync_store import SyncStore
from korvet.testing.bench.load import TICK, cpu_seconds, process_name, process_stat, process_tree
from tests.spark.spark_sessions import session

RUNS = 5
WRITE = "write half as many"
CASES = ("count", "sum of lengths", "parquet", "stream to parquet", WRITE)


def main() -> None:
    """Run the selected cases."""
    given = _arguments()
    conf = {"spark__sql__shuffle__partitions": "2"}
    if given.kafka:
        conf |= connector(given.connector)
    wanted = given.target or ["batch", "record", *(["kafka"] if given.kafka else [])]
    with session("local[2]", **conf) as spark:
        writes = WRITE in (given.case or CASES)
        source = rows_to_write(spark, given.records // 2) if writes else None
        for name in wanted:
            if name == "kafka":
                target = kafka_target(given.kafka)
                fill_kafka(given.kafka, target, given.records)
            else:
                target = korvet_target(given.redis, name)
                fill_korvet(given.redis, target, given.records)
            found = cases(spark, target, source, given.records)
            for title in given.case or found:
                report(target.name, title, found[title], given.runs, given.redis)


def connector(given: str | None) -> dict[str, str]:
    """Return the setting that loads Spark's Kafka connector: a Maven version, or jars."""
    import pyspark

    if given and given.endswith(".jar"):
        return {"spark__jars": given}
    package = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{given or pyspark.__version__}"
    return {"spark__jars__packages": package}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--redis", required=True)
    parser.add_argument("--kafka")
    parser.add_argument("--connector", help="its version if not PySpark's, or its jars, a,b.jar")
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--target", action="append", choices=("batch", "record", "kafka"))
    parser.add_argument("--case", action="append", choices=CASES)
    given = parser.parse_args()
    if "kafka" in (given.target or ()) and not given.kafka:
        parser.error("which Kafka? Give its address with --kafka.")
    return given


def nothing() -> str:
    """Prepare nothing."""
    return ""


class Case(NamedTuple):
    """A measured function, and the preparation that returns its topic."""

    run: Callable[[str], None]
    make: Callable[[], str] = nothing


def cases(spark: Any, target: Target, source: Any, records: int) -> dict[str, Case]:
    """Return the cases by name."""

    def read() -> Any:
        return spark.read.format(target.format).options(**target.reading).load()

    def count(_: str) -> None:
        assert read().count() == records

    def sum_of_lengths(_: str) -> None:
        assert read().selectExpr("sum(length(value))").first()[0] == records * 100

    def parquet(_: str) -> None:
        with folder() as out:
            read().write.parquet(f"{out}/out")

    def stream(_: str) -> None:
        with folder() as out:
            frame = spark.readStream.format(target.format)
            frame = frame.options(**target.reading).option("startingOffsets", "earliest").load()
            query = frame.writeStream.format("parquet").option("path", f"{out}/out")
            query = query.option("checkpointLocation", f"{out}/check").trigger(availableNow=True)
            query.start().awaitTermination()

    def topic() -> str:
        return target.fresh(f"bench-{uuid.uuid4().hex}")

    def write(topic: str) -> None:
        writer = source.write.format(target.format).mode("append").options(**target.writing)
        writer.option("topic", topic).save()

    read_only = map(Case, (count, sum_of_lengths, parquet, stream))
    return dict(zip(CASES, (*read_only, Case(write, topic)), strict=True))


def rows_to_write(spark: Any, count: int) -> Any:
    """Return rows of 100 B, created once and cached by Spark."""
    rows = spark.range(count, numPartitions=2).selectExpr(
        "cast(id as string) key", "lpad(cast(id as string), 100, 'x') value"
    )
    rows = rows.cache()
    rows.count()
    return rows


def report(target: str, name: str, case: Case, runs: int, redis: str | None = None) -> None:
    """Print one line: the first run, and the medians of the others."""
    taken, spent = [], []
    for _ in range(runs + 1):
        made = case.make()
        before = spent_by(redis)
        begun = time.perf_counter()
        case.run(made)
        taken.append(time.perf_counter() - begun)
        spent.append([new - old for new, old in zip(spent_by(redis), before, strict=True)])
    java, python, in_redis = (statistics.median(each) for each in zip(*spent[1:], strict=True))
    line = {
        "target": target,
        "case": name,
        "first_s": round(taken[0], 2),
        "median_s": round(statistics.median(taken[1:]), 2),
        "java_cpu_s": round(java, 2),
        "python_cpu_s": round(python, 2),
        "redis_cpu_s": round(in_redis, 2),
        "worker_mb": _largest_worker([os.getpid()]) >> 20,
    }
    print(json.dumps(line), flush=True)


def spent_by(redis: str | None) -> tuple[float, float, float]:
    """Return the CPU seconds so far of Spark's Java, all Python processes, and Redis."""
    java = _java_seconds([os.getpid()])
    return java, cpu_seconds([os.getpid()]) - java, redis_seconds(redis)


def redis_seconds(url: str | None) -> float:
    """Return the CPU seconds of Redis so far."""
    if url is None:
        return 0.0
    with SyncStore.connect(url) as store:
        lines = store.command("INFO", "cpu").decode().split()
    usage = dict(line.split(":") for line in lines if ":" in line)
    return float(usage["used_cpu_user"]) + float(usage["used_cpu_sys"])


class folder:
    """Return a directory for one run."""

    def __enter__(self) -> str:
        self._path = tempfile.mkdtemp(prefix="korvet-bench-")
        return self._path

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(Path(self._path), ignore_errors=True)


def _java_seconds(roots: Iterable[int]) -> float:
    """Return the CPU seconds of the tree's Java processes, without their children."""
    stats = {pid: process_stat(pid) for pid in process_tree(roots) if process_name(pid) == "java"}
    return sum(sum(map(int, fields[11:13])) for fields in stats.values() if fields) / TICK


def _largest_worker(roots: Iterable[int]) -> int:
    """Return the max peak resident memory of a Python process below `roots`, bytes."""
    largest = 0
    for pid in process_tree(roots) - set(roots):
        try:
            lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        except OSError:
            continue
        fields = dict(line.split(":\t", 1) for line in lines)
        if fields["Name"].startswith("python"):
            largest = max(largest, int(fields.get("VmHWM", "0 kB").split()[0]) << 10)
    return largest


if __name__ == "__main__":
    main()
