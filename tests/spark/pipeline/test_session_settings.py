"""Check the settings of a job's Spark: of spark-submit, and the packages to download."""

import json
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from korvet.spark.pipeline.errors import MissingRuntime
from korvet.spark.pipeline.spark_session import (
    AVRO,
    error_text,
    package_settings,
    runtime_package,
    session_settings,
    submitted_settings,
)
from korvet.spark.pipeline.table_location import parse_location
from tests.spark.spark_sessions import environment


@pytest.fixture(autouse=True)
def outside_spark_submit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    monkeypatch.delenv("KORVET_SPARK_MASTER", raising=False)


def test_a_named_package_is_not_downloaded_twice() -> None:
    conf = {"spark.jars.packages": "io.delta:delta-spark_4.1_2.13:4.4.0,org.example:mine:1"}
    found = package_settings("delta", conf, avro=True)
    named = found["spark.jars.packages"].split(",")
    assert named[:2] == conf["spark.jars.packages"].split(",")
    assert [each.split(":")[1] for each in named[2:]] == ["spark-avro_2.13"]


def test_parquet_and_running_java_need_no_download(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert package_settings("parquet", {}, avro=False) == {}
    assert package_settings("iceberg", {"spark.jars": "/lib/iceberg.jar"}, avro=False) == {}
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")  # set by spark-submit
    assert package_settings("iceberg", {}, avro=True) == {}


def test_packages_have_a_separate_cache_unless_conf_sets_ivy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    found = package_settings("delta", {}, avro=False)
    assert Path(found["spark.jars.ivySettings"]).is_file()
    assert found["spark.jars.ivy"] == "/cache/korvet/ivy"
    assert "spark.jars.ivy" not in package_settings(
        "delta", {"spark.jars.ivySettings": "/mine.xml"}, avro=False
    )


@pytest.mark.spark
def test_a_pom_without_its_jar_in_the_local_maven_repository_is_no_obstacle(
    tmp_path: Path,
) -> None:
    group, name, version = AVRO.split(":")
    folder = tmp_path.joinpath(".m2", "repository", *group.split("."), name, version)
    folder.mkdir(parents=True)
    (folder / f"{name}-{version}.pom").write_text(
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        f"<groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version>"
        "</project>"
    )
    program = (
        "from korvet.spark.pipeline.spark_session import open_session\n"
        "spark = open_session(None, app='test', conf={}, avro=True)\n"
        "print(spark._jvm.Class.forName('org.apache.spark.sql.avro.AvroUtils').getName())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env=environment()
        | {
            "JAVA_TOOL_OPTIONS": f"-Duser.home={tmp_path}",
            "XDG_CACHE_HOME": str(tmp_path / "cache"),
        },
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert list((tmp_path / "cache" / "korvet" / "ivy" / "jars").glob("*spark-avro*.jar"))


def test_each_spark_gets_the_runtime_that_was_made_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for spark, made_for in (("4.1.3", "4.1"), ("4.2.1", "4.2")):
        monkeypatch.setattr(pyspark, "__version__", spark)
        assert runtime_package("delta").startswith(f"io.delta:delta-spark_{made_for}_2.13:")


@pytest.mark.parametrize("table_format", ["delta", "iceberg"])
def test_a_spark_without_a_runtime_is_rejected_before_it_starts(
    monkeypatch: pytest.MonkeyPatch, table_format: str
) -> None:
    monkeypatch.setattr(pyspark, "__version__", "4.3.0")
    with pytest.raises(MissingRuntime, match=r"PySpark 4\.3\.0: take one of 4\.1.*korvet\[lake\]"):
        package_settings(table_format, {}, avro=False)
    mine = {"spark.jars.packages": f"org.example:{runtime_name(table_format)}_9:1"}
    found = package_settings(table_format, mine, avro=False)
    assert found["spark.jars.packages"] == mine["spark.jars.packages"]


def runtime_name(table_format: str) -> str:
    return {"delta": "delta-spark", "iceberg": "iceberg-spark-runtime-4.3"}[table_format]


def test_error_text_is_javas_message_without_py4js_prefix() -> None:
    error = RuntimeError(
        "An error occurred while calling o7.sql.\n: java.lang.NoSuchMethodError: x()\n\tat y"
    )
    assert error_text(error) == "java.lang.NoSuchMethodError: x()"
    assert error_text(RuntimeError("no\n\nmore")) == "no"


CLUSTER = {
    "spark.master": "spark://cluster:7077",
    "spark.driver.memory": "8g",
    "spark.sql.shuffle.partitions": "64",
    "spark.sql.session.timeZone": "Europe/Zurich",
    "spark.sql.extensions": "org.example.Extensions",
}


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
