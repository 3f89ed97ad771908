"""Check lua/user: credentials of users."""

from typing import Any

import pytest

from korvet.base.errors import ErrorCode
from korvet.scripts.call import Call, VersionReply
from tests.lua.partition import KEYS
from tests.support.store_runners import Runner

SHA256, SHA512 = "SCRAM-SHA-256", "SCRAM-SHA-512"


def alter(*rows: tuple[str, bytes], name: str = "alice", condition: str = "") -> Call[VersionReply]:
    return KEYS.user_alter(
        [(mechanism, credential, "4096:24:bytes") for mechanism, credential in rows],
        user=name,
        condition=condition,
    )


def users(runner: Runner) -> dict[str, bytes]:
    flat: Any = runner.command("HGETALL", KEYS.users())
    found = dict(zip(flat[::2], flat[1::2], strict=True))
    return {
        key.decode() if isinstance(key, bytes) else key: value
        for key, value in found.items()
        if not key.startswith(b":" if isinstance(key, bytes) else ":")
    }


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (alter((SHA256, b""), name="bob", condition="present"), ErrorCode.RESOURCE_NOT_FOUND),
        (alter((SHA512, b""), condition="present"), ErrorCode.RESOURCE_NOT_FOUND),
        (alter((SHA256, b"new"), condition="absent"), ErrorCode.DUPLICATE_RESOURCE),
        (
            alter((SHA512, b"new"), (SHA256, b"new"), condition="absent"),
            ErrorCode.DUPLICATE_RESOURCE,
        ),
    ],
)
def test_a_refused_change_changes_nothing(runner: Runner, call: Call[Any], error: int) -> None:
    runner.run(alter((SHA256, b"one")))
    before = runner.command("HGETALL", KEYS.users())
    assert runner.run(call).error == error
    assert runner.command("HGETALL", KEYS.users()) == before


def test_credentials_of_several_mechanisms_change_together(runner: Runner) -> None:
    first = runner.run(alter((SHA256, b"one"), (SHA512, b"two"), condition="absent"))
    assert first.error == ErrorCode.NONE
    assert users(runner) == {f"{SHA256}:alice": b"one", f"{SHA512}:alice": b"two"}
    second = runner.run(alter((SHA256, b""), (SHA512, b"three"), condition="present"))
    assert second.version > first.version
    assert users(runner) == {f"{SHA512}:alice": b"three"}
    assert runner.run(alter((SHA256, b""), (SHA512, b""), condition="present")).error == 0
    assert users(runner) == {}
    assert runner.command("HGET", KEYS.users(), f":shape:{SHA512}") == b"4096:24:bytes"


def test_the_first_decoy_key_stays(runner: Runner) -> None:
    assert runner.run(KEYS.user_init_decoy_key(decoy_key=b"\xff\0one")).decoy_key == b"\xff\0one"
    assert runner.run(KEYS.user_init_decoy_key(decoy_key=b"two")).decoy_key == b"\xff\0one"


def test_the_shapes_of_all_credentials_are_kept_for_decoys(runner: Runner) -> None:
    def shapes() -> Any:
        found: Any = runner.command("HGET", KEYS.users(), f":shape:{SHA256}")
        return found.decode() if isinstance(found, bytes) else found

    def set_with(shape: str) -> None:
        rows = [(SHA256, b"new", shape)]
        runner.run(KEYS.user_alter(rows, user="alice", condition=""))

    for shape in ("4096:24:bytes", "8192:24:bytes", "4096:24:bytes", "8192:24"):
        set_with(shape)
    assert shapes() == "4096:24:bytes,8192:24:bytes,8192:24"
    for count in range(4096, 4200):
        set_with(f"{count}:24:bytes")
    assert shapes().split(",")[-1] == "4199:24:bytes"
    assert len(shapes()) < 250
