"""`korvet apply FILE`: make topics, rules, quotas and users as a file lists them."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from korvet.admin.config_edits import ConfigResourceType
from korvet.cli import apply_file, quotas, table_output
from korvet.cli import options as o
from korvet.cli.acls import add_rules, delete_rules, list_rules
from korvet.cli.broker_log import SHAPE, BrokerLog
from korvet.cli.config_changes import Resource
from korvet.cli.kafka_requests import Requests, Via
from korvet.cli.users import BrokerUsers
from korvet.config.setting import Source, StartError
from korvet.security.acl import ANY_NAME, PatternType, Rule
from korvet.security.credentials import Mechanism
from korvet.security.users import PRESENT

_COLUMNS = ("change", "kind", "name", "what", "before", "after")
ADD, CHANGE, REMOVE, MISSING = "add", "change", "delete", "missing"
_RESERVED = "__"
"""Topics of brokers and tools begin with it: --prune leaves them."""


class _Step(NamedTuple):
    """Changes that are made together: their rows, and what makes them.

    `check` has the brokers refuse what they would refuse, without a change.
    """

    rows: Sequence[table_output.Row]
    do: Callable[[], Awaitable[object]] | None
    check: Callable[[], Awaitable[object]] | None = None


def apply(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="YAML or JSON.")],
    via: Via,
    out: o.Output,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the changes, make none. Exit code 1: there are.")
    ] = False,
    prune: Annotated[
        bool,
        typer.Option(
            "--prune",
            help="Delete what a section of the file does not list: topics with their records, "
            "rules, quotas, users, and configs of listed topics.",
        ),
    ] = False,
) -> None:
    """Make topics, rules, quotas and users as a file lists them.

    Each change is printed. Nothing is deleted without --prune, and sections that the file has not
    are left alone. What brokers refuse is refused before the first change. A user has no password
    here: one that is missing is named, with exit code 1.
    """
    wanted = apply_file.read(file)
    done: list[table_output.Row] = []

    async def run(requests: Requests) -> None:
        steps = await _Plan(requests, prune).steps(wanted)
        for step in steps:
            if step.check is not None:
                await step.check()
        for step in steps:
            if step.do is not None and not dry_run:
                await step.do()
            done.extend(step.rows)

    try:
        via.run(run, create=not dry_run)
    finally:
        if done or out.json:
            out.listing(_COLUMNS, done)
    if not done:
        table_output.note("nothing to change")
    if done if dry_run else any(row[0] == MISSING for row in done):
        raise typer.Exit(1)


class _Plan:
    """The steps from what there is to what is wanted."""

    def __init__(self, requests: Requests, prune: bool) -> None:
        self._requests, self._prune = requests, prune
        self._log = BrokerLog(requests)

    async def steps(self, wanted: apply_file.Wanted) -> list[_Step]:
        """Return the steps, those that delete last."""
        steps: list[_Step] = []
        if wanted.topics is not None:
            steps += await self._topics(wanted.topics)
        if wanted.acls is not None:
            steps += await self._acls(wanted.acls)
        if wanted.quotas is not None:
            steps += await self._quotas(wanted.quotas)
        if wanted.users is not None:
            steps += await self._users(wanted.users)
        return sorted(steps, key=lambda step: step.rows[0][0] == REMOVE)

    async def _topics(self, wanted: Mapping[str, apply_file.Topic]) -> list[_Step]:
        log, known = self._log, await self._log.topics()
        existing = [name for name in wanted if name in known]
        configs = await log.configs(existing)
        steps = []
        for name, topic in wanted.items():
            if name not in known:
                steps.append(self._new_topic(name, topic))
                continue
            count, found = topic.partitions, (await log.topic(name)).partitions
            if count is not None and count < found:
                raise StartError(
                    f"{name} has {found} partitions, and the file {count}: a topic cannot lose any."
                )
            if count is not None and count > found:
                rows = [(CHANGE, "topic", name, "partitions", found, count)]
                grow = partial(log.add_partitions, name, count)
                steps.append(_Step(rows, grow, partial(grow, validate_only=True)))
            steps += self._changed_configs(name, topic.configs, configs[name])
        if self._prune:
            for name in known:
                if name not in wanted and not name.startswith(_RESERVED):
                    gone = (REMOVE, "topic", name, None, None, None)
                    steps.append(_Step([gone], partial(log.delete_topic, name)))
        return steps

    def _new_topic(self, name: str, topic: apply_file.Topic) -> _Step:
        create = partial(
            self._log.create_topic, name, topic.partitions, topic.configs, topic.replicas
        )
        rows: list[table_output.Row] = [
            (ADD, "topic", name, "partitions", None, topic.partitions),
            *((ADD, "topic", name, key, None, value) for key, value in topic.configs.items()),
        ]
        return _Step(rows, create, partial(create, validate_only=True))

    def _changed_configs(
        self, name: str, wanted: Mapping[str, str], configs: Sequence[tuple[str, str | None, int]]
    ) -> list[_Step]:
        now = {key: value for key, value, _ in configs}
        own = {key for key, _, source in configs if source == Source.DYNAMIC_TOPIC}
        rows: list[table_output.Row] = []
        edits: list[tuple[str, str | None]] = []
        for key, value in wanted.items():
            if now.get(key) != value or not (key in own or key in SHAPE):
                rows.append((CHANGE, "topic", name, key, now.get(key), value))
                edits.append((key, value))
        if self._prune:
            for key in sorted(own - wanted.keys() - set(SHAPE)):
                rows.append((CHANGE, "topic", name, key, now[key], None))
                edits.append((key, None))
        if not edits:
            return []
        send = partial(Resource(ConfigResourceType.TOPIC, name).send, self._requests, edits)
        return [_Step(rows, send, partial(send, validate_only=True))]

    async def _acls(self, wanted: Sequence[Rule]) -> list[_Step]:
        known = await list_rules(self._requests)
        new = [rule for rule in dict.fromkeys(wanted) if rule not in known]
        old = [rule for rule in known if rule not in wanted] if self._prune else []
        steps = []
        for rules, change, send in ((new, ADD, add_rules), (old, REMOVE, delete_rules)):
            if rules:
                rows = [(change, "acl", rule.principal, _words(rule), None, None) for rule in rules]
                steps.append(_Step(rows, partial(send, self._requests, rules)))
        return steps

    async def _quotas(self, wanted: Mapping[apply_file.Parts, Mapping[str, float]]) -> list[_Step]:
        known: dict[apply_file.Parts, dict[str, float]] = {}
        for entry in await quotas.read(self._requests, []):
            parts = frozenset((row.entity_type, row.entity_name) for row in entry.entity)
            known[parts] = {row.key: row.value for row in entry.values}
        steps = []
        for parts in sorted({*wanted, *known}, key=_entity):
            now, then = known.get(parts, {}), wanted.get(parts, {})
            changed = {key: value for key, value in then.items() if now.get(key) != value}
            lost = [key for key in now if key not in then] if self._prune else []
            rows: list[table_output.Row] = [
                (
                    CHANGE if key in now else ADD,
                    "quota",
                    _entity(parts),
                    key,
                    _shown(now.get(key)),
                    _shown(value),
                )
                for key, value in changed.items()
            ]
            rows += [(REMOVE, "quota", _entity(parts), key, _shown(now[key]), None) for key in lost]
            if rows:
                edits = [*changed.items(), *((key, None) for key in lost)]
                send = partial(quotas.alter, self._requests, dict(parts), edits)
                steps.append(_Step(rows, send, partial(send, validate_only=True)))
        return steps

    async def _users(self, wanted: Sequence[str]) -> list[_Step]:
        users = BrokerUsers(self._requests)
        known = await users.list()
        steps = [
            _Step([(MISSING, "user", name, f"korvet users add {name}", None, None)], None)
            for name in wanted
            if name not in known
        ]
        for name in known:
            if self._prune and name not in wanted:
                drop = partial(users.change, name, dict.fromkeys(Mechanism), PRESENT)
                steps.append(_Step([(REMOVE, "user", name, None, None, None)], drop))
        return steps


def _entity(parts: apply_file.Parts) -> str:
    """Return the words that name an entity of quotas."""
    rows = sorted(parts, key=lambda part: part[0])
    return ",".join(f"{kind}={quotas.DEFAULT if name is None else name}" for kind, name in rows)


def _shown(value: float | None) -> float | int | None:
    return None if value is None else quotas.shown(value)


def _words(rule: Rule) -> str:
    """Return what a rule allows or denies."""
    words = [
        rule.permission.name.lower(), rule.operation.name.lower().replace("_", "-"),
        rule.resource_type.name.lower().replace("_", "-"), rule.name,
    ]  # fmt: skip
    if rule.pattern_type is PatternType.PREFIXED:
        words.append("prefixed")
    if rule.host != ANY_NAME:
        words.append(f"from {rule.host}")
    return " ".join(words)
