"""Check options before and after a command, JSON listings and completion."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from korvet.cli import COMMANDS, app, load
from korvet.cli.options import EXIT_CODES, summary
from korvet.scripts import bundle
from tests.cli.conftest import Korvet, texts_of
from tests.support.redis_servers import TestServer


@pytest.fixture
def korvet(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Korvet:
    """Run a command line in an empty folder; return its exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KORVET_REDIS_URL", raising=False)
    return texts_of(capfd, ())


@pytest.fixture
def url(valkey_server: TestServer) -> str:
    """The URL of an empty server."""
    with valkey_server.client() as client:
        client.flushall()
    return valkey_server.url


def parsed(korvet: Korvet, *words: str) -> Any:
    code, out, err = korvet(*words, "--json")
    assert (code, err) == (0, "")
    return json.loads(out)


def test_global_options_stand_before_or_after_the_command(korvet: Korvet, url: str) -> None:
    before = ("--redis", url, "--namespace", "mine", "--set", "num.partitions=3")
    assert korvet(*before, "topics", "create", "a")[:2] == (0, "created a with 3 partitions\n")
    after = ("--redis", url, "--namespace", "mine", "--no-header")
    assert korvet("topics", "list", *after)[1] == "a\t3\trecord\ttime\t0\t0\n"
    around = ("--namespace", "mine", "topics", "list", "--redis", url, "--no-header")
    assert korvet(*around)[1].startswith("a\t3")
    assert korvet("--namespace", "other", "topics", "list", *after)[1].startswith("a\t3")
    assert korvet("topics", "list", "--redis", url, "--no-header")[1] == ""


def test_commands_without_a_redis_take_global_options_too(korvet: Korvet) -> None:
    given = ("--redis", "redis://absent", "--namespace", "mine")
    for words in (("scripts", "list"), ("settings",), ("bench", "--list")):
        alone = korvet(*words)
        assert alone[0] == 0
        assert korvet(*given, *words) == korvet(*words, *given) == alone
        assert "--redis" not in korvet(*words, "--help")[1]


def test_a_config_file_serves_commands_too(korvet: Korvet, url: str) -> None:
    Path("korvet.toml").write_text(f'redis = "{url}"\nnamespace = "filed"\nnum.partitions = 2\n')
    file = ("--config", "korvet.toml")
    assert korvet(*file, "topics", "create", "a", "--config", "retention.ms=5")[0] == 0
    assert korvet("topics", "list", "--no-header", *file)[1].startswith("a\t2\t")
    _, out, _ = korvet(*file, "topics", "describe", "a", "--no-header")
    assert out.split("\t")[2:] == ["2", "1", "record", "time", "0", "0", "retention.ms=5\n"]
    assert korvet(*file, "check")[1].splitlines()[1:3] == [
        "configuration: valid, 1 settings given",
        "  num.partitions = 2",
    ]


def test_a_named_data_directory_has_priority_over_the_environment(
    korvet: Korvet, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KORVET_REDIS_URL", url)
    assert korvet("topics", "list")[0] == 0
    code, _, err = korvet("topics", "list", "--data-dir", "absent")
    assert code == 2 and "There is no Korvet data in" in err


def test_an_option_of_the_broker_is_refused_before_a_command(korvet: Korvet) -> None:
    code, _, err = korvet("--workers", "2", "topics", "list")
    assert (code, err) == (
        2,
        "korvet: --workers is an option of the broker: `korvet topics` does not take it.\n",
    )


def test_topics_are_listed_and_described_in_json(korvet: Korvet, url: str) -> None:
    at = ("--redis", url)
    korvet("topics", "create", "a", "--config", "offset.mode=dense", *at)
    assert parsed(korvet, "topics", "list", *at) == [
        {
            "topic": "a",
            "partitions": 1,
            "format": "record",
            "offsets": "dense",
            "records": 0,
            "bytes": 0,
        }
    ]
    (found,) = parsed(korvet, "topics", "describe", "a", *at)
    del found["id"]
    assert found == {
        "topic": "a",
        "partitions": 1,
        "replicas": 1,
        "format": "record",
        "offsets": "dense",
        "records": 0,
        "bytes": 0,
        "configs": {},
    }
    assert parsed(korvet, "topics", "describe", "a", "--partitions", *at) == [
        {
            "topic": "a",
            "partition": 0,
            "first": 0,
            "next": 0,
            "records": 0,
            "bytes": 0,
            "newest": None,
            "stream": "korvet:a:0",
        }
    ]
    rows = parsed(korvet, "topics", "describe", "a", "--configs", *at)
    assert {row["config"]: row["source"] for row in rows}["offset.mode"] == "dynamic_topic"


def test_groups_are_listed_and_described_in_json(korvet: Korvet, url: str) -> None:
    at = ("--redis", url)
    korvet("topics", "create", "a", "--config", "offset.mode=dense", *at)
    korvet("groups", "create", "readers", "-t", "a", "--to", "earliest", *at)
    assert parsed(korvet, "groups", "list", *at) == [
        {"group": "readers", "type": "classic", "state": "Empty", "protocol": None, "members": 0}
    ]
    found = parsed(korvet, "groups", "describe", "readers", *at)
    assert (found["state"], found["generation"], found["members"]) == ("Empty", 0, [])
    (offset,) = found["offsets"]
    assert (offset["topic"], offset["committed"], offset["lag"]) == ("a", 0, 0)
    assert (offset["behind_ms"], offset["member"]) == (0, None)


def test_scripts_and_findings_are_listed_in_json(korvet: Korvet, url: str) -> None:
    scripts = parsed(korvet, "scripts", "list")
    assert [each["name"] for each in scripts] == bundle.names()
    contract = parsed(korvet, "scripts", "show", "log.append")
    assert contract["sha1"] == bundle.load("log.append").sha1
    assert [key["name"] for key in contract["keys"]][:2] == ["stream", "log"]
    code, out, _ = korvet("doctor", "--redis", url, "--json")
    findings = json.loads(out)
    assert code == 1
    assert {"persistence", "eviction"} <= {each["subject"] for each in findings}
    assert {each["grade"] for each in findings} <= {"ok", "note", "bad"}


def test_scripts_are_exported_with_their_contracts(korvet: Korvet) -> None:
    code, out, _ = korvet("scripts", "export", "out")
    names = bundle.names()
    assert (code, out) == (0, f"{len(names)} scripts and contract.json written to out\n")
    contracts = json.loads(Path("out/contract.json").read_text())
    assert sorted(contracts["scripts"]) == names and contracts["errors"]["NONE"] == 0
    for name, contract in contracts["scripts"].items():
        text = (Path("out") / contract["file"]).read_bytes().decode()
        assert text == bundle.load(name).text
        assert {*contract["refuses"], *contract["signals"]} <= contracts["errors"].keys()
    schema = json.loads(Path("out/contract.schema.json").read_text())
    described = schema["$defs"]["ScriptContract"]["properties"]
    assert described.keys() == contracts["scripts"]["log.append"].keys()


def test_an_export_that_cannot_be_written_says_where(korvet: Korvet) -> None:
    Path("file").write_text("")
    code, _, err = korvet("scripts", "export", "file")
    assert (code, err) == (2, "korvet: file: File exists.\n")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shell_completion_is_shown(shell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    words = [sys.executable, "-m", "korvet"]
    monkeypatch.setenv("_KORVET_COMPLETE", f"source_{shell}")
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0 and f"_KORVET_COMPLETE=complete_{shell}" in done.stdout


def test_the_completion_of_the_shell_at_hand_is_shown() -> None:
    # Not the last command: the shell would replace itself with it.
    words = ["bash", "-c", f"{sys.executable} -m korvet --show-completion; exit $?"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0 and "_KORVET_COMPLETE=complete_bash" in done.stdout


def test_completion_offers_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    words = [sys.executable, "-m", "korvet"]
    for typed, offered in (("korvet topi", "topics"), ("korvet topics d", "describe\ndelete")):
        monkeypatch.setenv("_KORVET_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", typed)
        monkeypatch.setenv("COMP_CWORD", str(len(typed.split()) - 1))
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
        assert done.stdout.strip() == offered


def commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Return every command of the command line, and the words that call it."""
    yield path, group
    for name in getattr(group, "commands", ()):
        yield from commands(group.resolve_command(None, [name])[1], (*path, name))


def test_the_list_of_commands_has_the_sentences_of_their_functions() -> None:
    assert {name: summary(load(name).help) for name in COMMANDS} == COMMANDS


@pytest.mark.parametrize("columns", ["44", "80", "200"])
def test_no_help_text_is_cut(korvet: Korvet, monkeypatch: pytest.MonkeyPatch, columns: str) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    for path, command in commands(typer.main.get_command(app)):
        code, out, _ = korvet(*path, "--help")
        _, heading, listed = out.partition("Commands:")
        assert code == 0 and "..." not in listed, path
        assert bool(heading) == hasattr(command, "commands"), path
        for name, each in getattr(command, "commands", {}).items():
            assert " ".join(f"{name} {summary(each.help)}".split()) in " ".join(listed.split())


def test_the_help_lists_the_exit_codes(korvet: Korvet) -> None:
    assert EXIT_CODES in " ".join(korvet("--help")[1].split())


def test_settings_are_listed_and_described(korvet: Korvet) -> None:
    _, listed, _ = korvet("settings", "--of", "topic")
    header, *rows = [line.split("\t") for line in listed.splitlines()]
    assert header == ["of", "name", "default", "type", "changes", "description"]
    assert ["topic", "offset.mode", "time"] in [row[:3] for row in rows]
    _, out, _ = korvet("settings", "offset.mode", "--of", "topic")
    assert out.startswith("offset.mode (topic)\n  What an offset is") and "at creation" in out
    code, _, err = korvet("settings", "offset.mod")
    assert code == 2 and "did you mean offset.mode?" in err
    assert korvet("settings", "--of", "disk")[0] == 2


@pytest.mark.processes
def test_a_progress_bar_is_not_drawn_over_piped_records(url: str, tmp_path: Path) -> None:
    import os
    import pty

    command = [sys.executable, "-m", "korvet", "--redis", url]
    subprocess.run([*command, "topics", "create", "a"], check=True, capture_output=True)
    subprocess.run([*command, "produce", "a"], input=b"x\n", check=True, capture_output=True)
    terminal, other = pty.openpty()
    try:
        piped = subprocess.run([*command, "consume", "a"], stdout=subprocess.PIPE, stderr=other)
        assert piped.stdout == b"x\n"
        os.set_blocking(terminal, False)
        with pytest.raises(BlockingIOError):
            os.read(terminal, 1000)
        with (tmp_path / "file").open("wb") as file:
            subprocess.run([*command, "consume", "a"], stdout=file, stderr=other, check=True)
        assert b"from a" in os.read(terminal, 10_000)
    finally:
        os.close(terminal)
        os.close(other)


@pytest.mark.processes
def test_completion_offers_topics_and_groups(
    korvet: Korvet, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = ("--redis", url)
    for name in ("orders", "others", "logs"):
        korvet("topics", "create", name, *at)
    korvet("groups", "create", "readers", "-t", "orders", *at)
    monkeypatch.setenv("_KORVET_COMPLETE", "complete_bash")
    for typed, offered in (
        ("korvet consume o", "orders\nothers"),
        ("korvet consume orders --group r", "readers"),
        ("korvet groups describe r", "readers"),
        ("korvet --namespace mine topics delete o", ""),
        ("korvet --redis redis://127.0.0.1:1 topics delete o", ""),
    ):
        monkeypatch.setenv("KORVET_REDIS_URL", url)
        monkeypatch.setenv("COMP_WORDS", typed)
        monkeypatch.setenv("COMP_CWORD", str(len(typed.split()) - 1))
        words = [sys.executable, "-m", "korvet"]
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
        assert (done.stdout.strip(), done.stderr) == (offered, ""), typed


@pytest.mark.processes
@pytest.mark.parametrize(("variable", "coloured"), [("NO_COLOR", False), ("LANG", True)])
def test_no_color_is_respected(url: str, variable: str, coloured: bool, tmp_path: Path) -> None:
    import pty

    command = [sys.executable, "-m", "korvet", "--redis", url]
    subprocess.run([*command, "topics", "create", "a"], check=True, capture_output=True)
    lines = tmp_path / "lines"
    lines.write_bytes(b"x\n" * 5)
    terminal, other = pty.openpty()
    environ = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    environ |= {variable: "1", "TERM": "xterm-256color"}
    with lines.open("rb") as file:
        subprocess.run(
            [*command, "produce", "a"], stdin=file, stderr=other, env=environ, check=True
        )
    shown = os.read(terminal, 100_000)
    os.close(terminal)
    os.close(other)
    assert b"to a" in shown
    assert bool(re.search(rb"\x1b\[[0-9;]*3[0-9]", shown)) is coloured
