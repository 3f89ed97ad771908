"""Changes of topics, groups, users, rules and quotas over HTTP.

Topics and configs have the shapes of Confluent's REST proxy (v3). Each call does what a form of the
console does, by the same Kafka request.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Literal

import msgspec

from korvet.base.errors import ErrorCode
from korvet.console.pages import actions, reset, security
from korvet.console.pages.actions import Action, Done
from korvet.console.pages.records import offsets_at
from korvet.console.visit import PageError, Visit, refusal
from korvet.security.acl import Operation, ResourceType


class Cluster(msgspec.Struct, frozen=True):
    """A cluster, with its id."""

    cluster_id: str
    kind: str = "KafkaCluster"


class Clusters(msgspec.Struct, frozen=True):
    """The one cluster."""

    data: list[Cluster]
    kind: str = "KafkaClusterList"


class TopicConfig(msgspec.Struct, frozen=True):
    """A config of a topic; `operation` is that of a change."""

    name: str
    value: str | None = None
    operation: Literal["SET", "DELETE"] = "SET"


class NewTopic(msgspec.Struct, frozen=True):
    """A topic to create, by default with num.partitions partitions."""

    topic_name: str
    partitions_count: int | None = None
    configs: list[TopicConfig] = []


class CreatedTopic(msgspec.Struct, frozen=True):
    """A topic."""

    cluster_id: str
    topic_name: str
    partitions_count: int
    kind: str = "KafkaTopic"


class PartitionCount(msgspec.Struct, frozen=True):
    """The number of partitions that a topic is to have."""

    partitions_count: int


class ConfigChanges(msgspec.Struct, frozen=True):
    """Changes of a topic's configs, all or none."""

    data: list[TopicConfig]
    validate_only: bool = False


class GroupReset(msgspec.Struct, frozen=True):
    """The position in a topic to which a group is reset: earliest, latest, an offset, a time..."""

    topic: str
    to: str


class NewUser(msgspec.Struct, frozen=True):
    """A SCRAM user; one that exists gets the password."""

    name: str
    password: str


class Rule(msgspec.Struct, frozen=True):
    """An ACL rule, in Kafka's words."""

    principal: str
    operation: str
    resource_type: str
    name: str = msgspec.field(default="", name="resource_name")
    pattern_type: str = "LITERAL"
    host: str = "*"
    permission: str = "ALLOW"


class Quota(msgspec.Struct, frozen=True):
    """A quota of an entity; without a value it is removed. `<default>` names the default."""

    key: str
    value: str = ""
    user: str = ""
    client_id: str = msgspec.field(default="", name="client-id")
    ip: str = ""


async def clusters(visit: Visit, _: None) -> Clusters:
    """Return the cluster."""
    return Clusters([Cluster(_cluster(visit))])


def _cluster(visit: Visit) -> str:
    """Return the cluster's id. Raises PageError if the path has another one."""
    found = visit.services.registration.cluster_id
    if visit.path.get("cluster", found) != found:
        raise PageError(404, f"This is cluster {found!r}.")
    return found


async def _do(visit: Visit, action: Action, **form: str) -> Done:
    """Do what a form does."""
    _cluster(visit)
    visit.form = form
    return await action(visit)


def form_of(action: Action, **in_path: str) -> Callable[[Visit, Any], Awaitable[Done]]:
    """Return a call that does what a form does.

    The body has the form's fields; `in_path` are fields that the path has, by their names there.
    """

    async def call(visit: Visit, body: msgspec.Struct | None) -> Done:
        form = {} if body is None else msgspec.structs.asdict(body)
        form |= {field: visit.path[name] for field, name in in_path.items()}
        return await _do(visit, action, **form)

    return call


async def create_topic(visit: Visit, body: NewTopic) -> CreatedTopic:
    """Create a topic."""
    count = body.partitions_count
    if count is None:
        count = visit.services.settings.integer("num.partitions")
    cluster = _cluster(visit)
    configs = {each.name: each.value for each in body.configs}
    await actions.create(visit, body.topic_name, count, configs)
    return CreatedTopic(cluster, body.topic_name, count)


async def add_partitions(visit: Visit, body: PartitionCount) -> Done:
    """Raise the number of partitions."""
    return await _do(visit, actions.add_partitions, count=str(body.partitions_count))


async def alter_configs(visit: Visit, body: ConfigChanges) -> Done:
    """Change configs of a topic."""
    _cluster(visit)
    topic = visit.path["topic"]
    if without := [each for each in body.data if each.operation == "SET" and each.value is None]:
        raise refusal(ErrorCode.INVALID_REQUEST, f"{without[0].name} needs a value.")
    changes = [(each.name, each.value if each.operation == "SET" else None) for each in body.data]
    await actions.alter_configs(visit, changes, validate_only=body.validate_only)
    return Done("", f"Configs of {topic} were changed.")


async def reset_group(visit: Visit, body: GroupReset) -> Done:
    """Move a group to a position in every partition of a topic."""
    group = visit.path["group"]
    visit.require(Operation.READ, ResourceType.GROUP, group)
    topic = await reset.topic_of(visit, body.topic)
    found = await offsets_at(visit, topic, body.to, range(topic.partitions))
    offsets = [f"{number}:{offset}" for number, offset in found.items()]
    form = {"id": group, "topic": topic.name, "offsets": ",".join(offsets)}
    return await _do(visit, reset.reset, **form)


async def set_quota(visit: Visit, body: Quota) -> Done:
    """Set or remove a quota."""
    form: dict[str, Any] = msgspec.to_builtins(body)
    return await _do(visit, security.set_quota, **form)
