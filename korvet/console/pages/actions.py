"""Changes of topics and records: what the forms of the console do."""

from collections.abc import Awaitable, Callable, Mapping
from urllib.parse import quote, urlencode

import msgspec

from korvet.admin.config_edits import DELETE, SET, ConfigResourceType
from korvet.console.pages.record import find_record
from korvet.console.pages.topic import find_topic
from korvet.console.visit import PageError, Visit, bytes_of, check, check_row
from korvet.library.values import Record
from korvet.security.acl import Operation
from korvet.security.quotas import PRODUCER_BYTES
from korvet.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from korvet.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from korvet.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from korvet.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from korvet.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

TIMEOUT_MS = 30_000


class Done(msgspec.Struct, frozen=True):
    """The result of a change: the page to show next, with a sentence on it."""

    path: str
    sentence: str
    query: dict[str, str] = {}

    def location(self, visit: Visit) -> str:
        """Return the page's URL. The sentence is signed: another site cannot make one."""
        mark = visit.console.sessions.digest("done", self.sentence.encode())
        return f"{self.path}?{urlencode({**self.query, 'done': self.sentence, 'mark': mark})}"


Action = Callable[[Visit], Awaitable[Done]]


def topic_path(name: str) -> str:
    """Return the path of the topic's page."""
    return f"/topics/{quote(name, safe='')}"


def number_in(visit: Visit, name: str, what: str) -> int:
    """Return a number of the form. Raises PageError."""
    text = visit.form.get(name, "").strip()
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise PageError(400, f"{what} must be a number, not {text!r}.")
    return int(text)


async def create_topic(visit: Visit) -> Done:
    """Create a topic, whose configs are lines of NAME=VALUE."""
    name = visit.form.get("name", "").strip()
    count = number_in(visit, "partitions", "Partitions")
    configs = {
        config: value
        for config in ("storage.format", "offset.mode", "retention.ms", "cleanup.policy")
        if (value := visit.form.get(config, "").strip())
    }
    for line in visit.form.get("configs", "").splitlines():
        config, equals, value = line.partition("=")
        if line.strip() and not equals:
            raise PageError(400, f"A config is NAME=VALUE, not {line.strip()!r}.")
        if equals:
            configs[config.strip()] = value.strip()
    return await create(visit, name, count, configs)


async def create(visit: Visit, name: str, count: int, configs: Mapping[str, str | None]) -> Done:
    """Create a topic with these configs."""
    topic = CreatableTopic(
        name=name,
        num_partitions=count,
        replication_factor=-1,
        assignments=[],
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
    )
    answer = await visit.call(CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS))
    check_row(answer.topics[0])
    return Done(topic_path(name), f"Topic {name} was created.")


async def delete_topic(visit: Visit) -> Done:
    """Delete a topic, whose name the user typed."""
    name = visit.path["topic"]
    if visit.form.get("name", "") != name:
        raise PageError(400, f"Type {name} to delete the topic.")
    rows = [DeleteTopicState(name=name)]
    answer = await visit.call(DeleteTopicsRequest(topics=rows, timeout_ms=TIMEOUT_MS))
    check_row(answer.responses[0])
    return Done("/topics", f"Topic {name} was deleted.")


async def add_partitions(visit: Visit) -> Done:
    """Raise the number of partitions."""
    name = visit.path["topic"]
    count = number_in(visit, "count", "Partitions")
    wanted = CreatePartitionsTopic(name=name, count=count, assignments=None)
    answer = await visit.call(
        CreatePartitionsRequest(topics=[wanted], timeout_ms=TIMEOUT_MS, validate_only=False)
    )
    check_row(answer.results[0])
    return Done(topic_path(name), f"Topic {name} has {count} partitions.")


async def alter_config(visit: Visit) -> Done:
    """Set a config of a topic, or give it back its default."""
    topic, name = visit.path["topic"], visit.form.get("name", "")
    value: str | None = visit.form.get("value", "").strip()
    if visit.form.get("reset"):
        value = None
    operation = DELETE if value is None else SET
    await alter_configs(
        visit, [AlterableConfig(name=name, config_operation=operation, value=value)]
    )
    what = "has its default again" if value is None else f"is {value} now"
    return Done(f"{topic_path(topic)}/configs", f"{name} {what}.")


async def alter_configs(
    visit: Visit, configs: list[AlterableConfig], *, validate_only: bool = False
) -> None:
    """Change configs of the topic of the path, all or none. Raises PageError."""
    resource = AlterConfigsResource(
        resource_type=ConfigResourceType.TOPIC, resource_name=visit.path["topic"], configs=configs
    )
    answer = await visit.call(
        IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
    )
    check_row(answer.responses[0])


async def produce(visit: Visit) -> Done:
    """Append one record."""
    topic = await find_topic(visit, Operation.WRITE)
    form = visit.form
    headers = []
    for line in form.get("headers", "").splitlines():
        name, colon, value = line.partition(":")
        if line.strip() and not colon:
            raise PageError(400, f"A header is NAME: VALUE, not {line.strip()!r}.")
        if colon:
            headers.append((name.strip(), value.strip().encode()))
    record = Record(
        value=None if form.get("is_null") else _bytes(form, "value"),
        key=_bytes(form, "key") or None,
        headers=headers,
    )
    partition = number_in(visit, "partition", "Partition") if form.get("partition") else None
    await visit.charge(PRODUCER_BYTES, bytes_of(record))
    (appended,) = await visit.log.produce_to(topic.name, [(partition, record)])
    return Done(
        f"{topic_path(topic.name)}/records/{appended.partition}/{appended.base_offset}",
        f"The record was appended to partition {appended.partition} at offset "
        f"{appended.base_offset}.",
    )


def _bytes(form: dict[str, str], name: str) -> bytes:
    """Return a field's bytes. Browsers send a line's end as CR LF."""
    text = form.get(name, "").replace("\r\n", "\n")
    if form.get("encoding") != "hex":
        return text.encode()
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise PageError(400, f"The {name} is not hex: write pairs of 0-9 and a-f.") from None


async def delete_records(visit: Visit) -> Done:
    """Delete the records below the record of the path."""
    topic, record, _, _ = await find_record(visit)
    part = DeleteRecordsPartition(partition_index=record.partition, offset=record.offset)
    answer = await visit.call(
        DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=topic.name, partitions=[part])], timeout_ms=TIMEOUT_MS
        )
    )
    check(answer.topics[0].partitions[0].error_code)
    return Done(
        f"{topic_path(topic.name)}/records",
        f"Partition {record.partition} starts at offset {record.offset} now.",
        {"partition": str(record.partition), "from": "earliest"},
    )
