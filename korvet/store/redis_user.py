"""The Redis user of a broker: the commands, keys and channels that Korvet needs, and no others.

`korvet redis-acl` prints and creates the user; `korvet doctor` compares a user with this table.
"""

import hashlib

_NEEDED = """
exists K; hexists K f; hget K f; hgetall K; hkeys K; hlen K; hmget K f; hrandfield K; hscan K 0
hstrlen K f; hvals K; pttl K; scard K; sismember K m; smembers K; xinfo|stream K; xlen K
xpending K g; xrange K - +; xrevrange K + -; zcard K; zcount K 0 1; zrange K 0 1
zrangebyscore K 0 1; zrevrangebyscore K 1 0; zscore K m; zmscore K m; memory|usage K
del K; hdel K f; hincrby K f 1; hset K f v; hsetnx K f v; persist K; pexpire K 1; rename K K
sadd K m; set K v; srem K m; unlink K; xack K g 0-1; xadd K * f v; xclaim K g c 0 0-1; xdel K 0-1
xgroup|create K g 0; xgroup|destroy K g; xgroup|setid K g 0; xgroup|createconsumer K g c
xgroup|delconsumer K g c; xinfo|groups K; xinfo|consumers K g; xreadgroup GROUP g c STREAMS K >
xsetid K 0-1; xtrim K MAXLEN 0; zadd K 0 m; zrem K m; zremrangebyscore K 0 1; echo m
publish K m; subscribe K; eval script 0; evalsha sha 0; script|exists sha; script|load script
client|kill ID 1; client|setname n; hello; info; ping; readonly; select 0; time; wait 0 1
acl|whoami; cluster|slots
"""
"""A call of each command; `K` is a key or channel of the namespace."""

UNCHECKED = ("asking", "auth", "client|id", "unsubscribe")
"""Commands of the connection itself, which the servers permit or lack; not checked."""

DRY_RUN = "acl|dryrun"
"""What `korvet doctor` asks; servers before Redis 7.0 lack it."""

_TOO_MUCH = """
config|set dir /; flushall; keys *; debug sleep 0; module|load /x; acl|setuser x; shutdown
replicaof no one; monitor; get another-application
"""
"""Calls that a broker's user should not be permitted."""


def _calls(table: str, key: str) -> dict[str, tuple[str, ...]]:
    """Return the calls of a table, by their commands."""
    calls = {}
    for entry in table.strip().replace("\n", "; ").split("; "):
        name, *arguments = entry.split()
        calls[name] = (*name.split("|"), *(key if each == "K" else each for each in arguments))
    return calls


def needed(namespace: str) -> dict[str, tuple[str, ...]]:
    """Return a call of each command that a broker needs, by the command's rule."""
    return _calls(_NEEDED, f"{namespace}:doctor")


def too_much() -> dict[str, tuple[str, ...]]:
    """Return calls that a broker's user should not be permitted, by the command's rule."""
    return _calls(_TOO_MUCH, "")


def rules(namespace: str, password: str | None, *, waitaof: bool) -> list[str]:
    """Return the arguments of ACL SETUSER after the user's name.

    A password becomes its SHA-256, so that the rule holds no secret; without one the rule has the
    placeholder `>PASSWORD`. `waitaof` permits WAITAOF, which servers before Redis 7.2 refuse to
    name.
    """
    secret = ">PASSWORD"
    if password is not None:
        secret = f"#{hashlib.sha256(password.encode()).hexdigest()}"
    commands = (*needed(namespace), *UNCHECKED, DRY_RUN, *(("waitaof",) if waitaof else ()))
    patterns = [f"{sign}{part}{namespace}:*" for sign in "~&" for part in ("", "{")]
    return ["reset", "resetchannels", "on", secret, *patterns, *(f"+{name}" for name in commands)]
