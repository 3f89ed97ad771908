"""Change the configs of topics, brokers and groups (AlterConfigs, IncrementalAlterConfigs).

Rules
- A change is computed from the stored configs and written only if they are still the same,
  otherwise read and computed again. So two concurrent changes both take effect.
- Only the changed configs are validated: a config that another version stored stays as it is.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass

from korvet.admin.config_edits import (
    DELETE,
    SET,
    SETTINGS,
    Change,
    ConfigResourceType,
    Edit,
    apply_edits,
    check_edits,
    check_group_config,
    check_heartbeats,
    check_topic_change,
    require_setting,
)
from korvet.base.bounded import chunks
from korvet.base.errors import ErrorCode
from korvet.config.broker_settings import BROKER
from korvet.config.dynamic import (
    ALL_BROKERS,
    DynamicBrokerConfig,
    broker_resource,
    encode_configs,
    group_resource,
    select_valid,
)
from korvet.config.setting import ConfigError
from korvet.config.topic_policy import REMOTE, validate_change
from korvet.config.topic_settings import EXPLICIT_ONLY, IMMUTABLE
from korvet.store.calls import AsyncCalls
from korvet.topics.lifecycle import (
    Refused,
    invalid_request,
    outcome,
    refuse_not_durable,
    unknown_topic,
)
from korvet.topics.node import Node
from korvet.topics.table import Topic, encode_definition
from korvet.wire.messages.alter_configs import AlterConfigsRequest, AlterConfigsResourceResponse
from korvet.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest

TIERING = (REMOTE, "cleanup.policy")
"""Configs whose change can end tiered storage of a topic."""
SEGMENTS_WOULD_STAY = (
    "The topic has records in the remote store, and would not be tiered any more. To delete them, "
    "set `remote.storage.enable=false,remote.log.delete.on.disable=true`. To keep them and copy no "
    "others, set `remote.storage.enable=true,remote.log.copy.disable=true`."
)
AT_ONCE = 100
"""Segments that one call removes."""


async def with_segments(store: AsyncCalls, topic: Topic) -> list[int]:
    """Return the partitions that have segments."""
    return [
        number
        for number in range(topic.partitions)
        if await store.command("EXISTS", topic.partition(number).segments)
    ]


async def drop_segments(store: AsyncCalls, topic: Topic, numbers: Sequence[int]) -> None:
    """Remove all segments from these partitions' logs.

    A broker's background task deletes their objects, and repeats this after a crash.
    """
    for number in numbers:
        removed = AT_ONCE
        while removed == AT_ONCE:
            call = topic.partition(number).drop_segments(
                delay_ms=topic.policy.file_delete_delay_ms, most=AT_ONCE
            )
            removed = (await store.run(call)).removed


MAX_ATTEMPTS = 20
"""Attempts to write a change while concurrent changes are written first."""
FIXED: dict[int, str] = {
    ConfigResourceType.BROKER_LOGGER: (
        "Log levels cannot change at run time: set --log-level when the broker starts."
    ),
    ConfigResourceType.CLIENT_METRICS: (
        "Client metrics are not supported: there are no subscriptions to configure."
    ),
}
"""Why the configs of a resource type do not change."""


@dataclass(eq=False, repr=False)
class ConfigAdmin:
    """Validates and writes config changes."""

    node: Node
    config: DynamicBrokerConfig
    node_id: int

    async def alter_each(
        self, request: AlterConfigsRequest | IncrementalAlterConfigsRequest
    ) -> list[AlterConfigsResourceResponse]:
        """Apply the changes of a request; return the row of the response for each."""
        changes = [
            Change(
                row.resource_type,
                row.resource_name,
                [
                    Edit(config.name, config.value, getattr(config, "config_operation", SET))
                    for config in row.configs
                ],
                isinstance(request, AlterConfigsRequest),
                request.validate_only,
            )
            for row in request.resources
        ]
        times = Counter((change.kind, change.name) for change in changes)
        twice = ErrorCode.INVALID_REQUEST, "Each resource must appear at most once."
        outcomes = [
            twice if times[change.kind, change.name] > 1 else await outcome(self.alter(change))
            for change in changes
        ]
        return [
            AlterConfigsResourceResponse(
                error_code=error,
                error_message=reason,
                resource_type=change.kind,
                resource_name=change.name,
            )
            for change, (error, reason) in zip(changes, outcomes, strict=True)
        ]

    async def alter(self, change: Change) -> None:
        """Apply the change, or only validate it (validate_only). Raises Refused."""
        check_edits(change.edits, SETTINGS.get(change.kind))
        if change.kind == ConfigResourceType.TOPIC:
            await self._alter_topic(change)
        elif change.kind == ConfigResourceType.BROKER:
            await self._alter_broker(change)
        elif change.kind == ConfigResourceType.GROUP:
            await self._alter_group(change)
        else:
            reason = FIXED.get(change.kind) or f"Unknown resource type {change.kind}"
            raise invalid_request(reason)

    async def _alter_topic(self, change: Change) -> None:
        check_topic_change(change)
        for _ in range(MAX_ATTEMPTS):
            topic = await self.node.topics.get(change.name)
            if topic is None:
                raise unknown_topic(change.name)
            effective = self.config.topic_configs.resolve(topic.name, topic.configs)
            configs = apply_edits(change, topic.configs, effective)
            names = {edit.name for edit in change.edits}
            reason = validate_change(
                topic.configs, {k: v for k, v in configs.items() if k in names}
            ) or self.config.topic_configs.find_conflict(topic.name, configs)
            if reason:
                raise Refused(ErrorCode.INVALID_CONFIG, reason)
            if configs.get("durability") != topic.configs.get("durability"):
                await refuse_not_durable(self.node.store, configs)
            dropped = await self._segments_to_drop(topic, configs)
            configs |= {name: topic.configs[name] for name in IMMUTABLE if name in topic.configs}
            if change.validate_only:
                return
            names |= {
                name for name in EXPLICIT_ONLY if topic.configs.get(name) != configs.get(name)
            }
            if configs == topic.configs:
                await self._set_logs(topic, names)
                return
            definition = encode_definition(topic.definition(configs=configs))
            reply = await self.node.store.run(
                self.node.keys.topic_alter(
                    topic=topic.name, expected=topic.raw, definition=definition
                )
            )
            self.node.topics.invalidate()
            if reply.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise unknown_topic(change.name)
            if reply.error == ErrorCode.NONE:
                await drop_segments(self.node.store, topic, dropped)
                await self._set_logs(topic, names)
                return
        raise _too_many_conflicts(change.name)

    async def _set_logs(self, topic: Topic, names: Set[str]) -> None:
        """Set dedupe and table of the topic's logs to those of its definition, if `names` has them.

        The logs are set even if the definition stays: an earlier change may not have reached them.
        They are set again if another change was written meanwhile.
        """
        done = None
        while not names.isdisjoint(EXPLICIT_ONLY):
            found = await self.node.topics.get(topic.name)
            if found is None or found.id != topic.id:
                return
            definition = found.definition()
            wanted = found.partitions, definition.dedupe, definition.table
            if done == wanted:
                return
            window, max_ids = definition.dedupe
            action = ("off", "on", "offsets")[definition.table]
            for some in chunks(range(found.partitions), AT_ONCE):
                logs = [found.partition(number) for number in some]
                await self.node.store.run_many(
                    [log.set_dedupe(window=window, max_ids=max_ids) for log in logs]
                )
                await self.node.store.run_many([log.set_table(action=action) for log in logs])
            done = wanted
            self.node.topics.invalidate()

    async def _segments_to_drop(self, topic: Topic, configs: Mapping[str, str]) -> list[int]:
        """Return the partitions whose segments are deleted if the topic gets these configs.

        Raises Refused if it would not be tiered any more, and keep them.
        """
        policy = self.config.topic_configs.policy(topic.name, configs)
        is_same = all(topic.configs.get(name) == configs.get(name) for name in TIERING)
        if policy.remote_storage or is_same:
            return []
        found = await with_segments(self.node.store, topic)
        if found and not policy.remote_delete_on_disable:
            raise Refused(ErrorCode.INVALID_CONFIG, SEGMENTS_WOULD_STAY)
        return found

    async def _alter_broker(self, change: Change) -> None:
        config, resource = self.config, ALL_BROKERS
        if change.name:
            resource = broker_resource(require_own_id(change.name, self.node_id))
        for edit in change.edits:
            if edit.operation != DELETE:
                require_setting(BROKER, edit.name)

        def edited() -> dict[str, str]:
            effective = {value.name: value for value in config.settings}
            configs = apply_edits(change, config.table.explicit(resource), effective)
            named = {edit.name: configs[edit.name] for edit in change.edits if edit.name in configs}
            try:
                _ = config.start.with_dynamic({**select_valid(configs, BROKER), **named})
            except ConfigError as error:
                raise invalid_request(str(error)) from None
            return configs

        await self._store_changed(resource, edited, validate_only=change.validate_only)

    async def _alter_group(self, change: Change) -> None:
        if not change.name:
            raise invalid_request("Default group resources are not allowed.")
        config, resource = self.config, group_resource(change.name)

        def edited() -> dict[str, str]:
            effective = config.table.group(change.name, config.settings)
            configs = apply_edits(change, config.table.explicit(resource), effective)
            for edit in change.edits:
                if edit.name in configs:
                    check_group_config(edit.name, configs[edit.name], config.settings)
            check_heartbeats(configs, config.settings)
            return configs

        await self._store_changed(resource, edited, validate_only=change.validate_only)

    async def use_preset(self, preset: Mapping[str, str]) -> bool:
        """Store these configs for all brokers; return False if Redis has others of these names.

        What the start configuration of this broker has is left out.
        """
        start = self.config.start
        wanted = {name: value for name, value in preset.items() if start.describe(name).is_default}

        def with_preset() -> dict[str, str]:
            known = self.config.table.explicit(ALL_BROKERS)
            return known if known.keys() & preset.keys() else {**known, **wanted}

        await self._store_changed(ALL_BROKERS, with_preset)
        return wanted.items() <= self.config.table.explicit(ALL_BROKERS).items()

    async def alter_quotas(self, resource: str, changes: Mapping[str, str | None]) -> None:
        """Set the quotas of an entity, and remove those that are null. Raises Refused."""

        def changed() -> dict[str, str]:
            configs = {**self.config.table.explicit(resource), **changes}
            return {name: value for name, value in configs.items() if value is not None}

        await self._store_changed(resource, changed)

    async def _store_changed(
        self, resource: str, changed: Callable[[], dict[str, str]], *, validate_only: bool = False
    ) -> None:
        """Store the configs that `changed` returns for those that Redis has."""
        table = self.config.table
        for _ in range(MAX_ATTEMPTS):
            await self.config.refresh()
            expected, wanted = table.raw(resource), encode_configs(changed())
            if validate_only or wanted == expected:
                return
            reply = await self.node.store.run(
                self.node.keys.config_alter(resource=resource, expected=expected, wanted=wanted)
            )
            await self.config.refresh()
            if reply.error == ErrorCode.NONE:
                return
        raise _too_many_conflicts(resource)


def _too_many_conflicts(name: str) -> Refused:
    return Refused(
        ErrorCode.REQUEST_TIMED_OUT,
        f"The configs of {name!r} were changed concurrently {MAX_ATTEMPTS} times: try again.",
    )


def strip_leading_zeros(name: str) -> str:
    """Return a broker's id without leading zeros: 007 names broker 7."""
    return name.lstrip("0") or name[:1]


def require_own_id(name: str, node_id: int) -> int:
    """Return this broker's id; Refused if `name` is the id of another."""
    if not name.isascii() or not name.isdigit():
        raise invalid_request(f"A broker's id is a number, not {name!r}.")
    if strip_leading_zeros(name) != str(node_id):
        raise invalid_request(f"This is broker {node_id}: send this to broker {name}.")
    return node_id
