"""Check the Spark packages that a job downloads, and Sparks without packages."""

import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from korvet.spark.pipeline.errors import MissingRuntime
from korvet.spark.pipeline.maven_packages import AVRO, package_settings, runtime_package
from korvet.spark.pipeline.spark_session import error_text
from tests.spark.spark_sessions import environment


@pytest.fixture(autouse=True)
def outside_spark_submit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)


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
