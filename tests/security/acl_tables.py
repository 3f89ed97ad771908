"""Requests whose answers to a super user are recorded: ACL filters, SCRAM users and quotas."""

from typing import Any

from korvet.wire.messages import alter_client_quotas as acq
from korvet.wire.messages import describe_client_quotas as dcq
from korvet.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from korvet.wire.messages.create_acls import CreateAclsRequest
from korvet.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from korvet.wire.messages.describe_acls import DescribeAclsRequest
from korvet.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from korvet.wire.schema import Message
from tests.security.acl_rules import ANY_ACL, parse
from tests.security.acl_scene import Scene
from tests.security.acl_table_rows import (
    QUOTA_CHANGES,
    SALT,
    SCRAM_DESCRIBED,
    STORED,
    acl_creations,
    acl_filters,
    creation,
    quota_filters,
    scram_changes,
)


def tables(scene: Scene) -> dict[str, list[Any]]:
    """Return each table: rows of a request's arguments and its answer."""
    return {
        "create_acls": _create_acls(scene),
        "describe_acls": _describe_acls(scene),
        "delete_acls": _delete_acls(scene),
        "alter_user_scram_credentials": _alter_scram(scene),
        "describe_user_scram_credentials": _describe_scram(scene),
        "alter_client_quotas": _alter_quotas(scene),
        "describe_client_quotas": _describe_quotas(scene),
    }


def _ask(scene: Scene, request: Message, version: int) -> Any:
    try:
        return scene.admin.ask(request, version)
    except EOFError:
        return None


def _create_acls(scene: Scene) -> list[Any]:
    found = []
    for change in acl_creations():
        answer = _ask(scene, CreateAclsRequest(creations=[creation(change)]), 3)
        found.append([change, answer.results[0].error_code if answer else "closed"])
    scene.set_rules([])
    return found


def _stored(scene: Scene) -> None:
    scene.set_rules([parse(rule) for rule in STORED])


def _rule(row: Any, acl: Any) -> list[Any]:
    place = [row.resource_type, row.resource_name, row.pattern_type]
    return [*place, acl.principal, acl.host, acl.operation, acl.permission_type]


def _describe_acls(scene: Scene) -> list[Any]:
    _stored(scene)
    found: list[Any] = []
    for change in acl_filters():
        answer = _ask(scene, DescribeAclsRequest(**{**ANY_ACL, **change}), 3)
        if answer is None:
            found.append([change, "closed"])
            continue
        rules = sorted(_rule(row, acl) for row in answer.resources for acl in row.acls)
        found.append([change, answer.error_code, rules])
    return found


def _delete_acls(scene: Scene) -> list[Any]:
    found: list[Any] = []
    for change in acl_filters():
        _stored(scene)
        filters = [DeleteAclsFilter(**{**ANY_ACL, **change})]
        answer = _ask(scene, DeleteAclsRequest(filters=filters), 3)
        if answer is None:
            found.append([change, "closed"])
            continue
        result = answer.filter_results[0]
        rules = sorted([row.error_code, *_rule(row, row)] for row in result.matching_acls)
        found.append([change, result.error_code, rules])
    scene.set_rules([])
    return found


def _alter_scram(scene: Scene) -> list[Any]:
    found: list[Any] = []
    for deletions, upsertions in scram_changes():
        request = AlterUserScramCredentialsRequest(
            deletions=[ScramCredentialDeletion(name=n, mechanism=m) for n, m in deletions],
            upsertions=[
                ScramCredentialUpsertion(
                    name=n, mechanism=m, iterations=i, salt=SALT, salted_password=bytes(32 * m % 96)
                )
                for n, m, i in upsertions
            ],
        )
        answer = _ask(scene, request, 0)
        rows = [[row.user, row.error_code] for row in answer.results] if answer else "closed"
        found.append([[deletions, upsertions], rows if rows == "closed" else sorted(rows)])
    return found


def _describe_scram(scene: Scene) -> list[Any]:
    found: list[Any] = []
    prepared = AlterUserScramCredentialsRequest(
        deletions=[],
        upsertions=[
            ScramCredentialUpsertion(
                name="a", mechanism=1, iterations=4096, salt=SALT, salted_password=bytes(32)
            )
        ],
    )
    scene.admin.ask(prepared, 0)
    for names in SCRAM_DESCRIBED:
        users = None if names is None else [UserName(name=name) for name in names]
        answer = _ask(scene, DescribeUserScramCredentialsRequest(users=users), 0)
        if answer is None:
            found.append([names, "closed"])
            continue
        rows = sorted(
            [
                row.user,
                row.error_code,
                sorted([info.mechanism, info.iterations] for info in row.credential_infos),
            ]
            for row in answer.results
        )
        found.append([names, answer.error_code, rows])
    return found


def _alter_quotas(scene: Scene) -> list[Any]:
    found: list[Any] = []
    for entity, ops in QUOTA_CHANGES:
        entry = acq.EntryData(
            entity=[acq.EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
            ops=[acq.OpData(key=key, value=value, remove=remove) for key, value, remove in ops],
        )
        request = acq.AlterClientQuotasRequest(entries=[entry], validate_only=False)
        answer = _ask(scene, request, 1)
        codes = [row.error_code for row in answer.entries] if answer else "closed"
        found.append([[entity, ops], codes])
    return found


def _describe_quotas(scene: Scene) -> list[Any]:
    found: list[Any] = []
    for components, strict in quota_filters():
        rows = [
            dcq.ComponentData(entity_type=kind, match_type=match, match=name)
            for kind, match, name in components
        ]
        request = dcq.DescribeClientQuotasRequest(components=rows, strict=strict)
        answer = _ask(scene, request, 1)
        if answer is None:
            found.append([[components, strict], "closed"])
            continue
        entries = sorted(
            [
                sorted([each.entity_type, each.entity_name or ""] for each in entry.entity),
                sorted([value.key, value.value] for value in entry.values),
            ]
            for entry in answer.entries or []
        )
        found.append([[components, strict], answer.error_code, entries])
    return found
