"""The old clients themselves: Java programs by Maven, a Node package by npm, ZooKeeper."""

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
    """Where it is; a machine without it fails these tests rather than passing over them."""
    found = shutil.which(name)
    assert found, f"{name} is not installed: the old clients' tests are part of the suite"
    return found


def check(words: list[str], folder: Path | None = None, seconds: float = 600) -> str:
    """Standard output of a program that ended well."""
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=seconds)
    assert done.returncode == 0, f"{words[:4]}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout


def classpath(folder: Path, pom: str, *settings: str) -> str:
    """The jars of a project, resolved by Maven."""
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
        """Standard output of one class."""
        done = subprocess.run(
            self.words(*words), input=stdin, capture_output=True, text=True, timeout=seconds
        )
        assert done.returncode == 0, f"{words}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
        return done.stdout

    def start(self, *words: str) -> "subprocess.Popen[str]":
        """The class runs on."""
        return subprocess.Popen(
            self.words(*words), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )


def old07(folder: Path) -> Java:
    """The Java port of Kafka 0.7, and our small program compiled against it."""
    jars = classpath(folder, "pom-07.xml")
    source = str(HERE / "java" / "Old07.java")
    check([program("javac"), "-cp", jars, "-d", str(folder), source])
    return Java(f"{folder}:{jars}")


def old08(folder: Path, version: str) -> Java:
    """Kafka 0.8's own clients and tools."""
    return Java(classpath(folder, "pom-08.xml", f"-Dkafka={version}"))


@dataclass(frozen=True)
class Node:
    """The npm package in a folder of its own."""

    folder: Path

    def run(self, *words: str) -> list[list[str]]:
        """The lines of the small script, cut into words."""
        out = check([program("node"), "--no-deprecation", "old07.js", *words], self.folder, 240)
        return [line.split("\t") for line in out.splitlines()]


def node(folder: Path) -> Node:
    """The package installed."""
    for name in ("package.json", "old07.js"):
        shutil.copy(HERE / "node" / name, folder / name)
    check([program("npm"), "install", "--no-audit", "--no-fund", "--silent"], folder)
    return Node(folder)


@dataclass
class ZooKeeper:
    """A ZooKeeper of one node, its data in a folder; it can stop and come back."""

    java: Java
    folder: Path
    port: int = field(default_factory=free_port)
    _process: "subprocess.Popen[str] | None" = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """It answers."""
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
        """It is gone; its data stays."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(30)
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._process = None


@contextmanager
def zookeeper(java: Java, folder: Path) -> Iterator[ZooKeeper]:
    """A running one, gone at the end."""
    found = ZooKeeper(java, folder)
    found.start()
    try:
        yield found
    finally:
        found.stop()
