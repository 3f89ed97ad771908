"""Java for the tests: Kafka's client and tools from Maven, and small programs that use them.

The newest client has a class path without tools and Streams. Those of its version may not be
published yet, and those of another version do not run with it.
"""

import base64
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent / "java"
QUICK = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-Xmx256m")


@dataclass(frozen=True)
class Jvm:
    """A class path, and how to run a class on it."""

    classpath: str

    def run(self, *words: str, stdin: str = "", fails: bool = False) -> str:
        """Run a class and return its standard output; with `fails` it must fail."""
        done = subprocess.run(
            self.words(*words),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=240,
        )
        assert (done.returncode != 0) == fails, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
        return done.stdout

    def words(self, *words: str) -> list[str]:
        """Return the command that runs a class."""
        return [_program("java"), *QUICK, "-cp", self.classpath, *words]

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
def tools(folder: Path, version: str = TOOLS_VERSION) -> Iterator[Tools]:
    """Start the tools' process, yield the tools, and end the process."""
    made = prepared("tools", folder, (TOOLS_VERSION, version))
    pipe = subprocess.PIPE
    with subprocess.Popen(made.words("Serve"), stdin=pipe, stdout=pipe, text=True) as serving:
        try:
            yield Tools(made.classpath, serving)
        finally:
            serving.kill()


def prepared(name: str, folder: Path, versions: tuple[str, str] = ("", "")) -> Jvm:
    """Resolve the dependencies of java/<name> and compile its programs, in the folder.

    `versions`: a version in its pom.xml, and the one to use instead.
    """
    here = HERE / name
    listing = folder / "classpath"
    (folder / "pom.xml").write_text((here / "pom.xml").read_text().replace(*versions))
    goal = ["dependency:build-classpath", f"-Dmdep.outputFile={listing}"]
    _check([_program("mvn"), "-q", "-B", "-f", str(folder / "pom.xml"), *goal])
    sources = sorted(str(path) for path in here.glob("*.java"))
    classpath = f"{folder}:{listing.read_text().strip()}"
    _check([_program("javac"), "-cp", classpath, "-d", str(folder), *sources])
    return Jvm(classpath)


def _check(words: list[str]) -> None:
    done = subprocess.run(words, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"


def _program(name: str) -> str:
    found = shutil.which(name)
    assert found, f"{name} is not installed: the Java client's tests are part of the suite"
    return found
