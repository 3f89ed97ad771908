"""What an Apache Kafka answers to every case, written to kafka.json.

    python -m tests.conformance.record HOST:PORT [CASE...]

It needs an empty Apache Kafka 4.4 with `group.initial.rebalance.delay.ms=0`. With cases, or the
beginnings of their names, only their answers are recorded again.
"""

import asyncio
import sys
from collections.abc import Callable, Iterator
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec

from korvet import apis
from korvet.wire.messages.api_versions import ApiVersionsRequest
from korvet.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from korvet.wire.messages.find_coordinator import FindCoordinatorRequest
from korvet.wire.messages.heartbeat import HeartbeatRequest
from korvet.wire.messages.init_producer_id import InitProducerIdRequest
from korvet.wire.schema import Message
from tests.conformance import cases  # noqa: F401
from tests.conformance.asking import CASES, CLIENT, COMPACTED, PRODUCED, TOPIC, Case, outline
from tests.support.raw_client import Peer

ANSWERS = Path(__file__).with_name("kafka.json")
ANSWER_WITHIN_S = 20
NOT_YET = (14, 15, 16)
"""Coordinators that load, are not available, or stand elsewhere."""
NOTHING = "no answer"


def topics() -> CreateTopicsRequest:
    """The topics that cases are about."""
    compact = [CreatableTopicConfig(name="cleanup.policy", value="compact")]
    return CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name=name,
                num_partitions=partitions,
                replication_factor=1,
                assignments=[],
                configs=configs,
            )
            for name, partitions, configs in (
                (TOPIC, 2, []),
                (COMPACTED, 1, compact),
                (PRODUCED, 1, []),
            )
        ]
    )


def read() -> dict[str, dict[int, Any]]:
    """What was recorded: case to version to outline."""
    found: dict[str, dict[str, Any]] = msgspec.json.decode(ANSWERS.read_bytes())
    return {name: dict(_each(of)) for name, of in found.items()}


def _each(of: dict[str, Any]) -> Iterator[tuple[int, Any]]:
    for versions, told in of.items():
        first, _, last = versions.partition("-")
        yield from ((version, told) for version in range(int(first), int(last or first) + 1))


class Kafka:
    """A broker at an address."""

    def __init__(self, address: str) -> None:
        self._address = address

    async def send(self, request: Message, version: int) -> Any:
        """The answer, on a connection of its own."""
        with Peer(self._address) as peer:
            return await _asked(peer, request, version)

    async def until_it_coordinates(self) -> None:
        """Kafka makes its own topics when coordinators are first asked for."""
        for kind in (0, 1):
            asked = FindCoordinatorRequest(key_type=kind, coordinator_keys=["warm"])
            await self._answered(asked, 4, lambda told: told.coordinators[0].error_code)
        for number in range(600):
            beat = HeartbeatRequest(group_id=f"warm{number}", generation_id=1, member_id="m")
            await self._answered(beat, 3, lambda told: told.error_code)
            producer = InitProducerIdRequest(
                transactional_id=f"warm{number}", transaction_timeout_ms=1000
            )
            await self._answered(producer, 4, lambda told: told.error_code)

    async def _answered(
        self, request: Message, version: int, code: Callable[[Any], int], times: int = 300
    ) -> None:
        for _ in range(times):
            if code(await self.send(request, version)) not in NOT_YET:
                return
            await asyncio.sleep(0.1)
        raise TimeoutError("the coordinators do not come up")

    async def versions(self) -> dict[int, tuple[int, int]]:
        """What it serves, by API key."""
        answer = await self.send(ApiVersionsRequest(), 0)
        return {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}

    async def outline(self, case: Case, version: int) -> Any:
        """What of its answers is compared."""
        try:
            async with asyncio.timeout(ANSWER_WITHIN_S):
                if not case.one_connection:
                    return await outline(case, self.send, version)
                with Peer(self._address) as peer:
                    return await outline(case, partial(_asked, peer), version)
        except (EOFError, TimeoutError):
            return NOTHING


async def _asked(peer: Peer, request: Message, version: int) -> Any:
    row = apis.BY_KEY[request.__message__.key]
    return await asyncio.to_thread(peer.ask, row.name, version, request, CLIENT)


async def record(address: str, *names: str) -> dict[str, dict[int, Any]]:
    """Case to version to outline, of cases with these beginnings of names."""
    kafka = Kafka(address)
    await kafka.send(topics(), 7)
    await kafka.until_it_coordinates()
    served, found = await kafka.versions(), {}
    for case in CASES.values():
        if names and not case.name.startswith(names):
            continue
        first = max(served[case.key][0], case.versions[0])
        last = min(served[case.key][1], case.versions[1])
        found[case.name] = {
            version: await kafka.outline(case, version) for version in range(first, last + 1)
        }
    return found


def _write(found: dict[str, dict[int, Any]]) -> None:
    lines = [f' "{name}": {{\n{_lines(of)}\n }}' for name, of in found.items()]
    ANSWERS.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def _lines(of: dict[int, Any]) -> str:
    """One line for versions with one answer."""
    lines = []
    for told, versions in groupby(of, key=lambda version: msgspec.json.encode(of[version])):
        numbers = list(versions)
        name = f"{numbers[0]}-{numbers[-1]}" if len(numbers) > 1 else f"{numbers[0]}"
        lines.append(f'  "{name}": {told.decode()}')
    return ",\n".join(lines)


if __name__ == "__main__":
    recorded = asyncio.run(record(*sys.argv[1:]))
    known = read() if sys.argv[2:] else {}
    _write({name: found for name in CASES if (found := recorded.get(name) or known.get(name))})
