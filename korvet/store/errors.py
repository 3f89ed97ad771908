"""Failures between a call and its reply. Each exception has one cause.

StoreError
  StoreUnavailable      the outcome is unknown, or Redis refused for now: try later
    RedisUnreachable    no connection could be made
      HandshakeRefused  Redis refused the user, the password or the database
    StoreRefused        Redis answered, but cannot do it now (OOM, READONLY, LOADING, ...)
  ValueTooLarge         Redis takes no value of that size: nothing was sent
  RedisTooOld           the server lacks what the scripts need
  ScriptFailed          a script raised an error: a broken contract, to be fixed in Korvet
  CommandFailed         the same for a plain command
"""

import re

from korvet.base.errors import ErrorCode

# After these codes the same call can succeed later, or at another node.
TRANSIENT = frozenset(
    {"BUSY", "CLUSTERDOWN", "LOADING", "MASTERDOWN", "MISCONF", "NOREPLICAS", "OOM", "READONLY",
     "TRYAGAIN", "UNBLOCKED"}
)  # fmt: skip

# Codes with which a replica refuses writes, and reads while it has no master.
REPLICA_CODES = ("READONLY", "MASTERDOWN")

# Redis 6.2 wraps an error of a command inside a script; newer servers begin with its code.
_IN_SCRIPT = re.compile(r"(?:ERR )?Error running script .*? -([A-Z]+) ", re.DOTALL)
# Prefixes of scripts that catch an error and raise it again (log.append_many does).
_RAISED_AGAIN = re.compile(rf"ERR ({'|'.join(sorted(TRANSIENT))}) ")


_SCRIPT = re.compile(r" script: (?:[0-9a-f]{40}, )?on .*$")
_ADVICE = tuple(
    (re.compile(words), advice)
    for words, advice in (
        (
            "NOAUTH|Authentication required",
            "give its password: --redis redis://:PASSWORD@HOST:PORT",
        ),
        (
            "WRONGPASS|invalid (username-)?password",
            "give the right one: --redis redis://USER:PASSWORD@HOST:PORT",
        ),
        (
            "READONLY",
            "this is a replica: give the URL of its master, or of the Sentinels that know it, "
            "redis+sentinel://HOST:PORT/MASTER",
        ),
        ("used memory > 'maxmemory'", "raise its maxmemory, or delete topics or records"),
        ("No space left on device", "make room on the disk of its append-only file"),
        (
            "NOREPLICAS|Not enough good replicas",
            "connect the replicas that its min-replicas-to-write wants; Korvet's own Redis has the "
            "setting while its disk fails or is full, see the broker's log",
        ),
        ("NOPERM|no permissions", "`korvet redis-acl` prints the rule that its user needs"),
        (
            "scripting engine|unknown command .EVAL",
            "this server runs no Lua scripts: load Valkey's Lua module (loadmodule), or use a "
            "server with Lua built in",
        ),
        ("^no answer from Redis( at .*)?: Error", "start it, or give another --redis URL"),
        ("Connection closed by server", "is it a Redis that listens there?"),
        ("cluster support disabled", "it is one server, no cluster: redis://HOST:PORT"),
        ("no Sentinel at .* names a master", "name one that they watch, and Sentinels' own ports"),
    )
)


class StoreError(Exception):
    """A call failed between submission and reply."""


class StoreUnavailable(StoreError):
    """The call got no reply: it may have happened. It was not sent again."""


class RedisUnreachable(StoreUnavailable):
    """No connection to Redis; the message says where, why and what to do."""


class HandshakeRefused(RedisUnreachable):
    """Redis refused the user, the password or the database of a new connection."""


class StoreRefused(StoreUnavailable):
    """Redis cannot do this now and did nothing. `code` is its error code."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.code = code_of(message)


class LimitReached(StoreError):
    """A setting limits what there may be in Redis. `code` is the error code of the answer."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class ValueTooLarge(LimitReached):
    """A value is larger than Redis takes, which would close the connection: nothing was sent."""

    def __init__(self, size: int, limit: int) -> None:
        reason = f"A value has {size} bytes; proto-max-bulk-len of Redis is {limit}."
        super().__init__(ErrorCode.MESSAGE_TOO_LARGE, reason)


class RedisTooOld(StoreError):
    """The server is older than the scripts need."""


class ScriptFailed(StoreError):
    """Redis answered a script's call with an error: script or caller broke the contract."""

    def __init__(self, script: str, version: int, message: str) -> None:
        super().__init__(f"{script} v{version}: {message}")
        self.script = script
        self.version = version
        self.message = message


class CommandFailed(StoreError):
    """Redis answered a plain command with an error."""

    def __init__(self, command: str, message: str) -> None:
        super().__init__(f"{command}: {message}")
        self.command = command
        self.message = message


def code_of(message: str) -> str:
    """Return the code of a Redis error.

    For an error inside a script, the code of the command that failed there.
    """
    found = _IN_SCRIPT.match(message) or _RAISED_AGAIN.match(message)
    return found[1] if found else message.partition(" ")[0]


def is_transient(message: str) -> bool:
    """Return whether a Redis error is transient."""
    return code_of(message) in TRANSIENT


def is_temporary(error: StoreError) -> bool:
    """Return whether a first connection that failed so may succeed later, unchanged."""
    if isinstance(error, StoreRefused):
        return error.code != "READONLY"
    return isinstance(error, StoreUnavailable) and not isinstance(error, HandshakeRefused)


def script_error(script: str, version: int, message: str) -> StoreError:
    """Return the exception for an error reply to a script's call."""
    if is_transient(message):
        return StoreRefused(message)
    return ScriptFailed(script, version, message)


def command_error(command: str, message: str) -> StoreError:
    """Return the exception for an error reply to a plain command."""
    return StoreRefused(message) if is_transient(message) else CommandFailed(command, message)


def advice_for(error: StoreError) -> str:
    """Return the error as a sentence for a person, with advice."""
    text = _SCRIPT.sub("", str(error)).rstrip(". ")
    advice = next((advice for words, advice in _ADVICE if words.search(text)), "")
    sentence = f"{text}; {advice}" if advice else text
    return sentence if sentence.endswith("?") else f"{sentence}."
