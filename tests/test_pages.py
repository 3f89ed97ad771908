"""Run the tutorial and the cookbook from top to bottom, as printed."""

from pathlib import Path

import pytest

from tests.spark.spark_sessions import QUICK, environment
from tests.support.pages import installed_pip, run_by, run_in_a_shell
from tests.support.ports import free_ports
from tests.support.redis_servers import server

TUTORIAL = "docs/tutorial.md"
COOKBOOK = "docs/cookbook.md"
ARCHIVE = "Archive the orders, and ask with SQL"


@pytest.mark.parametrize(
    "without",
    [
        pytest.param(ARCHIVE, marks=pytest.mark.interop),
        pytest.param("", marks=pytest.mark.spark),
    ],
    ids=["to the metrics", "to the end"],
)
def test_the_tutorial_runs_as_printed(tmp_path: Path, without: str) -> None:
    kafka, ops, http, prometheus = free_ports(4)
    used = {
        "korvet --preset": f"korvet --listen 127.0.0.1:{kafka} --ops 127.0.0.1:{ops} --preset",
        "127.0.0.1:9092": f"127.0.0.1:{kafka}",
        "127.0.0.1:9080": f"127.0.0.1:{ops}",
        "--port 8000": f"--port {http}",
        "127.0.0.1:8000": f"127.0.0.1:{http}",
        "127.0.0.1:9090": f"127.0.0.1:{prometheus}",
    }
    installed_pip(tmp_path)
    chosen = [block for block in run_by(__file__, TUTORIAL) if block.section != without]
    spark = {**environment(), "SPARK_SUBMIT_OPTS": QUICK}
    run_in_a_shell(chosen, tmp_path, used, spark)
    assert "Traceback" not in (tmp_path / "broker.log").read_text()


@pytest.mark.interop
def test_the_cookbook_runs_as_printed(tmp_path: Path) -> None:
    kafka, ops, secured, secured_ops, tls, tls_ops, store = free_ports(7)
    used = {
        "korvet > broker": f"korvet --listen 127.0.0.1:{kafka} --ops 127.0.0.1:{ops} > broker",
        "127.0.0.1:9092": f"127.0.0.1:{kafka}",
        "kafka:9092": f"127.0.0.1:{kafka}",
        "127.0.0.1:9080": f"127.0.0.1:{ops}",
        "127.0.0.1:9081": f"127.0.0.1:{secured_ops}",
        "127.0.0.1:9082": f"127.0.0.1:{tls_ops}",
        "127.0.0.1:9094": f"127.0.0.1:{secured}",
        "127.0.0.1:9093": f"127.0.0.1:{tls}",
        "localhost:6379": f"127.0.0.1:{store}",
        "redis-cli ": f"redis-cli -p {store} ",
    }
    with server("valkey", "--port", str(store)):
        run_in_a_shell(run_by(__file__, COOKBOOK), tmp_path, used)
    assert "Traceback" not in (tmp_path / "broker.log").read_text()
