"""`korvet redis-acl`: print or create the Redis user that brokers and Spark need."""

from typing import Annotated

import typer

from korvet.cli import options as o
from korvet.cli import passwords, table_output
from korvet.cli.redis_target import store
from korvet.store.errors import CommandFailed
from korvet.store.redis_user import rules


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
        password = passwords.from_stdin()
    elif apply:
        password = passwords.ask()
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
