"""The old clients: Java programs from Maven, a Node package from npm, and ZooKeeper."""

import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.interop.jvm import Jvm, prepared
from tests.support.ports import free_port
from tests.support.programs import Build, check

HERE = Path(__file__).parent


def old07(build: Build) -> Jvm:
    """Return the Java port of Kafka 0.7, and `Old07` compiled against it."""
    return prepared(build, HERE / "java/07")


def old08(build: Build, version: str) -> Jvm:
    """Return the clients and tools of Kafka 0.8."""
    return prepared(build, HERE / "java/08", f"-Dkafka={version}")


@dataclass(frozen=True)
class Node:
    """The npm package in the folder where it is installed."""

    folder: Path

    def run(self, *words: str) -> list[list[str]]:
        """Run `old07.js` and return the fields of each line of its output."""
        out = check(["node", "--no-deprecation", "old07.js", *words], self.folder, 240)
        return [line.split("\t") for line in out.splitlines()]


@dataclass
class ZooKeeper:
    """A ZooKeeper of one node that can be stopped and started again; its data is in a folder."""

    java: Jvm
    folder: Path
    port: int = field(default_factory=free_port)
    _process: "subprocess.Popen[str] | None" = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start ZooKeeper and wait until it answers `ruok`."""
        config = self.folder / "zoo.cfg"
        config.write_text(
            f"tickTime=200\nminSessionTimeout=400\nmaxSessionTimeout=60000\n"
            f"dataDir={self.folder}/data\nclientPort={self.port}\n"
            "clientPortAddress=127.0.0.1\nmaxClientCnxns=0\n"
        )
        self._process = self.java.start(
            "org.apache.zookeeper.server.quorum.QuorumPeerMain", str(config)
        )
        until = time.monotonic() + 60
        while not self._answers():
            assert self._process.poll() is None and time.monotonic() < until, "no ZooKeeper"
            time.sleep(0.02)

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1) as probe:
                probe.sendall(b"ruok")
                return probe.recv(4) == b"imok"
        except OSError:
            return False

    def stop(self) -> None:
        """Kill ZooKeeper. Its data stays."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(30)
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._process = None


@contextmanager
def zookeeper(java: Jvm, folder: Path) -> Iterator[ZooKeeper]:
    """Start a ZooKeeper and stop it at the end of the block."""
    found = ZooKeeper(java, folder)
    found.start()
    try:
        yield found
    finally:
        found.stop()
