"""Check valid requests of every API and version, damaged at random: refused or answered.

The broker is one process with one event loop. A second client sends requests in between, which
fail if a damaged one blocks or ends the broker. A handler that fails leaves a traceback.
"""

from contextlib import ExitStack
from random import Random

import pytest

from korvet import apis
from korvet.apis import Api
from korvet.wire.messages.metadata import MetadataRequest
from tests.interop.brokers import Broker
from tests.support.raw_client import Peer, request, resident
from tests.wire.values import a_message

ROUNDS = 12
NONE = MetadataRequest(topics=[])
WILD = (
    b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\0\0\0\0",
    b"\x80\0",
    b"\xff" * 9,
    b"\0",
    b"\x7f",
)


def damaged(content: bytes, random: Random) -> bytes:
    """Return the content with 1 to 3 random changes after API and version."""
    found = bytearray(content)
    for _ in range(random.randrange(1, 4)):
        at = random.randrange(4, len(found) + 1)
        how = random.randrange(4)
        if how == 0:
            wild = random.choice(WILD)
            found[at : at + len(wild)] = wild
        elif how == 1:
            del found[at : at + random.randrange(1, 8)]
        elif how == 2:
            found[at:at] = random.randbytes(random.randrange(1, 8))
        elif at < len(found):
            found[at] ^= 1 << random.randrange(8)
    return bytes(found)


@pytest.mark.parametrize("row", apis.TABLE, ids=lambda row: row.name)
def test_no_damaged_request_harms_the_broker(broker: Broker, row: Api) -> None:
    random = Random(f"fuzz {row.name}")
    before = resident(broker.pid)
    with ExitStack() as peers:
        other = peers.enter_context(Peer(broker.address))
        for version in range(row.versions[0], row.versions[1] + 1):
            for turn in range(ROUNDS):
                body = a_message(row.request, version, random, mild=turn % 2 == 0)
                content = request(row.name, version, body)
                peer = peers.enter_context(Peer(broker.address))
                peer.send(damaged(content, random) if turn else content)
            assert other.ask("Metadata", 9, NONE, "other").topics == []
    assert resident(broker.pid) - before < 64 << 20
    assert "request handler failed" not in broker.log
