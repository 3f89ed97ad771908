"""Check the broker as a service of systemd: its notifications, and a valid unit file."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from korvet.cli import systemd
from tests.support.programs import check, program

UNIT = Path(__file__).parents[2] / "deploy/systemd/korvet.service"


def listen(address: str) -> socket.socket:
    """Open the socket that receives the notifications, like systemd."""
    found = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    found.bind(address)
    found.settimeout(60)
    return found


@pytest.mark.processes
@pytest.mark.parametrize("workers", ["1", "2"])
def test_systemd_is_notified_of_start_health_and_stop(tmp_path: Path, workers: str) -> None:
    address = str(tmp_path / "notify")
    environment = {**os.environ, "NOTIFY_SOCKET": address, "WATCHDOG_USEC": "1000000"}
    words = [sys.executable, "-m", "korvet", "--listen", "127.0.0.1:0", "--ops", "127.0.0.1:0"]
    words += ["--data-dir", str(tmp_path / "data"), "--workers", workers]
    with listen(address) as received:
        process = subprocess.Popen(
            words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        states = [received.recv(100)]
        while b"READY=1" not in states or states[-1] != b"WATCHDOG=1":
            states.append(received.recv(100))
        process.terminate()
        while states[-1] != b"STOPPING=1":
            states.append(received.recv(100))
        process.communicate(timeout=60)
    assert process.returncode == 0
    assert states.count(b"READY=1") == states.count(b"STOPPING=1") == 1


def test_an_abstract_address_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"korvet-test-{os.getpid()}"
    monkeypatch.setenv("NOTIFY_SOCKET", f"@{name}")
    with listen(f"\0{name}") as received:
        systemd.notify(systemd.READY)
        assert received.recv(100) == b"READY=1"
        systemd.forget()
        systemd.notify(systemd.READY)
        received.setblocking(False)
        with pytest.raises(BlockingIOError):
            received.recv(100)


@pytest.mark.parametrize("address", ["", "relative", "/no/such/socket"])
def test_a_notification_that_cannot_be_sent_is_no_error(
    monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    systemd.notify(systemd.READY)


@pytest.mark.parametrize(
    ("microseconds", "pid", "wanted"),
    [
        ("30000000", "", 15.0),
        ("30000000", "mine", 15.0),
        ("30000000", "1", None),
        ("", "", None),
        ("0", "", None),
        ("soon", "", None),
    ],
)
def test_the_watchdog_is_fed_twice_per_interval(
    monkeypatch: pytest.MonkeyPatch, microseconds: str, pid: str, wanted: float | None
) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", microseconds)
    monkeypatch.setenv("WATCHDOG_PID", str(os.getpid()) if pid == "mine" else pid)
    assert systemd.watchdog_s() == wanted


@pytest.mark.interop
def test_the_unit_is_valid_and_confined(tmp_path: Path) -> None:
    unit = tmp_path / "korvet.service"
    executable = str(Path(sys.executable).with_name("korvet"))
    unit.write_text(UNIT.read_text().replace("/opt/korvet/bin/korvet", executable))
    done = subprocess.run(
        [program("systemd-analyze"), "verify", str(unit)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    check(["systemd-analyze", "security", "--offline=true", "--threshold=20", str(unit)])
