"""The send buffers of a child process's Unix sockets."""

import ctypes
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from korvet.store import send_buffers
from korvet.store.send_buffers import SEND_BYTES, enlarge

CHILD = """
import socket, sys
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen()
print("ready", flush=True)
end, _ = listener.accept()
end.setblocking(False)
for line in sys.stdin:
    sent = 0
    try:
        while sent < 1 << 22:
            sent += end.send(bytes(1 << 16))
    except BlockingIOError:
        pass
    print(sent, flush=True)
"""


class Child:
    """A process that sends as much as its socket takes."""

    def __init__(self, path: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", CHILD, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self.process.stdout is not None and self.process.stdin is not None
        self.out, self.input = self.process.stdout, self.process.stdin
        assert self.out.readline() == b"ready\n"
        self.end = socket.socket(socket.AF_UNIX)
        self.end.connect(str(path))

    def sent(self) -> int:
        """Return how many bytes the socket has taken; they are read then."""
        self.input.write(b"\n")
        self.input.flush()
        sent = int(self.out.readline())
        left = sent
        while left:
            left -= len(self.end.recv(left))
        return sent

    def close(self) -> None:
        self.end.close()
        self.input.close()
        self.process.wait(10)
        self.out.close()


@pytest.fixture
def child(tmp_path: Path) -> Iterator[Child]:
    found = Child(tmp_path / "s")
    try:
        yield found
    finally:
        found.close()


@pytest.mark.skipif(sys.platform != "linux", reason="a system call of Linux")
def test_a_childs_socket_takes_a_whole_reply(child: Child) -> None:
    before = child.sent()
    assert before < SEND_BYTES
    enlarge(child.end)
    if child.sent() == before:  # the system may refuse it
        process = os.pidfd_open(child.process.pid)
        refused = ctypes.CDLL(None).syscall(send_buffers._PIDFD_GETFD, process, 0, 0)
        os.close(process)
        assert refused < 0
    else:
        assert child.sent() >= SEND_BYTES


def test_the_socket_of_a_process_that_is_no_child_is_left_alone(
    child: Child, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(send_buffers, "_parent_of", lambda pid: 1)
    before = child.sent()
    enlarge(child.end)
    assert child.sent() == before


def test_other_sockets_and_a_child_that_has_ended_are_no_error(child: Child) -> None:
    with socket.socket() as other:
        enlarge(other)
    child.process.kill()
    child.process.wait(10)
    enlarge(child.end)
