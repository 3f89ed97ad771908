"""Check that each handler responds to any well-formed request, and the response can be sent."""

import asyncio
from random import Random
from typing import Any

import msgspec
import pytest

from korvet.apis import TABLE, Api
from tests.support.connected_broker import Broker
from tests.wire.values import a_message

VERSIONS = [
    (api, version) for api in TABLE for version in range(api.versions[0], api.versions[1] + 1)
]
WAITS = {"max_wait_ms": 0, "timeout_ms": 1, "rebalance_timeout_ms": 1, "session_timeout_ms": 6000}


NUMBERS = {"partition", "partition_index", "partitions", "partition_indexes"}


def near(value: Any, random: Random, name: str = "") -> Any:
    """Return the value with partitions, topic ids and offsets that may exist."""
    if isinstance(value, list):
        return [near(item, random, name) for item in value]
    if isinstance(value, msgspec.Struct):
        fields = {key: near(getattr(value, key), random, key) for key in value.__struct_fields__}
        return msgspec.structs.replace(value, **fields)
    if isinstance(value, int) and not isinstance(value, bool):
        if name in NUMBERS:
            return random.randrange(3)
        if "offset" in name or "epoch" in name or "generation" in name:
            return random.choice((-2, -1, 0, 1, 5, value))
        if name.endswith("type"):
            return random.choice((0, 1, 2, 4, 8, 32, value & 127))
    return value


def patient(request: Any) -> Any:
    """Return the request without a wait."""
    there = {field for field in WAITS if field in request.__struct_fields__}
    return msgspec.structs.replace(request, **{field: WAITS[field] for field in there})


@pytest.mark.parametrize(
    ("api", "version"), VERSIONS, ids=lambda value: getattr(value, "name", str(value))
)
async def test_any_request_gets_a_response(broker: Broker, api: Api, version: int) -> None:
    random = Random(f"{api.name} {version}")
    for name in ("a", "orders"):
        await broker.create(name, 2)
    for _ in range(12):
        request = patient(near(a_message(api.request, version, random), random))
        async with asyncio.timeout(5):
            await broker.ask(request, version)
