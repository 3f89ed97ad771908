"""Check `korvet bench`: its batches are valid, and its rows run against a broker."""

import json
import os
import sys

import pytest

from korvet.cli import run
from korvet.testing import Broker
from korvet.testing.bench.payloads import CODECS, batch
from korvet.testing.bench.throughput import DEFAULT, LATENCY, MEASURES, RATES
from korvet.wire.records import check_produced, records_of


@pytest.mark.parametrize("codec", CODECS)
def test_a_batch_is_what_a_producer_sends(codec: str) -> None:
    made = batch(10, 100, codec)
    assert check_produced(made).records == 10
    assert [len(value or b"") for _, _, _, value, _ in records_of(made)] == [100] * 10


def test_every_row_says_what_it_measures() -> None:
    assert set(MEASURES) == {*RATES, LATENCY} and set(DEFAULT) <= set(MEASURES)


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
def test_rows_are_measured_and_their_topics_deleted(capsys: pytest.CaptureFixture[str]) -> None:
    with Broker() as running:
        limits = ["--seconds", "0.2", "--megabytes", "2", "--pid", str(os.getpid())]
        rows = ["--row", "p1k", "--row", "f1k", "--json"]
        assert run(["bench", running.bootstrap_servers, *limits, *rows]) == 0
        produced, fetched = json.loads(capsys.readouterr().out)
        assert (produced["row"], fetched["row"]) == ("p1k", "f1k")
        assert produced["records/s"] > 0 and fetched["MB/s"] > 0
        assert produced["cpu_s_per_gb"] > 0
        bad = ["--row", "p1k", "--config", "offset.mode=x"]
        assert run(["bench", running.bootstrap_servers, *bad]) == 2
        assert "Row p1k: the broker refused a request: CreateTopics" in capsys.readouterr().err
        assert run(["topics", "list", "--no-header", "--redis", running.redis_url]) == 0
        assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("127.0.0.1:1", "--row", "p1k"), "127.0.0.1:1 cannot be measured: Connection refused;"),
        (("here",), "the broker's address must be HOST:PORT, not 'here'"),
        (("--row", "x"), "there is no row 'x'; there are p1k,"),
    ],
)
def test_a_row_that_cannot_run_says_why(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], sentence: str
) -> None:
    assert run(["bench", *words]) == 2
    assert sentence in capsys.readouterr().err
