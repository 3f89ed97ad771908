"""Record the responses of an Apache Kafka to every case in kafka.json.

    python -m tests.conformance.record HOST:PORT [CASE...]

It needs an empty Apache Kafka 4.4 with `group.initial.rebalance.delay.ms=0`. With names of cases,
or prefixes of names, only those are recorded again.
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
"""Error codes of a coordinator that is loading, not available or on another broker."""
NOTHING = "no answer"


def topics() -> CreateTopicsRequest:
    """Return a request to create the topics of the cases."""
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
    """Return the recorded outlines: case to version to outline."""
    found: dict[str, dict[str, Any]] = msgspec.json.decode(ANSWERS.read_bytes())
    return {name: dict(_each(of)) for name, of in found.items()}


def _each(of: dict[str, Any]) -> Iterator[tuple[int, Any]]:
    for versions, answer in of.items():
        first, _, last = versions.partition("-")
        yield from ((version, answer) for version in range(int(first), int(last or first) + 1))


class Kafka:
    """A broker at an address."""

    def __init__(self, address: str) -> None:
        self._address = address

    async def send(self, request: Message, version: int) -> Any:
        """Send a request on a new connection and return the response."""
        with Peer(self._address) as peer:
            return await _asked(peer, request, version)

    async def until_it_coordinates(self) -> None:
        """Wait for the coordinators. Kafka creates their internal topics at the first request."""
        for kind in (0, 1):
            asked = FindCoordinatorRequest(key_type=kind, coordinator_keys=["warm"])
            await self._answered(asked, 4, lambda answer: answer.coordinators[0].error_code)
        for number in range(600):
            beat = HeartbeatRequest(group_id=f"warm{number}", generation_id=1, member_id="m")
            await self._answered(beat, 3, lambda answer: answer.error_code)
            producer = InitProducerIdRequest(
                transactional_id=f"warm{number}", transaction_timeout_ms=1000
            )
            await self._answered(producer, 4, lambda answer: answer.error_code)

    async def _answered(
        self, request: Message, version: int, code: Callable[[Any], int], times: int = 300
    ) -> None:
        for _ in range(times):
            if code(await self.send(request, version)) not in NOT_YET:
                return
            await asyncio.sleep(0.1)
        raise TimeoutError("the coordinators are not available")

    async def versions(self) -> dict[int, tuple[int, int]]:
        """Return the versions that the broker serves, by API key."""
        answer = await self.send(ApiVersionsRequest(), 0)
        return {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}

    async def outline(self, case: Case, version: int) -> Any:
        """Run a case and return the parts of its responses that are compared."""
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
    """Record cases with these prefixes of names. Returns case to version to outline."""
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
    """Format outlines with one line for consecutive versions of equal outline."""
    lines = []
    for answer, versions in groupby(of, key=lambda version: msgspec.json.encode(of[version])):
        numbers = list(versions)
        name = f"{numbers[0]}-{numbers[-1]}" if len(numbers) > 1 else f"{numbers[0]}"
        lines.append(f'  "{name}": {answer.decode()}')
    return ",\n".join(lines)


if __name__ == "__main__":
    recorded = asyncio.run(record(*sys.argv[1:]))
    known = read() if sys.argv[2:] else {}
    _write({name: found for name in CASES if (found := recorded.get(name) or known.get(name))})
