"""Debian's promtool, and a Prometheus that scrapes brokers."""

import json
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from tests.support.ports import free_port
from tests.support.programs import program
from tests.test_deploy import DEPLOY

INTERVAL = "5s"
"""The interval of rates; Prometheus scrapes each second."""
VARIABLES = {"$__rate_interval": INTERVAL, "$job": ".*", "$instance": ".*"}
VARIABLES |= {"$topic": ".*", "$group": ".*"}


def promtool(*words: str, stdin: str = "", code: int = 0) -> str:
    """Run promtool and return its output; it must exit with `code`."""
    done = subprocess.run(
        [program("promtool"), *words],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def filled_in(query: str) -> str:
    """Return the query as Grafana sends it."""
    for name, value in VARIABLES.items():
        query = query.replace(name, value)
    return query


class Prometheus:
    """A running Prometheus."""

    def __init__(self, port: int) -> None:
        self._port = port

    def ask(self, query: str) -> list[Any]:
        words = urllib.parse.urlencode({"query": query})
        url = f"http://127.0.0.1:{self._port}/api/v1/query?{words}"
        with urllib.request.urlopen(url, timeout=10) as answer:
            rows: list[Any] = json.load(answer)["data"]["result"]
            return rows

    def has(self, query: str) -> bool:
        """Return whether the query has rows; False before Prometheus serves."""
        try:
            return bool(self.ask(query))
        except OSError:
            return False


@contextmanager
def scraping(ops: int, folder: Path) -> Iterator[Prometheus]:
    """Scrape both pages of an ops port each second."""
    port = free_port()
    jobs = [
        {
            "job_name": job,
            "metrics_path": path,
            "static_configs": [{"targets": [f"127.0.0.1:{ops}"]}],
        }
        for job, path in (("korvet", "/metrics"), ("kafka", "/metrics/kafka"))
    ]
    config = folder / "prometheus.yml"
    config.write_text(
        yaml.safe_dump(
            {
                "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
                "rule_files": [str(DEPLOY / "prometheus/korvet.rules.yml")],
                "scrape_configs": jobs,
            }
        )
    )
    words = [f"--config.file={config}", f"--storage.tsdb.path={folder / 'tsdb'}"]
    words += [f"--web.listen-address=127.0.0.1:{port}"]
    with (folder / "prometheus.log").open("w") as log:
        process = subprocess.Popen([program("prometheus"), *words], stdout=log, stderr=log)
        try:
            yield Prometheus(port)
        finally:
            process.terminate()
            process.wait()
