"""Changes of topics and records: what the forms of the console do."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from urllib.parse import quote, urlencode

import msgspec

from korvet.admin import requests as admin
from korvet.admin.config_edits import ConfigResourceType
from korvet.console.pages.record import find_record
from korvet.console.pages.topic import find_topic
from korvet.console.visit import PageError, Visit, bytes_of, check, check_row
from korvet.library.values import Record
from korvet.security.acl import Operation
from korvet.security.quotas import PRODUCER_BYTES


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
    answer = await visit.call(admin.create_topic(name, count, configs))
    check_row(answer.topics[0])
    return Done(topic_path(name), f"Topic {name} was created.")


async def delete_topic(visit: Visit) -> Done:
    """Delete a topic, whose name the user typed."""
    name = visit.path["topic"]
    if visit.form.get("name", "") != name:
        raise PageError(400, f"Type {name} to delete the topic.")
    answer = await visit.call(admin.delete_topic(name))
    check_row(answer.responses[0])
    return Done("/topics", f"Topic {name} was deleted.")


async def add_partitions(visit: Visit) -> Done:
    """Raise the number of partitions."""
    name = visit.path["topic"]
    count = number_in(visit, "count", "Partitions")
    answer = await visit.call(admin.add_partitions(name, count))
    check_row(answer.results[0])
    return Done(topic_path(name), f"Topic {name} has {count} partitions.")


async def alter_config(visit: Visit) -> Done:
    """Set a config of a topic, or give it back its default."""
    topic, name = visit.path["topic"], visit.form.get("name", "")
    value: str | None = visit.form.get("value", "").strip()
    if visit.form.get("reset"):
        value = None
    await alter_configs(visit, [(name, value)])
    what = "has its default again" if value is None else f"is {value} now"
    return Done(f"{topic_path(topic)}/configs", f"{name} {what}.")


async def alter_configs(
    visit: Visit, changes: Iterable[tuple[str, str | None]], *, validate_only: bool = False
) -> None:
    """Change configs of the topic of the path, all or none. Raises PageError."""
    request = admin.alter_configs(
        ConfigResourceType.TOPIC, visit.path["topic"], changes, validate_only=validate_only
    )
    answer = await visit.call(request)
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
    request = admin.delete_records(topic.name, record.partition, record.offset)
    answer = await visit.call(request)
    check(answer.topics[0].partitions[0].error_code)
    return Done(
        f"{topic_path(topic.name)}/records",
        f"Partition {record.partition} starts at offset {record.offset} now.",
        {"partition": str(record.partition), "from": "earliest"},
    )
