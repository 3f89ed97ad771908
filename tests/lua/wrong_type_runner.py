"""A runner that first tries each call with each key, in turn, of another type."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import redis

from korvet.scripts.call import Call, Reply
from korvet.testing import LuaRunner, ScriptError

R = TypeVar("R", bound=Reply)

OFTEN = 4
"""Max trials of a script, until `tried` is cleared."""


class Doubting(LuaRunner):
    """A LuaRunner on a real server, which it empties: fakeredis checks too few types.

    An AssertionError names a script that fails and leaves a part of its writes.
    """

    def __init__(self, server: redis.Redis) -> None:
        super().__init__()
        self.redis = self.server = server  # type: ignore[assignment]
        self.redis.response_callbacks = {}
        self.command("FLUSHALL")
        self.tried: Counter[str] = Counter()
        self.ever: set[str] = set()

    def reply_to(self, words: Iterable[bytes]) -> Any:
        """Send the words of a command; return the server's reply."""
        return self.server.execute_command(*words)

    def run(self, call: Call[R]) -> R:
        """Run a call, after checking that it writes everything or nothing."""
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
        self.command("RPUSH", key, "foreign")
        before = self._values()
        try:
            reply = super().run(call)
            failed = bool(getattr(reply, "reason", b""))
        except ScriptError:
            failed = True
        if failed:
            after = self._values()
            other = {name for name in before | after if before.get(name) != after.get(name)}
            assert not other, f"{call.script.name} left a part of its writes in {other}, for {key}"
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
        """Return contents to compare, hashes sorted: DUMP's order depends on earlier reads."""
        contents: dict[bytes, Any] = dict(self._contents())
        kinds = dict(zip(contents, self._all([("TYPE", name) for name in contents]), strict=True))
        hashes = [name for name, kind in kinds.items() if kind in (b"hash", "hash")]
        rows = self._all([("HGETALL", name) for name in hashes])
        pairs = (sorted(zip(row[::2], row[1::2], strict=True)) for row in rows)
        return contents | dict(zip(hashes, pairs, strict=True))
