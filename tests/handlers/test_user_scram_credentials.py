"""Check users through Kafka's APIs: Kafka's errors, in Kafka's order."""

from typing import Any

import pytest

from korvet.base.errors import ErrorCode
from korvet.security.credentials import Mechanism
from korvet.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from korvet.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from tests.support.connected_broker import Broker

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
