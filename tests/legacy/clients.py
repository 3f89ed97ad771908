"""The old clients: Java programs from Maven, a Node package from npm, and ZooKeeper."""

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.interop.jvm import QUICK
from tests.support.ports import free_port

HERE = Path(__file__).parent


def program(name: str) -> str:
    """Return the path of a program. A missing program fails the test: it is not skipped."""
    found = shutil.which(name)
    assert found, f"{name} is not installed: the old clients' tests are part of the suite"
    return found


def check(words: list[str], folder: Path | None = None, seconds: float = 600) -> str:
    """Run a program and return its standard output. The exit status must be 0."""
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=seconds)
    assert done.returncode == 0, f"{words[:4]}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout


def classpath(folder: Path, pom: str, *settings: str) -> str:
    """Return the class path of a project's jars, resolved by Maven."""
    listing = folder / "classpath"
    shutil.copy(HERE / "java" / pom, folder / "pom.xml")
    goal = ["dependency:build-classpath", f"-Dmdep.outputFile={listing}", *settings]
    check([program("mvn"), "-q", "-B", "-f", str(folder / "pom.xml"), *goal])
    return listing.read_text().strip()


@dataclass(frozen=True)
class Java:
    """A class path and the programs on it."""

    jars: str

    def words(self, *words: str) -> list[str]:
        return [program("java"), *QUICK, "-cp", self.jars, *words]

    def run(self, *words: str, stdin: str = "", seconds: float = 240) -> str:
        """Run a class and return its standard output. The exit status must be 0."""
        done = subprocess.run(
            self.words(*words), input=stdin, capture_output=True, text=True, timeout=seconds
        )
        assert done.returncode == 0, f"{words}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
        return done.stdout

    def start(self, *words: str) -> "subprocess.Popen[str]":
        """Start a class and return its process."""
        return subprocess.Popen(
            self.words(*words), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )


def old07(folder: Path) -> Java:
    """Return the Java port of Kafka 0.7, and `Old07` compiled against it."""
    jars = classpath(folder, "pom-07.xml")
    source = str(HERE / "java" / "Old07.java")
    check([program("javac"), "-cp", jars, "-d", str(folder), source])
    return Java(f"{folder}:{jars}")


def old08(folder: Path, version: str) -> Java:
    """Return the clients and tools of Kafka 0.8."""
    return Java(classpath(folder, "pom-08.xml", f"-Dkafka={version}"))


@dataclass(frozen=True)
class Node:
    """The npm package, installed in a separate folder."""

    folder: Path

    def run(self, *words: str) -> list[list[str]]:
        """Run `old07.js` and return the fields of each line of its output."""
        out = check([program("node"), "--no-deprecation", "old07.js", *words], self.folder, 240)
        return [line.split("\t") for line in out.splitlines()]


def node(folder: Path) -> Node:
    """Install the npm package into the folder."""
    for name in ("package.json", "old07.js"):
        shutil.copy(HERE / "node" / name, folder / name)
    check([program("npm"), "install", "--no-audit", "--no-fund", "--silent"], folder)
    return Node(folder)


@dataclass
class ZooKeeper:
    """A ZooKeeper of one node that can be stopped and started again; its data is in a folder."""

    java: Java
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
def zookeeper(java: Java, folder: Path) -> Iterator[ZooKeeper]:
    """Start a ZooKeeper and stop it at the end of the block."""
    found = ZooKeeper(java, folder)
    found.start()
    try:
        yield found
    finally:
        found.stop()
