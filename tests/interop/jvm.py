"""Java for the tests: Kafka's client and its tools from Maven, and small programs of our own.

The newest client comes alone: tools and Streams of that version may not be published yet, and those
of another version do not run on it.
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
        """Standard output of one class; `fails` says which end is expected."""
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
        """The command that runs one class."""
        return [_program("java"), *QUICK, "-cp", self.classpath, *words]

    def interop(self, *words: str, stdin: str = "") -> list[list[str]]:
        """The lines of the small program, cut into words."""
        return [line.split("\t") for line in self.run("Interop", *words, stdin=stdin).splitlines()]


@dataclass(frozen=True)
class Tools(Jvm):
    """Kafka's own tools in one process: starting one takes longer than what it does."""

    serving: "subprocess.Popen[str]"

    def tool(self, *words: str, fails: bool = False) -> str:
        """Standard output of one tool; `fails` says which end is expected."""
        assert self.serving.stdin is not None and self.serving.stdout is not None
        self.serving.stdin.write("\t".join(words) + "\n")
        self.serving.stdin.flush()
        code, *told = self.serving.stdout.readline().rstrip("\n").split("\t")
        out, err = (base64.b64decode(text).decode() for text in told)
        assert (code != "0") == fails, f"{out[-2000:]}\n{err[-4000:]}"
        return out


TOOLS_VERSION = "4.3.1"


@contextmanager
def tools(folder: Path, version: str = TOOLS_VERSION) -> Iterator[Tools]:
    """The tools, until the end."""
    made = prepared("tools", folder, (TOOLS_VERSION, version))
    pipe = subprocess.PIPE
    with subprocess.Popen(made.words("Serve"), stdin=pipe, stdout=pipe, text=True) as serving:
        try:
            yield Tools(made.classpath, serving)
        finally:
            serving.kill()


def prepared(name: str, folder: Path, versions: tuple[str, str] = ("", "")) -> Jvm:
    """The dependencies of java/<name> resolved and its programs compiled, in the folder.

    `versions`: one in its pom.xml, and that to use instead.
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
