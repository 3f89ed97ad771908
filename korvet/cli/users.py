"""`korvet users`: add, passwd, list and delete, in Redis or at brokers."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Annotated, NamedTuple, TypeVar

import typer

from korvet.admin.requests import set_credential
from korvet.base.errors import ErrorCode
from korvet.cli import options as o
from korvet.cli.kafka_client import check
from korvet.cli.kafka_requests import Requests, Via, on_log
from korvet.config.setting import StartError
from korvet.security.credentials import (
    BY_TITLE,
    MAX_ITERATIONS,
    MIN_ITERATIONS,
    Mechanism,
    SaltedPassword,
    from_salted,
    salt_password,
)
from korvet.security.users import ABSENT, PRESENT, Users
from korvet.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)

T = TypeVar("T")
app = o.group()
Changes = Mapping[Mechanism, SaltedPassword | None]
"""The new passwords of a user; None deletes one."""

_Name = Annotated[str, typer.Argument(metavar="USER", help="The user's name.")]
_Mechanisms = Annotated[
    list[str] | None,
    typer.Option(
        "--mechanism",
        metavar="NAME",
        help="SCRAM-SHA-256 or SCRAM-SHA-512. Repeat. PLAIN uses either.",
    ),
]
_Iterations = Annotated[
    int, typer.Option("--iterations", metavar="N", help="Iterations of PBKDF2, 4096 to 16384.")
]


@o.command(app, "add")
def add(
    name: _Name, via: Via, mechanism: _Mechanisms = None, iterations: _Iterations = 8192
) -> None:
    """Add a user. The password is read from stdin or asked for."""
    wanted = _mechanisms(mechanism) or list(Mechanism)
    changes = _hashed(name, o.read_password(), wanted, iterations)
    error = _on_users(lambda users: users.change(name, changes, ABSENT), via, create=True)
    if error is not ErrorCode.NONE:
        raise StartError(
            f"There is a user {name!r} already: `korvet users passwd` sets another password."
        )


@o.command(app, "passwd")
def passwd(
    name: _Name, via: Via, mechanism: _Mechanisms = None, iterations: _Iterations = 8192
) -> None:
    """Set another password, by default for all mechanisms that the user has."""
    named = _mechanisms(mechanism)
    known = _on_users(lambda users: users.describe([name]), via)[name]
    if not known:
        raise _unknown(name)
    changes = _hashed(name, o.read_password(), named or list(known), iterations)
    condition = "" if named else PRESENT
    error = _on_users(lambda users: users.change(name, changes, condition), via)
    if error is not ErrorCode.NONE:
        raise _unknown(name)


@o.command(app, "list")
def list_(via: Via, out: o.Output) -> None:
    """List users with their mechanisms. Salts and keys are not shown."""
    found = _on_users(lambda users: users.list(), via)
    rows = [
        (name, mechanism.title, iterations)
        for name, credentials in found.items()
        for mechanism, iterations in credentials.items()
    ]
    out.listing(("user", "mechanism", "iterations"), rows)


@o.command(app, "delete")
def delete(name: _Name, via: Via, mechanism: _Mechanisms = None) -> None:
    """Delete a user, or only the credentials of some mechanisms."""
    wanted = _mechanisms(mechanism) or list(Mechanism)
    changes: Changes = dict.fromkeys(wanted)
    error = _on_users(lambda users: users.change(name, changes, PRESENT), via)
    if error is not ErrorCode.NONE:
        raise _unknown(name)


def _mechanisms(names: list[str] | None) -> list[Mechanism]:
    unknown = [name for name in names or () if name not in BY_TITLE]
    if unknown:
        raise typer.BadParameter(
            f"--mechanism must be one of {', '.join(BY_TITLE)}, not {unknown[0]!r}"
        )
    return [BY_TITLE[name] for name in names or ()]


def _hashed(name: str, password: str, mechanisms: list[Mechanism], iterations: int) -> Changes:
    if not name:
        raise typer.BadParameter("the user's name must not be empty")
    if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
        raise typer.BadParameter(
            f"--iterations must be from {MIN_ITERATIONS} to {MAX_ITERATIONS}, not {iterations}"
        )
    return {each: salt_password(each, password, iterations) for each in mechanisms}


def _unknown(name: str) -> Exception:
    return StartError(f"There is no such user or credential: {name!r}.")


class _RedisUsers(Users):
    """The users in the target's Redis."""

    async def change(self, name: str, changes: Changes, condition: str) -> ErrorCode:
        """Set and delete credentials of a user, unless the condition does not hold."""
        credentials = {
            each: None if new is None else from_salted(each, new.salted, new.salt, new.iterations)
            for each, new in changes.items()
        }
        return await self.alter(name, credentials, condition)


class BrokerUsers(NamedTuple):
    """The users of brokers. Unlike in Redis, a condition is checked before the change."""

    requests: Requests

    async def list(self) -> dict[str, dict[Mechanism, int]]:
        """Return the iterations of every user's credentials."""
        return await self._describe(None)

    async def describe(self, names: Sequence[str]) -> dict[str, dict[Mechanism, int]]:
        """Return the iterations of these users' credentials; none of an unknown user."""
        return {name: {} for name in names} | await self._describe(names)

    async def change(self, name: str, changes: Changes, condition: str) -> ErrorCode:
        """Set and delete credentials of a user, unless the condition does not hold."""
        known = (await self.describe([name]))[name]
        deleted = [each for each, salted in changes.items() if salted is None and each in known]
        if condition == ABSENT and known:
            return ErrorCode.DUPLICATE_RESOURCE
        if condition == PRESENT and (not known or not (deleted or any(changes.values()))):
            return ErrorCode.RESOURCE_NOT_FOUND
        for each, new in changes.items():  # a request may change a user once
            if new is not None or each in deleted:
                answer = await self.requests.call(set_credential(name, each, new))
                check(answer.results[0])
        return ErrorCode.NONE

    async def _describe(self, names: Sequence[str] | None) -> dict[str, dict[Mechanism, int]]:
        users = None if names is None else [UserName(name=name) for name in names]
        answer = await self.requests.call(DescribeUserScramCredentialsRequest(users=users))
        check(answer)
        found = {}
        for row in answer.results:
            if row.error_code != ErrorCode.RESOURCE_NOT_FOUND:
                check(row)
                rows = row.credential_infos
                found[row.user] = {Mechanism(each.mechanism): each.iterations for each in rows}
        return dict(sorted(found.items()))


def _on_users(
    work: Callable[[_RedisUsers | BrokerUsers], Awaitable[T]], via: Via, *, create: bool = False
) -> T:
    """Run `work` on the users of the brokers or of the target's Redis and return its result."""
    if via.has_brokers:
        return via.run(lambda requests: work(BrokerUsers(requests)))
    return on_log(lambda log: work(_RedisUsers(log.store, log.keys)), via.target, create=create)
