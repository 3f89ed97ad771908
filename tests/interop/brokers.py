"""The broker under test: a Korvet process, or the running broker at KORVET_TEST_BOOTSTRAP.

With KORVET_TEST_BOOTSTRAP=HOST:PORT (for example an Apache Kafka) the tests run against that
broker. Tests that need Korvet's own process or its Redis are then not collected.
"""

import os
import select
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.support.ports import free_port

EXTERNAL = os.environ.get("KORVET_TEST_BOOTSTRAP", "")
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "connections.max.stall.ms": "30000",
}
"""Settings of every broker unless a test sets others: by default a new group waits 3 s, and a
broker that a busy machine does not run for 1 s closes its connections."""
SHORT_SESSION_MS = 6000 if EXTERNAL else 1500
LISTENING = "listening on "
PATIENCE = 60.0
LAYOUTS = [(form, mode) for form in ("record", "batch") for mode in ("time", "dense")]


@dataclass
class Broker:
    """A Korvet process; `address` is the bootstrap server of its clients."""

    folder: Path
    settings: dict[str, str] = field(default_factory=dict)
    options: tuple[str, ...] = ()
    address: str = ""
    source: Path | None = None
    """The folder of another version of Korvet; None: the version under test."""
    _process: subprocess.Popen[str] | None = None

    @property
    def log(self) -> str:
        """The broker's standard error so far, over all its starts."""
        path = self.folder / "stderr.log"
        return path.read_text() if path.exists() else ""

    @property
    def pid(self) -> int:
        """The process id of the broker."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start the broker; after a stop or a kill at the same address, with the same data."""
        self.folder.mkdir(parents=True, exist_ok=True)
        words = [
            sys.executable,
            "-m",
            "korvet",
            "--listen",
            self.address or f"127.0.0.1:{free_port()}",
        ]
        words += ["--data-dir", str(self.folder / "data"), *self.options]
        for name, value in (SETTINGS | self.settings).items():
            words += ["--set", f"{name}={value}"]
        with (self.folder / "stderr.log").open("a") as log:
            self._process = subprocess.Popen(
                words,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
                cwd=self.source,
                env=None if self.source is None else os.environ | {"PYTHONPATH": str(self.source)},
            )
        self.address = self._first_line().removeprefix(LISTENING).strip()

    def stop(self) -> int:
        """Stop the broker with SIGTERM and return its exit code."""
        return self._end(signal.SIGTERM)

    def terminate(self) -> None:
        """Send SIGTERM to the broker."""
        assert self._process is not None
        self._process.terminate()

    def ended(self) -> int:
        """Wait for the end of a broker that got SIGTERM, and return its exit code."""
        assert self._process is not None
        code = self._process.wait(PATIENCE)
        self._forget()
        return code

    def kill(self) -> None:
        """Kill the broker with SIGKILL; a Redis that it started may keep running."""
        assert self._process is not None
        self._process.kill()
        self._forget()

    def kill_everything(self) -> None:
        """Kill the broker and every process that it started, with SIGKILL."""
        assert self._process is not None
        started = psutil.Process(self._process.pid).children(recursive=True)
        self._process.kill()
        for process in started:
            process.kill()
        psutil.wait_procs(started, PATIENCE)
        self._forget()

    def __enter__(self) -> "Broker":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop the broker if it runs."""
        if self._process is not None:
            self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> int:
        assert self._process is not None
        self._process.send_signal(number)
        try:
            return self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            raise
        finally:
            self._forget()

    def _forget(self) -> None:
        assert self._process is not None and self._process.stdout is not None
        self._process.wait(PATIENCE)
        self._process.stdout.close()
        self._process = None

    def _first_line(self) -> str:
        assert self._process is not None and self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], PATIENCE)
        line = self._process.stdout.readline() if ready else ""
        if not line.startswith(LISTENING):
            os.killpg(self._process.pid, signal.SIGKILL)
            self._forget()
            raise RuntimeError(f"the broker did not start: {line!r}\n{self.log}")
        return line


class Brokers:
    """Brokers by their settings, each started at its first use."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: dict[tuple[tuple[str, str], ...], Broker] = {}

    def serving(self, **settings: str) -> Broker:
        """Return the one broker with these settings (underscores for dots), shared by all tests."""
        if EXTERNAL:
            return Broker(self._folder, address=EXTERNAL)
        named = {name.replace("_", "."): value for name, value in settings.items()}
        key = tuple(sorted(named.items()))
        if key not in self._running:
            broker = Broker(self._folder / f"broker-{len(self._running)}", named)
            broker.start()
            self._running[key] = broker
        return self._running[key]

    def close(self) -> list[str]:
        """Stop all brokers and return the tracebacks they logged: no request may cause one."""
        for broker in self._running.values():
            broker.close()
        logs = [broker.log for broker in self._running.values()]
        return [log[log.index("Traceback") :][:4000] for log in logs if "Traceback" in log]
