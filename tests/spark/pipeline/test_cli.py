"""Check the commands of `korvet pipeline`, on a shared Spark session."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError

from korvet.cli import run
from korvet.spark.pipeline import spark_session
from korvet.spark.pipeline.errors import PipelineError
from tests.spark.data_source_driver import read
from tests.spark.topic_log import Log, plain

# Py4J closes its sockets only when they are garbage-collected.
pytestmark = pytest.mark.filterwarnings("ignore")


class Kept:
    """The shared session, which no job can stop."""

    def __init__(self, spark: Any) -> None:
        self._spark = spark

    def __getattr__(self, name: str) -> Any:
        return getattr(self._spark, name)

    def stop(self) -> None:
        """Keep the session running."""


@pytest.fixture
def shared(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let jobs find a running Spark."""
    monkeypatch.setattr(spark_session, "open_session", lambda *_, **__: Kept(spark))


def job(log: Log, *words: str) -> int:
    return run(["pipeline", *words, "--redis", log.url])


def lines(capsys: pytest.CaptureFixture[str]) -> Sequence[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines() if line[0] == "{"]


@pytest.mark.spark
def test_a_topic_goes_to_a_lake_and_back(
    shared: None, log: Log, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = log.create("orders", 1, "batch", "dense", records=50)
    lake, html = str(tmp_path / "lake"), tmp_path / "orders.html"
    archive = ("archive", "orders", "--to", lake, "--delete-archived-before", "0s")
    assert job(log, *archive, "--value", "string", "--compact") == 0
    assert [(each["records"], each["trimmed"] > 0) for each in lines(capsys)] == [(50, True)]
    log.append(topic, 0, plain(30))
    assert job(log, "verify", "orders", lake) == 0
    assert "equal: 50 rows" in capsys.readouterr().out
    assert job(log, "verify", "orders", lake, "--json") == 0
    verdict = json.loads(capsys.readouterr().out)
    assert (verdict["equal"], verdict["rows"]) == (True, 50)
    assert [each["verdict"] for each in verdict["partitions"]] == ["equal"]
    assert job(log, "stats", "orders", "--html", str(html)) == 0
    assert "30 records" in html.read_text() and "30 records" in capsys.readouterr().out
    assert job(log, "stats", "orders", "--json") == 0
    assert [each["records"] for each in json.loads(capsys.readouterr().out)] == [30]
    log.create("again", 1, "record", "dense")
    assert job(log, "replay", lake, "--to", "again", "--rate", "5000", "--keep-timestamps") == 0
    assert [each["records"] for each in lines(capsys)] == [50]
    values = [row["value"] for row in read(log.url, subscribe="again")]
    assert values == [value for _, _, _, value, _ in plain(50)]


EARLY = {
    ("archive", "nope", "--to", "LAKE"): "There is no topic 'nope'; there are orders.",
    ("archive", "orders", "--to", "LAKE", "--value", "xml"): "--value must be one of bytes",
    ("archive", "orders", "--to", "LAKE", "--value", "avro"): "--avro-schema FILE belong together",
    ("archive", "orders", "--to", "LAKE", "--target-file-size", "big"): "a size such as 128m",
    ("archive", "orders", "--to", "LAKE", "--delete-archived-before", "soon"): "a time such as",
    ("verify", "orders", "LAKE"): "There is no archive at ",
    ("replay", "LAKE", "--to", "orders"): "There is no archive at ",
    ("replay", "LAKE", "--to", "nope"): "There is no topic 'nope'",
    ("stats", "nope"): "There is no topic 'nope'",
}


@pytest.mark.parametrize("words", EARLY)
def test_errors_that_need_no_spark_are_reported_before_it_starts(
    log: Log,
    tmp_path: Path,
    words: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(spark_session, "open_session", None)
    log.create("orders")
    lake = str(tmp_path / "lake")
    assert job(log, *(lake if word == "LAKE" else word for word in words)) == 2
    assert EARLY[words] in capsys.readouterr().err


@pytest.mark.parametrize("location", ["/nowhere/lake", "s3a://bucket/lake"])
def test_paths_of_delta_tables_are_left_to_spark(
    log: Log, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], location: str
) -> None:
    """Without a scheme it is a path of Spark's default file system, which may be another one."""
    log.create("orders")

    def started(*_: object, **__: object) -> None:
        raise PipelineError("Spark was asked")

    monkeypatch.setattr(spark_session, "open_session", started)
    assert job(log, "verify", "orders", location, "--format", "delta") == 2
    assert "Spark was asked" in capsys.readouterr().err


@pytest.mark.spark
def test_a_difference_is_an_exit_code(shared: None, log: Log, tmp_path: Path) -> None:
    topic = log.create("orders", 1, "batch", "dense")
    lake = str(tmp_path / "lake")
    assert job(log, "archive", "orders", "--to", lake) == 0
    log.append(topic, 0, plain(5))
    assert job(log, "verify", "orders", lake) == 1


@pytest.mark.spark
def test_a_repeating_job_ends_after_its_round_when_stopped(
    shared: None, log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = log.create("orders", 1, "batch", "dense", records=5)
    waited: list[float] = []

    def stop(seconds: float) -> bool:
        waited.append(seconds)
        log.append(topic, 0, plain(5))
        return len(waited) == 3

    monkeypatch.setattr("korvet.cli.pipeline._stopper", lambda: stop)
    lake = tmp_path / "lake"
    assert job(log, "archive", "orders", "--to", str(lake), "--every", "1h") == 0
    # The interval includes the time of the round itself.
    assert len(waited) == 3 and all(0 < each < 3600 for each in waited)
    assert len(list((lake / "data").iterdir())) == 3


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (Py4JNetworkError("Answer from Java side is empty"), "Spark's Java process ended"),
        (ConnectionRefusedError(111, "Connection refused"), "Spark's Java process ended"),
        (Py4JError("An error occurred while calling o1.x"), "Spark's Java process ended"),
        (
            Py4JError("An error occurred while calling o1.x. Trace:\nno such method"),
            "Spark failed: An error",
        ),
        (Py4JError("org.example.Table does not exist in the JVM"), "Spark failed: org.example"),
        (KeyError("a mistake of ours"), "KeyError: 'a mistake of ours'"),
    ],
)
def test_a_failed_job_has_another_exit_code_than_a_difference(
    log: Log,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: Exception,
    message: str,
) -> None:
    class Gone:
        """A session whose Java process is gone."""

        def stop(self) -> None:
            raise ConnectionRefusedError(111, "Connection refused")

    def ends(*_: object) -> None:
        raise error

    monkeypatch.setattr(spark_session, "open_session", lambda *_, **__: Gone())
    monkeypatch.setattr("korvet.spark.pipeline.archive.open_table", ends)
    log.create("orders")
    code = 3 if isinstance(error, KeyError) else 2
    assert job(log, "verify", "orders", str(tmp_path)) == code
    assert message in capsys.readouterr().err


def test_a_closed_output_pipe_is_not_a_failure_of_java(
    log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Idle:
        """A session that must not be used."""

        def stop(self) -> None:
            """Stop without an error."""

    def ends(*_: object) -> None:
        raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setattr(spark_session, "open_session", lambda *_, **__: Idle())
    monkeypatch.setattr("korvet.spark.pipeline.archive.open_table", ends)
    monkeypatch.setattr("korvet.cli._discard_output", lambda: 0)
    log.create("orders")
    assert job(log, "verify", "orders", str(tmp_path)) == 0
    assert not capsys.readouterr().err


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ("org.apache.X: a\nCaused by: java.io.IOException: No space left on device\n", "no space"),
        ("first\nCaused by: a.B: one\n\tat\nCaused by: java.io.C: Mkdirs failed", "Mkdirs failed"),
        ("korvet.spark.errors.DataLoss: orders-0: offsets are gone", "offsets are gone"),
    ],
)
def test_errors_of_spark_become_one_sentence(said: str, message: str) -> None:
    from pyspark.errors import PySparkException

    found = spark_session.plain_error(PySparkException(said))
    assert isinstance(found, PipelineError) and message in str(found) and "\n" not in str(found)


@pytest.mark.parametrize("java", [True, False])
def test_a_spark_that_does_not_start_reports_what_it_needs(
    java: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyspark.sql import SparkSession

    def exits(_: object) -> None:
        raise RuntimeError("[JAVA_GATEWAY_EXITED] Java gateway process exited.")

    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", exits)
    monkeypatch.setattr(spark_session, "_has_java", lambda: java)
    with pytest.raises(PipelineError, match="needs Java 17 or newer"):
        spark_session.open_session(None, app="test", conf={})
    with pytest.raises(PipelineError, match="with its packages a:b:1" if java else "Java 17"):
        spark_session.open_session(None, app="test", conf={"spark.jars.packages": "a:b:1"})
