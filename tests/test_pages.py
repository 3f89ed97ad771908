"""Run the tutorial, the cookbook and commands of other pages as printed."""

import sys
from pathlib import Path

import pytest

from tests.cli.test_serve import broker
from tests.spark.spark_sessions import QUICK, environment
from tests.support.pages import installed_pip, run_by, run_in_a_shell
from tests.support.ports import free_ports
from tests.support.redis_servers import server

TUTORIAL = "docs/tutorial.md"
COOKBOOK = "docs/cookbook.md"
ARCHIVE = "Archive the orders, and ask with SQL"
ORDERS = "korvet topics create orders --partitions 1; seq 9 | korvet produce orders\n"
PAGES = {
    "README.md": "",
    "docs/clients/index.md": "",
    "docs/concepts/choose.md": "",
    "docs/concepts/groups.md": ORDERS,
    "docs/concepts/layouts.md": ORDERS,
    "docs/concepts/transactions.md": ORDERS,
    "docs/migrating.md": "",
    "docs/operations/command-line.md": f"{ORDERS}korvet topics create copy --partitions 1",
    "docs/operations/deploy.md": "",
    "docs/quickstart.md": "",
    "docs/scripts/index.md": ORDERS,
    "docs/security/quotas.md": "",
    "docs/security/tls.md": "",
    "docs/tables.md": "korvet topics create stock --partitions 1 --config table.enable=true\n"
    "printf 'cups\\t3\\n' | korvet produce stock -f '%k\\t%s\\n'",
    "docs/tiered-storage.md": "korvet topics create orders --brokers 127.0.0.1:9092",
}
"""Pages whose commands need a broker in the folder, and what a reader of the page has done."""


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


@pytest.mark.interop
@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_a_page_run_as_printed(page: str, tmp_path: Path) -> None:
    (tmp_path / ".venv").symlink_to(Path(sys.prefix))
    with broker(cwd=tmp_path) as running:
        used = {
            "127.0.0.1:9092": f"127.0.0.1:{running.port}",
            "redis-cli -s korvet-data/redis.sock": "redis-cli",
            "redis-cli ": "redis-cli -s korvet-data/redis.sock ",
            "redis://localhost:6379": f"unix://{tmp_path}/korvet-data/redis.sock",
        }
        run_in_a_shell(run_by(__file__, page), tmp_path, used, before=PAGES[page])
        assert running.stop() == 0
