"""Check that the examples run as their first lines say, each in a new process."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from korvet.topics.table import Topic
from tests.spark.data_source_driver import read
from tests.spark.spark_sessions import PROJECT, QUICK, SMALL, environment
from tests.spark.topic_log import Log

pytestmark = pytest.mark.spark

EXAMPLES = PROJECT / "examples"
MINUTE = 60_000


def clicks(log: Log, topic: Topic, moments: list[tuple[str, int]]) -> None:
    """Append a click per user and time, and a record that is not a click."""
    values = [json.dumps({"user": user, "ms": at}).encode() for user, at in moments]
    log.append(topic, 0, [(0, 5, None, value, []) for value in [*values, b"no click"]])


def run(*words: str, log: Log, folder: Path) -> None:
    """Run the command and expect exit code 0."""
    binaries = str(Path(sys.executable).parent)
    env = environment()
    env |= {"KORVET_REDIS_URL": log.url, "PATH": f"{binaries}:{env['PATH']}"}
    env["SPARK_CONF_DIR"] = str(folder)
    settings = {"spark.driver.extraJavaOptions": QUICK, "spark.ui.enabled": "false", **SMALL}
    lines = [f"{name} {value}\n" for name, value in settings.items()]
    (folder / "spark-defaults.conf").write_text("".join(lines))
    done = subprocess.run(words, cwd=folder, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]


def test_the_windowed_job_writes_the_totals_of_minutes_that_have_passed(
    log: Log, tmp_path: Path
) -> None:
    moments = [("a", 1), ("a", 2), ("b", 3), ("a", MINUTE + 1), ("b", 5 * MINUTE)]
    topic = log.create("clicks", 2)
    log.create("clicks-per-minute", 2)
    script = str(EXAMPLES / "windows.py")
    # The second run starts with the watermark of the first.
    for some in (moments, [("c", 5 * MINUTE)]):
        clicks(log, topic, some)
        run(sys.executable, script, str(tmp_path / "check"), "--once", log=log, folder=tmp_path)
    rows = read(log.url, subscribe="clicks-per-minute", columns="key,value")
    found = [(row["key"], json.loads(row["value"])) for row in rows]
    totals = sorted((value["user"], value["minute"][14:16], value["clicks"]) for _, value in found)
    assert totals == [("a", "00", 2), ("a", "01", 1), ("b", "00", 1)]
    assert all(key.decode() == value["user"] for key, value in found)


def test_the_declarative_pipeline_builds_its_tables(log: Log, tmp_path: Path) -> None:
    clicks(log, log.create("clicks", 2), [("a", 1), ("a", 2), ("b", 3)])
    shutil.copytree(EXAMPLES / "declarative", tmp_path / "declarative")
    spec = tmp_path / "declarative" / "spark-pipeline.yml"
    spec.write_text(spec.read_text().replace("/tmp/korvet-clicks", str(tmp_path / "storage")))
    run("spark-pipelines", "run", "--spec", str(spec), log=log, folder=tmp_path)
    import pyarrow.parquet as pq

    tables = tmp_path / "spark-warehouse"
    totals = pq.read_table(tables / "by_user").to_pylist()
    assert sorted((row["user"], row["clicks"]) for row in totals) == [("a", 2), ("b", 1)]
    assert pq.read_table(tables / "clicks").num_rows == 4
    assert pq.read_table(tables / "cleaned").num_rows == 3
