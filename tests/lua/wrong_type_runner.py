"""A runner that first makes each call with each of its keys in turn held by something else."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import redis

from korvet.scripts.call import Call, Reply
from korvet.testing import LuaRunner, ScriptError

R = TypeVar("R", bound=Reply)

OFTEN = 4
"""So often is a script tried, until somebody clears `tried`."""


class Doubting(LuaRunner):
    """A LuaRunner on a real server, which is emptied: fakeredis knows too little of wrong types. An
    AssertionError names the script that fails and leaves a half behind."""

    def __init__(self, server: redis.Redis) -> None:
        super().__init__()
        self.redis = self.server = server  # type: ignore[assignment]
        self.redis.response_callbacks = {}
        self.command("FLUSHALL")
        self.tried: Counter[str] = Counter()
        self.ever: set[str] = set()

    def reply_to(self, words: Iterable[bytes]) -> Any:
        """The server's reply to the words of a command."""
        return self.server.execute_command(*words)

    def run(self, call: Call[R]) -> R:
        """The call's reply, once it is known to be whole or nothing."""
        name = call.script.name
        if call.script.contract.writes and self.tried[name] < OFTEN:
            self.tried[name] += 1
            self.ever.add(name)
            for key in dict.fromkeys(call.keys):
                self._doubt(call, key)
        return super().run(call)

    def _doubt(self, call: Call[Any], key: str) -> None:
        kept = self._contents()
        self.command("DEL", key)
        self.command("RPUSH", key, "somebody else's")
        before = self._values()
        try:
            reply = super().run(call)
            failed = bool(getattr(reply, "reason", b""))
        except ScriptError:
            failed = True
        if failed:
            after = self._values()
            other = {name for name in before | after if before.get(name) != after.get(name)}
            assert not other, f"{call.script.name} left a half in {other}, for {key}"
        commands = [("RESTORE", name, 0, content) for name, content in kept.items()]
        self._all([("FLUSHALL",), *commands])

    def _all(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        with self.server.pipeline(transaction=False) as pipe:
            for command in commands:
                pipe.execute_command(*command)
            return pipe.execute()

    def _contents(self) -> dict[bytes, bytes]:
        names: Any = self.command("KEYS", "*")
        contents = self._all([("DUMP", name) for name in names])
        return dict(zip(names, contents, strict=True))

    def _values(self) -> dict[bytes, Any]:
        """Contents to compare: the order in which a large hash is dumped depends on who read it."""
        contents: dict[bytes, Any] = dict(self._contents())
        kinds = dict(zip(contents, self._all([("TYPE", name) for name in contents]), strict=True))
        hashes = [name for name, kind in kinds.items() if kind in (b"hash", "hash")]
        rows = self._all([("HGETALL", name) for name in hashes])
        pairs = (sorted(zip(row[::2], row[1::2], strict=True)) for row in rows)
        return contents | dict(zip(hashes, pairs, strict=True))
