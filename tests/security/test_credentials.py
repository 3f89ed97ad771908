"""Check stored credentials, the decoys of unknown users, and users through Kafka's APIs."""

import base64
import hashlib
import hmac
from typing import Any

import pytest

from korvet.base.errors import ErrorCode
from korvet.security.credentials import (
    DEFAULT_ITERATIONS,
    Mechanism,
    decode,
    decoy,
    default_shape,
    encode,
    from_password,
    from_salted,
    shape_for,
)
from korvet.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from korvet.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from tests.support.connected_broker import Broker, broker

__all__ = ["broker"]


@pytest.mark.parametrize("mechanism", list(Mechanism))
def test_a_credential_is_read_back_and_matches_its_password_only(mechanism: Mechanism) -> None:
    made = from_password(mechanism, "pässword", 4096)
    assert decode(encode(made)) == made
    assert made.matches(mechanism, "pässword".encode())
    assert not made.matches(mechanism, b"password")
    assert not made.matches(mechanism, b"")
    assert from_password(mechanism, "pässword", 4096).salt != made.salt


def test_a_credential_is_that_of_rfc_7677() -> None:
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    salted = hashlib.pbkdf2_hmac("sha256", b"pencil", salt, 4096)
    made = from_salted(Mechanism.SCRAM_SHA_256, salted, salt, 4096)
    # The example's messages, and the server's signature of them.
    nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    message = (
        f"n=user,r=rOprNGfwEbeRWgbNEkqO,r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,"
        f"c=biws,r={nonce}"
    )
    signature = hmac.digest(made.server_key, message.encode(), "sha256")
    assert base64.b64encode(signature) == b"6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


@pytest.mark.parametrize(
    ("shape", "length"), [("4096:24:bytes", 24), ("8192:26:text", 26), (default_shape(), 24)]
)
def test_a_decoy_has_the_shape_of_other_credentials_and_stays(shape: str, length: int) -> None:
    made = decoy(b"key", "alice", Mechanism.SCRAM_SHA_512, shape)
    assert made == decoy(b"key", "alice", Mechanism.SCRAM_SHA_512, shape)
    assert (made.iterations, len(made.salt)) == (int(shape.split(":")[0]), length)
    if "text" in shape:
        assert made.shape == shape
    for other in (
        decoy(b"other", "alice", Mechanism.SCRAM_SHA_512, shape),
        decoy(b"key", "alicf", Mechanism.SCRAM_SHA_512, shape),
        decoy(b"key", "alice", Mechanism.SCRAM_SHA_256, shape),
    ):
        assert other.salt != made.salt


@pytest.mark.parametrize("raw", [b"", b"{}", b"[]", b"\xff", b'{"iterations": "x"}'])
def test_a_foreign_value_is_no_credential(raw: bytes) -> None:
    assert decode(raw) is None


def test_decoys_have_the_shapes_of_all_credentials_and_keep_theirs() -> None:
    shapes = ["4096:24:bytes", "8192:24:bytes"]
    names = [f"user{number}" for number in range(200)]
    before = {name: shape_for(b"key", name, shapes) for name in names}
    assert set(before.values()) == set(shapes)
    after = {name: shape_for(b"key", name, [*shapes, "16384:24:bytes"]) for name in names}
    changed = {name for name in names if after[name] != before[name]}
    assert {after[name] for name in changed} == {"16384:24:bytes"}
    assert 20 < len(changed) < 120


def test_passwords_have_one_count_of_iterations_wherever_they_are_set() -> None:
    from inspect import signature

    from korvet.cli import users
    from korvet.console.pages import security

    counts = {
        signature(call).parameters["iterations"].default for call in (users.add, users.passwd)
    }
    assert counts == {DEFAULT_ITERATIONS} == {security.DEFAULT_ITERATIONS}
    assert default_shape().startswith(f"{DEFAULT_ITERATIONS}:")


SALTED = b"salted-password-of-alice-0123456"


def upsert(name: str, mechanism: int = 1, iterations: int = 4096) -> ScramCredentialUpsertion:
    return ScramCredentialUpsertion(
        name=name,
        mechanism=mechanism,
        iterations=iterations,
        salt=b"salt",
        salted_password=SALTED,
    )


def delete(name: str, mechanism: int = 1) -> ScramCredentialDeletion:
    return ScramCredentialDeletion(name=name, mechanism=mechanism)


async def alter(broker: Broker, *changes: Any) -> dict[str, int]:
    request = AlterUserScramCredentialsRequest(
        deletions=[each for each in changes if isinstance(each, ScramCredentialDeletion)],
        upsertions=[each for each in changes if isinstance(each, ScramCredentialUpsertion)],
    )
    results = (await broker.ask(request)).results
    return {result.user: result.error_code for result in results}


async def describe(broker: Broker, *names: str) -> dict[str, Any]:
    users = [UserName(name=name) for name in names] or None
    response = await broker.ask(DescribeUserScramCredentialsRequest(users=users))
    return {
        result.user: result.error_code
        or {info.mechanism: info.iterations for info in result.credential_infos}
        for result in response.results
    }


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ([upsert("a", iterations=4095)], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ([upsert("a", iterations=16385)], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ([upsert("")], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ([delete("")], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ([upsert("a", 0)], ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        ([delete("a", 3)], ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        ([delete("a")], ErrorCode.RESOURCE_NOT_FOUND),
        ([upsert("a"), upsert("a", 2)], ErrorCode.DUPLICATE_RESOURCE),
        ([delete("a"), upsert("a")], ErrorCode.DUPLICATE_RESOURCE),
    ],
)
async def test_a_bad_change_gets_kafkas_error(
    broker: Broker, changes: list[Any], error: ErrorCode
) -> None:
    assert await alter(broker, *changes, upsert("good")) == {changes[0].name: error, "good": 0}
    assert await describe(broker) == {"good": {1: 4096}}


async def test_users_are_described_by_name_or_all(broker: Broker) -> None:
    await alter(broker, upsert("b"), upsert("a", 2, 8192))
    await alter(broker, upsert("a", 1, 16384))
    assert await describe(broker) == {"a": {1: 16384, 2: 8192}, "b": {1: 4096}}
    assert await describe(broker, "b", "c", "a", "a") == {
        "b": {1: 4096},
        "c": ErrorCode.RESOURCE_NOT_FOUND,
        "a": ErrorCode.DUPLICATE_RESOURCE,
    }
    assert await alter(broker, delete("a", 2)) == {"a": 0}
    assert await describe(broker, "a") == {"a": {1: 16384}}


async def test_the_salted_password_is_not_stored(broker: Broker) -> None:
    await alter(broker, upsert("a"))
    services = broker.services
    stored = b"".join(await services.store.command("HGETALL", services.keys.users()))
    assert b"alice" not in stored
    found = await services.users.find("a", [Mechanism.SCRAM_SHA_256])
    assert found.credential.stored_key != SALTED
    assert "stored_key" not in repr(found)
