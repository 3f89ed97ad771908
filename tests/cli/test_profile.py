"""Check `korvet profile`: which brokers and user a command has, and what is in the file."""

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Lines, lines_of
from tests.support.redis_servers import TestServer
from tests.support.running_console import RunningConsole, secured_console


@pytest.fixture(scope="module")
def broker(valkey_server: TestServer) -> Iterator[RunningConsole]:
    with secured_console(valkey_server) as made:
        yield made


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def korvet(home: Path, capfd: pytest.CaptureFixture[str]) -> Lines:
    return lines_of(capfd, ())


def test_a_profile_names_brokers_and_user_and_has_no_password(
    korvet: Lines, broker: RunningConsole, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "secret").write_text("a\n")
    at = ("--brokers", broker.bootstrap, "--user", "admin")
    code, lines, _ = korvet("profile", "create", "shop", *at, "--password-file", "secret")
    path = home / "korvet" / "profiles.json"
    assert (code, lines) == (0, [f"profile shop is in use; {path} has it"])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "password" not in path.read_text().replace("sasl.password.file", "")
    assert korvet("topics", "create", "carts")[0] == 0
    assert korvet("topics", "list", "--no-header")[1][0].startswith("carts\t")
    here = ("--redis", broker.server.url, "--namespace", "other")
    assert korvet("topics", "list", "--no-header", *here)[1] == []
    monkeypatch.setenv("KORVET_PASSWORD", "wrong")
    code, _, said = korvet("topics", "list")
    assert code == 2 and f"(the brokers of profile shop: {broker.bootstrap})" in said
    monkeypatch.setenv("KORVET_BROKERS", "127.0.0.1:1")
    code, _, said = korvet("topics", "list")
    assert code == 2 and "(the brokers of KORVET_BROKERS: 127.0.0.1:1)" in said
    monkeypatch.delenv("KORVET_PASSWORD")
    assert korvet("topics", "list", "--profile", "shop")[0] == 0
    code, _, said = korvet("topics", "list", "--brokers", "127.0.0.1:2", "--profile", "shop")
    assert code == 2 and "127.0.0.1:2" in said


def test_a_password_is_stored_on_request_where_only_its_user_may_read_it(
    korvet: Lines, broker: RunningConsole, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "secret").write_text("a\n")
    create = ("profile", "create", "shop", "--brokers", broker.bootstrap, "--store-password")
    assert "give --user" in korvet(*create)[2]
    with (home / "secret").open() as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        assert korvet(*create, "--user", "admin")[0] == 0
    path = home / "korvet" / "profiles.json"
    assert json.loads(path.read_text())["profiles"]["shop"]["sasl.password"] == "a"
    assert korvet("topics", "list")[0] == 0
    row = korvet("profile", "list", "--no-header")[1]
    assert row == [f"shop\tyes\t{broker.bootstrap}\tsasl_plaintext\tadmin\tstored"]
    os.chmod(path, 0o640)
    code, _, said = korvet("topics", "list")
    assert code == 2 and f"chmod 600 {path}" in said


def test_profiles_are_used_listed_and_deleted(korvet: Lines, home: Path) -> None:
    assert korvet("profile", "list", "--no-header")[1] == []
    korvet("profile", "create", "a", "--brokers", "one:9092")
    korvet("profile", "create", "b", "--brokers", "two:9093", "--ca", "ca.pem")
    assert [row.split("\t")[:4] for row in korvet("profile", "list", "--no-header")[1]] == [
        ["a", "no", "one:9092", "plaintext"],
        ["b", "yes", "two:9093", "ssl"],
    ]
    assert korvet("profile", "use", "a")[1] == ["profile a is in use"]
    for words in (("use", "c"), ("delete", "c")):
        code, _, said = korvet("profile", *words)
        assert code == 2 and "There is no profile 'c' in " in said and "there are: a, b." in said
    assert "there are: a, b." in korvet("topics", "list", "--profile", "c")[2]
    code, _, said = korvet("profile", "create", "d", "--brokers", "host:port")
    assert code == 2 and "'host:port' is no address of a broker" in said
    assert korvet("profile", "delete", "a")[1] == ["deleted profile a"]
    assert "There is no Korvet data" in korvet("topics", "list")[2]
    (home / "korvet" / "profiles.json").write_text("[]")
    assert "profiles.json cannot be read" in korvet("topics", "list")[2]
