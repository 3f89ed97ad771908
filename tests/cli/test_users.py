"""Check `korvet users`: stored users, refusals."""

import io
import json
from types import SimpleNamespace

import pytest

from korvet.cli import run
from tests.cli.conftest import Korvet
from tests.support.running_console import RunningConsole, where_of


@pytest.fixture(params=["brokers", "redis"])
def korvet(
    broker: RunningConsole,
    request: pytest.FixtureRequest,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Korvet:
    """Run `korvet users` at a broker or on its Redis, with a password on stdin.

    Return exit code, stdout and stderr.
    """
    with broker.server.client() as client:
        client.delete(f"{broker.namespace}:users")
    where = where_of(broker, request.param)

    def command(*words: str, stdin: bytes = b"s3cret\n") -> tuple[int, str, str]:
        content = SimpleNamespace(buffer=io.BytesIO(stdin), isatty=lambda: False)
        monkeypatch.setattr("sys.stdin", content)
        code = run(["users", *words, *where])
        said = capfd.readouterr()
        return code, said.out, said.err

    return command


def test_a_user_is_added_listed_changed_and_deleted(korvet: Korvet) -> None:
    assert korvet("add", "alice") == (0, "", "")
    assert korvet("add", "bob", "--mechanism", "SCRAM-SHA-512", "--iterations", "4096")[0] == 0
    rows = "user\tmechanism\titerations\nalice\tSCRAM-SHA-256\t8192\nalice\tSCRAM-SHA-512\t8192\n"
    assert korvet("list")[1] == rows + "bob\tSCRAM-SHA-512\t4096\n"
    assert korvet("passwd", "bob", "--iterations", "16384")[0] == 0
    assert json.loads(korvet("list", "--json")[1])[2] == {
        "user": "bob",
        "mechanism": "SCRAM-SHA-512",
        "iterations": 16384,
    }
    assert korvet("delete", "alice", "--mechanism", "SCRAM-SHA-256")[0] == 0
    assert korvet("delete", "alice")[0] == 0
    assert korvet("list", "--no-header")[1] == "bob\tSCRAM-SHA-512\t16384\n"


@pytest.mark.parametrize(
    ("words", "stdin", "sentence"),
    [
        (("add", "bob"), b"x\n", "There is a user 'bob' already"),
        (("add", "alice"), b"\n", "The password must not be empty"),
        (("add", "alice"), b"\xff\n", "The password on stdin is not UTF-8"),
        (("add", ""), b"x\n", "the user's name must not be empty"),
        (("add", "a", "--iterations", "4095"), b"x\n", "--iterations must be from 4096 to 16384"),
        (("add", "a", "--mechanism", "PLAIN"), b"x\n", "--mechanism must be one of SCRAM-SHA-256"),
        (("passwd", "alice"), b"x\n", "There is no such user or credential: 'alice'"),
        (("delete", "alice"), b"", "There is no such user or credential: 'alice'"),
        (
            ("delete", "bob", "--mechanism", "SCRAM-SHA-512"),
            b"",
            "There is no such user or credential: 'bob'",
        ),
    ],
)
def test_a_refused_command_says_why(
    korvet: Korvet, words: tuple[str, ...], stdin: bytes, sentence: str
) -> None:
    korvet("add", "bob", "--mechanism", "SCRAM-SHA-256")
    code, out, err = korvet(*words, stdin=stdin)
    assert (code, out) == (2, "")
    assert sentence in err
    assert korvet("list", "--no-header")[1] == "bob\tSCRAM-SHA-256\t8192\n"


def test_ctrl_c_at_the_prompt_of_a_password_ends_the_command(
    korvet: Korvet, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def interrupted(prompt: str) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr("getpass.getpass", interrupted)
    assert run(["users", "add", "ann", "--redis", "redis://127.0.0.1:1"]) == 130
    assert "Traceback" not in capfd.readouterr().err
