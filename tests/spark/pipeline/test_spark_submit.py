"""Check that jobs started by spark-submit run with its master and settings."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from korvet.spark.pipeline.spark_session import session_settings, submitted_settings
from korvet.spark.pipeline.table_location import parse_location
from tests.spark.spark_sessions import environment

CLUSTER = {
    "spark.master": "spark://cluster:7077",
    "spark.driver.memory": "8g",
    "spark.sql.shuffle.partitions": "64",
    "spark.sql.session.timeZone": "Europe/Zurich",
    "spark.sql.extensions": "org.example.Extensions",
}


@pytest.fixture(autouse=True)
def started_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    monkeypatch.delenv("KORVET_SPARK_MASTER", raising=False)


def test_a_job_runs_on_the_master_of_spark_submit() -> None:
    found = session_settings(None, master=None, conf={}, submitted=CLUSTER)
    assert found["spark.master"] == "spark://cluster:7077"
    assert found["spark.sql.shuffle.partitions"] == "64"
    assert found["spark.driver.memory"] == "8g"
    # Executors must reach the driver.
    assert "spark.driver.host" not in found and "spark.driver.bindAddress" not in found


def test_required_settings_override_spark_submit(tmp_path: Path) -> None:
    location = parse_location(str(tmp_path), "delta")
    found = session_settings(location, master=None, conf={}, submitted=CLUSTER)
    assert found["spark.sql.session.timeZone"] == "UTC"
    assert found["spark.sql.extensions"] == "io.delta.sql.DeltaSparkSessionExtension"


def test_options_of_the_job_override_everything() -> None:
    conf = {"spark.sql.shuffle.partitions": "3", "spark.driver.host": "10.0.0.1"}
    found = session_settings(None, master="local[2]", conf=conf, submitted=CLUSTER)
    assert found["spark.master"] == "local[2]" and found["spark.driver.memory"] == "8g"
    assert found["spark.sql.shuffle.partitions"] == "3" and found["spark.driver.host"] == "10.0.0.1"


def test_a_job_without_spark_submit_runs_locally() -> None:
    found = session_settings(None, master=None, conf={}, submitted=submitted_settings())
    assert found["spark.master"] == "local[*]" and found["spark.driver.host"] == "127.0.0.1"


@pytest.mark.spark
def test_settings_of_spark_submit_are_read(tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text(
        "import json\nfrom korvet.spark.pipeline.spark_session import submitted_settings\n"
        "print(json.dumps(submitted_settings()))\n"
    )
    words = ["--master", "local[3]", "--conf", "spark.sql.shuffle.partitions=7", str(script)]
    done = subprocess.run(
        [str(Path(sys.executable).parent / "spark-submit"), *words],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["spark.master"] == "local[3]" and found["spark.sql.shuffle.partitions"] == "7"
