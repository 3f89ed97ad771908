"""fakeredis, and what it has to be taught before our scripts run on it."""

from typing import Any

import fakeredis
from fakeredis._commands import SUPPORTED_COMMANDS, Key, command
from fakeredis._helpers import OK, SimpleError, SimpleString
from fakeredis._socket import FakeSocket
from fakeredis.model import StreamEntryKey, XStream


def fake_redis() -> fakeredis.FakeRedis:
    """A client of a fake server of its own, that speaks RESP2 and knows XSETID."""
    if "xsetid" not in SUPPORTED_COMMANDS:
        FakeSocket.xsetid = command(name="XSETID", fixed=(Key(XStream), bytes))(xsetid)
    return fakeredis.FakeRedis(server=fakeredis.FakeServer(version=(7,)), protocol=2)


def xsetid(socket: Any, key: Any, last_id: bytes) -> SimpleString:
    """XSETID as Redis has it: the stream exists, and the id is not below its last entry's."""
    if not key:
        raise SimpleError("ERR no such key")
    wanted = StreamEntryKey.parse_str(last_id)
    stream = key.value
    if stream._ids and wanted < stream._ids[-1]:
        raise SimpleError(
            "ERR The ID specified in XSETID is smaller than the target stream top item"
        )
    stream._last_id = wanted
    key.updated()
    return OK
