"""Clients of fakeredis on which the scripts run."""

from typing import Any

import fakeredis
from fakeredis._commands import SUPPORTED_COMMANDS, Key, command
from fakeredis._helpers import OK, SimpleError, SimpleString
from fakeredis._socket import FakeSocket
from fakeredis.model import StreamEntryKey, XStream


def fake_redis(server: fakeredis.FakeServer | None = None) -> fakeredis.FakeRedis:
    """Return a client of a fake server, a new one unless given. It speaks RESP2 and has XSETID."""
    return fakeredis.FakeRedis(server=server or fake_server(), protocol=2)


def fake_async_redis(server: fakeredis.FakeServer | None = None) -> fakeredis.FakeAsyncRedis:
    """Return an asyncio client of a fake server, a new one unless given."""
    return fakeredis.FakeAsyncRedis(server=server or fake_server(), protocol=2)


def fake_server() -> fakeredis.FakeServer:
    """Return an empty fake server for several clients to share."""
    if "xsetid" not in SUPPORTED_COMMANDS:
        patched: Any = FakeSocket
        patched.xsetid = command(name="XSETID", fixed=(Key(XStream), bytes))(xsetid)
    return fakeredis.FakeServer(version=(7,))


def xsetid(socket: Any, key: Any, last_id: bytes) -> SimpleString:
    """Set a stream's last id. Errors: no such key, or an id below the last entry's."""
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
