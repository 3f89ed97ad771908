"""What can go wrong between a call and its answer. Each exception has one cause.

StoreError
  StoreUnavailable      nobody knows whether it happened, or Redis refused for now: try later
    RedisUnreachable    no connection could be made, or its handshake was refused
    StoreRefused        Redis answered, but cannot do it now (OOM, READONLY, LOADING, ...)
  RedisTooOld           the server lacks what the scripts need
  ScriptFailed          a script ran into an error: a broken contract, ours to repair
  CommandFailed         the same for a plain command
"""

import re

# First words of Redis errors that pass: the same call can succeed later, or at another node.
PASSING = frozenset(
    {"BUSY", "CLUSTERDOWN", "LOADING", "MASTERDOWN", "MISCONF", "NOREPLICAS", "OOM", "READONLY",
     "TRYAGAIN", "UNBLOCKED"}
)  # fmt: skip

# What a replica refuses writes with, and reads while it has no master.
A_REPLICA = ("READONLY", "MASTERDOWN")

# Redis 6.2 wraps an error that a command inside a script met; newer servers begin with its word.
_IN_SCRIPT = re.compile(r"(?:ERR )?Error running script .*? -([A-Z]+) ", re.DOTALL)
# These put a word of their own before what a script caught and throws again (log.append_many does).
_AGAIN = re.compile(rf"ERR ({'|'.join(sorted(PASSING))}) ")


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
        ("NOPERM|no permissions", "its user needs that permission (ACL SETUSER)"),
        ("^no answer from Redis( at .*)?: Error", "start it, or give another --redis URL"),
        ("Connection closed by server", "is it a Redis that listens there?"),
        ("cluster support disabled", "it is one server, no cluster: redis://HOST:PORT"),
        ("no Sentinel at .* names a master", "name one that they watch, and Sentinels' own ports"),
    )
)


class StoreError(Exception):
    """Something between a call and its answer went wrong."""


class StoreUnavailable(StoreError):
    """The call was not answered, and may or may not have happened. It was not sent again."""


class RedisUnreachable(StoreUnavailable):
    """There is no connection to Redis; the message says where, why and what to do."""


class StoreRefused(StoreUnavailable):
    """Redis answered that it cannot do this now, and did nothing. `code` is its word for why."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.code = code_of(message)


class RedisTooOld(StoreError):
    """The server is older than the scripts can run on."""


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
    """The word that a Redis error begins with; that of the command, where a script met it, and
    perhaps threw it again."""
    found = _IN_SCRIPT.match(message) or _AGAIN.match(message)
    return found[1] if found else message.partition(" ")[0]


def passing(message: str) -> bool:
    """Whether a Redis error says "not now" rather than "not like this"."""
    return code_of(message) in PASSING


def refusal(script: str, version: int, message: str) -> StoreError:
    """The exception for an error that Redis answered to a script's call."""
    if passing(message):
        return StoreRefused(message)
    return ScriptFailed(script, version, message)


def command_refusal(command: str, message: str) -> StoreError:
    """The exception for an error that Redis answered to a plain command."""
    return StoreRefused(message) if passing(message) else CommandFailed(command, message)


def advised(error: StoreError) -> str:
    """The error as a sentence for a person, with what to do about it."""
    text = _SCRIPT.sub("", str(error)).rstrip(". ")
    advice = next((advice for words, advice in _ADVICE if words.search(text)), "")
    said = f"{text}; {advice}" if advice else text
    return said if said.endswith("?") else f"{said}."
