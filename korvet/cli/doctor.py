"""`korvet doctor`: check whether a Redis is fit to hold a log; correct what can be corrected.

`korvet redis-acl`: print or create the Redis user that brokers and Spark need.
"""

from collections.abc import Generator, Iterator
from typing import Annotated

import typer

from korvet.broker.ops.checks import examine
from korvet.cli import options as o
from korvet.cli import table_output
from korvet.cli.kafka_requests import on_log
from korvet.cli.redis_target import store
from korvet.cli.topics import repair_spent
from korvet.scripts import bundle
from korvet.store.errors import CommandFailed
from korvet.store.handshake import parse_info
from korvet.store.redis_user import rules
from korvet.store.sync_store import SyncStore

_MARKS = {"ok": "ok", "note": "note", "bad": "WARNING"}


def doctor(
    target: o.Target,
    out: o.Output,
    fix: Annotated[
        bool, typer.Option("--fix", help="Correct what can be corrected safely, then check.")
    ] = False,
) -> None:
    """Check the Redis a broker would use.

    Exit code 1 if records could be lost. --fix sets maxmemory-policy to noeviction, turns on the
    append-only file, loads the scripts, and saves the settings in the file that Redis started
    with. It repairs partitions to which nothing can be appended, as `korvet topics repair` does.
    """
    with store(target) as reached:
        if fix and reached.is_cluster:
            raise typer.BadParameter(
                "--fix changes one server: name each master of the cluster in turn, "
                "with --redis redis://HOST:PORT"
            )
        for sentence in _fixed(reached) if fix else ():
            table_output.note(sentence)
        for sentence in on_log(repair_spent, target) if fix else ():
            table_output.note(sentence)
        findings = list(examine(reached, target.namespace))
    rows = [
        (each.grade if out.json else _MARKS[each.grade], each.subject, each.sentence)
        for each in findings
    ]
    out.listing(("grade", "subject", "finding"), rows)
    if any(finding.grade == "bad" for finding in findings):
        raise typer.Exit(1)


def _fixed(store: SyncStore) -> Iterator[str]:
    """Correct the server's settings and its script cache; yield a sentence for each change.

    Each change can be repeated, and none can lose a record. One that the server refuses is a
    sentence too.
    """
    info = parse_info(store.command("INFO"))
    changed = False
    if info.get("maxmemory_policy", "noeviction") != "noeviction":
        changed |= yield from _set(store, "maxmemory-policy", "noeviction")
    if info.get("aof_enabled") != "1" and info.get("loading") != "1":
        changed |= yield from _set(store, "appendonly", "yes")
    if changed:
        yield _saved(store)
    yield from _load(store)


def _set(store: SyncStore, name: str, value: str) -> Generator[str, None, bool]:
    """Set the server's setting; return whether that succeeded."""
    try:
        store.command("CONFIG", "SET", name, value)
    except CommandFailed as error:
        yield f"{name} could not be set to {value}: {error}"
        return False
    yield f"{name} is {value} now"
    return True


def _saved(store: SyncStore) -> str:
    try:
        store.command("CONFIG", "REWRITE")
    except CommandFailed as error:
        return f"the settings are lost when Redis restarts, CONFIG REWRITE failed: {error}"
    return "the settings are saved in the configuration file of Redis"


def _load(store: SyncStore) -> Iterator[str]:
    bundles = [bundle.load(name) for name in bundle.names()]
    there = store.command("SCRIPT", "EXISTS", *(each.sha1 for each in bundles))
    missing = [each for each, found in zip(bundles, there, strict=True) if not int(found)]
    for each in missing:
        store.command("SCRIPT", "LOAD", each.text)
    if missing:
        yield f"{len(missing)} scripts loaded"


def redis_acl(
    target: o.Target,
    user: Annotated[str, typer.Option("--user", help="Name of the Redis user.")] = "korvet",
    apply: Annotated[
        bool, typer.Option("--apply", help="Create or replace the user in the Redis of --redis.")
    ] = False,
    password_stdin: Annotated[
        bool, typer.Option("--password-stdin", help="Read the password from standard input.")
    ] = False,
) -> None:
    """Print or create the Redis user that Korvet needs.

    Its ACL rule has the least privileges, on the keys and channels of --namespace. With
    --password-stdin it has the password's SHA-256, else a placeholder. With --apply the command
    asks for the password. The setting acks.all.fsync also needs +waitaof, which --apply adds if the
    server has it.
    """
    password = None
    if password_stdin:
        password = o.password_on_stdin()
    elif apply:
        password = o.ask_password()
    if not apply:
        rule = rules(target.namespace, password, waitaof=False)
        table_output.line(" ".join(["ACL", "SETUSER", user, *rule]))
        return
    with store(target) as reached:
        try:
            reached.command(
                "ACL", "SETUSER", user, *rules(target.namespace, password, waitaof=True)
            )
        except CommandFailed as error:
            if "waitaof" not in str(error).lower():
                raise
            # Servers before Redis 7.2 have no WAITAOF and refuse a rule that names it.
            reached.command(
                "ACL", "SETUSER", user, *rules(target.namespace, password, waitaof=False)
            )
    table_output.line(f"user {user} may use the keys of namespace {target.namespace}")
