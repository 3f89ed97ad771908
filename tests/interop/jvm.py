"""Java for the tests: Kafka's client and tools from Maven, and small programs that use them.

The newest client has a class path without tools and Streams. Those of its version may not be
published yet, and those of another version do not run with it.
"""

import base64
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.programs import Build, check, program

HERE = Path(__file__).parent / "java"
QUICK = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-Xmx256m")


@dataclass(frozen=True)
class Jvm:
    """A class path, and how to run a class on it."""

    classpath: str

    def run(self, *words: str, stdin: str = "") -> str:
        """Run a class and return its standard output. The exit status must be 0."""
        return check(self.words(*words), seconds=240, stdin=stdin)

    def words(self, *words: str) -> list[str]:
        """Return the command that runs a class."""
        return [program("java"), *QUICK, "-cp", self.classpath, *words]

    def start(self, *words: str) -> "subprocess.Popen[str]":
        """Start a class and return its process."""
        return subprocess.Popen(
            self.words(*words), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def interop(self, *words: str, stdin: str = "") -> list[list[str]]:
        """Run the program Interop and return its lines, split at tabs."""
        return [line.split("\t") for line in self.run("Interop", *words, stdin=stdin).splitlines()]


@dataclass(frozen=True)
class Tools(Jvm):
    """Kafka's tools in one process: the start of a process takes longer than a tool's work."""

    serving: "subprocess.Popen[str]"

    def tool(self, *words: str, fails: bool = False) -> str:
        """Run a tool and return its standard output; with `fails` it must fail."""
        assert self.serving.stdin is not None and self.serving.stdout is not None
        self.serving.stdin.write("\t".join(words) + "\n")
        self.serving.stdin.flush()
        code, *reported = self.serving.stdout.readline().rstrip("\n").split("\t")
        out, err = (base64.b64decode(text).decode() for text in reported)
        assert (code != "0") == fails, f"{out[-2000:]}\n{err[-4000:]}"
        return out


TOOLS_VERSION = "4.3.1"


@contextmanager
def tools(build: Build, version: str = TOOLS_VERSION) -> Iterator[Tools]:
    """Start the tools' process, yield the tools, and end the process."""
    made = prepared(build, HERE / "tools", f"-Dkafka={version}")
    pipe = subprocess.PIPE
    with subprocess.Popen(made.words("Serve"), stdin=pipe, stdout=pipe, text=True) as serving:
        try:
            yield Tools(made.classpath, serving)
        finally:
            serving.kill()


def prepared(build: Build, source: Path, *settings: str) -> Jvm:
    """Resolve the dependencies of a folder's pom.xml by Maven, and compile its programs."""
    goal = ("dependency:build-classpath", "-Dmdep.outputFile=classpath", *settings)
    commands = [("mvn", "-q", "-B", *goal)]
    if programs := sorted(path.name for path in source.glob("*.java")):
        commands.append(("javac", "-cp", "@classpath", "-d", ".", *programs))
    folder = build(source, *commands)
    return Jvm(f"{folder}:{(folder / 'classpath').read_text().strip()}")
