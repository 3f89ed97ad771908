"""`korvet acls`: list, add and delete, in Redis or at brokers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import typer

from korvet.admin import requests as admin
from korvet.cli import options as o
from korvet.cli import table_output
from korvet.cli.kafka_client import check
from korvet.cli.kafka_requests import Requests, Via
from korvet.security.acl import (
    CLUSTER_NAME,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    Rule,
    refusal_of,
)

app = o.group()

_COLUMNS = ("resource", "name", "pattern", "principal", "host", "operation", "permission")


@dataclass(frozen=True)
class Rules(o.Options):
    """The options that name rules."""

    principal: Annotated[
        list[str] | None,
        typer.Option("--principal", metavar="TYPE:NAME", help="For example User:alice. Repeat."),
    ] = None
    operation: Annotated[
        list[str] | None,
        typer.Option("--operation", metavar="NAME", help="For example read, write, all. Repeat."),
    ] = None
    topic: Annotated[list[str] | None, typer.Option("--topic", metavar="NAME", help="Repeat.")] = (
        None
    )
    group: Annotated[list[str] | None, typer.Option("--group", metavar="ID", help="Repeat.")] = None
    transactional_id: Annotated[
        list[str] | None, typer.Option("--transactional-id", metavar="ID", help="Repeat.")
    ] = None
    cluster: Annotated[bool, typer.Option("--cluster", help="The cluster itself.")] = False
    prefixed: Annotated[
        bool, typer.Option("--prefixed", help="Names are prefixes; `*` is any name without this.")
    ] = False
    host: Annotated[
        str,
        typer.Option("--host", metavar="HOST", help="Address, network such as 10.0.0.0/8, or *."),
    ] = "*"
    deny: Annotated[bool, typer.Option("--deny", help="Deny; a denial has priority.")] = False

    def all(self) -> list[Rule]:
        """Return every rule that the options name. Raises BadParameter."""
        resources = self._resources()
        if not self.principal or not self.operation:
            raise typer.BadParameter("--principal and --operation are needed")
        names = [name.upper().replace("-", "_") for name in self.operation]
        unknown = [name for name in names if name not in Operation.__members__]
        if unknown:
            known = ", ".join(each.name.lower() for each in Operation if each > Operation.ANY)
            raise typer.BadParameter(
                f"unknown operation {unknown[0].lower()!r}: use one of {known}"
            )
        pattern = PatternType.PREFIXED if self.prefixed else PatternType.LITERAL
        permission = Permission.DENY if self.deny else Permission.ALLOW
        rules = [
            Rule(kind, pattern, name, principal, self.host, Operation[operation], permission)
            for kind, name in resources
            for principal in self.principal
            for operation in names
        ]
        for rule in rules:
            if reason := refusal_of(rule):
                raise typer.BadParameter(reason)
        return rules

    def _resources(self) -> list[tuple[ResourceType, str]]:
        """Return resource types and names. Raises BadParameter if none is given."""
        names = {
            ResourceType.TOPIC: self.topic,
            ResourceType.GROUP: self.group,
            ResourceType.TRANSACTIONAL_ID: self.transactional_id,
            ResourceType.CLUSTER: [CLUSTER_NAME] if self.cluster else None,
        }
        found = [(kind, name) for kind, given in names.items() for name in given or ()]
        if not found:
            raise typer.BadParameter(
                "no resource is given: use --topic, --group, --transactional-id or --cluster"
            )
        return found


@o.command(app, "list")
def list_(via: Via, out: o.Output) -> None:
    """List the rules."""
    out.listing(_COLUMNS, sorted(map(_row, via.run(list_rules))))


@o.command(app, "add")
def add(via: Via, named: Rules) -> None:
    """Add a rule for each principal, operation and resource. Brokers use them within a second."""
    rules = named.all()
    created = via.run(lambda requests: add_rules(requests, rules), create=True)
    table_output.line(f"{created} rules added, {len(rules) - created} existed")


@o.command(app, "delete")
def delete(via: Via, named: Rules) -> None:
    """Delete the rules that `add` makes of the same options."""
    rules = named.all()
    deleted = via.run(lambda requests: delete_rules(requests, rules))
    table_output.line(f"{deleted} rules deleted")
    if deleted < len(rules):
        raise typer.Exit(1)


def _row(rule: Rule) -> tuple[str, ...]:
    return (
        rule.resource_type.name.lower(),
        rule.name,
        rule.pattern_type.name.lower(),
        rule.principal,
        rule.host,
        rule.operation.name.lower(),
        rule.permission.name.lower(),
    )


async def list_rules(requests: Requests) -> list[Rule]:
    """Return the ACL rules."""
    answer = await requests.call(admin.find_rules())
    check(answer)
    return admin.rules_in(answer)


async def add_rules(requests: Requests, rules: Sequence[Rule]) -> int:
    """Add ACL rules; return how many did not exist."""
    known = set(await list_rules(requests))
    for row in (await requests.call(admin.create_rules(rules))).results:
        check(row)
    return len(set(rules) - known)


async def delete_rules(requests: Requests, rules: Sequence[Rule]) -> int:
    """Delete ACL rules; return how many existed."""
    found = (await requests.call(admin.delete_rules(rules))).filter_results
    for each in (row for result in found for row in (result, *result.matching_acls)):
        check(each)
    return sum(len(result.matching_acls) for result in found)
