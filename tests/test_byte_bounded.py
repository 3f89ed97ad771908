"""Flood every cache of the process with long names, and find collections that none has reviewed."""

import ast
import re
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import korvet
from korvet.base.bounded import ROW_BYTES, ByteBounded, size_of
from korvet.base.name_pattern import compile_pattern
from korvet.groups.stream_reads import GroupMembers
from korvet.produce.unknown_producers import UnknownProducers
from korvet.scripts.keys import Keys
from korvet.security.acl import ResourceType
from korvet.security.attempts import Attempts
from korvet.security.session import Principal, Session
from korvet.store.slots import slot_of_key
from korvet.transactions.add_partitions import EnlistedPartitions
from korvet.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tests.support.connected_broker import Broker, broker
from tests.support.syntax_nodes import nodes

__all__ = ["broker"]

PACKAGE = Path(korvet.__file__).parent
LONG = "ü" * 8000
"""A name of 16 KB, which Kafka's protocol takes for groups, clients and transactional ids."""


def opening(name: str) -> FetchRequest:
    """Return a request that opens a fetch session."""
    row = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)
    topics = [FetchTopic(topic=name, partitions=[row])]
    return FetchRequest(max_wait_ms=0, min_bytes=0, session_epoch=0, topics=topics)


def floods(broker: Broker) -> dict[str, Callable[[str], object]]:
    """Return what adds a row of a client's name to each cache."""
    services = broker.services
    keys, unknown, members = Keys(), UnknownProducers(), GroupMembers()
    enlisted = EnlistedPartitions(services.transactions, lambda: 0)
    authorizer = services.authorizer
    authorizer.enabled = True
    services.quotas._values = {'quota:{"client-id":null}': {"producer_byte_rate": 1.0}}
    acquirer, attempts = services.share.acquirer, Attempts()
    topic: Any = type("Topic", (), {"id": "i", "name": "t"})
    claimant: Any = type("Member", (), {"group": "", "client_id": "c", "generation": 1})

    def claim(name: str) -> None:
        claimant.group = name
        members.set_claim(topic, 0, claimant, b"1-0")

    return {
        "partition keys": lambda name: keys.partition(name, 0),
        "group keys": keys.group,
        "cluster slots": slot_of_key,
        "name patterns": lambda name: compile_pattern(name[:300]),
        "group ticks": lambda name: services.groups._tick_at.put(name, 1.0),
        "unknown producers": lambda name: unknown.expect_retry((name, 0, 1, 1), 5),
        "enlisted partitions": lambda name: enlisted.remember((name, 1, 1), 1, {"t:0"}),
        "quota limits": lambda name: services.quotas.limits(Session("h"), name),
        "authorizer decisions": lambda name: authorizer.operations(
            Session("h", Principal("User", "u")), ResourceType.GROUP, name
        ),
        "stream group members": lambda name: members.note(name, "g", "m", 1),
        "claims of stream groups": claim,
        "failed authentications": lambda name: attempts._failures.put((name, ""), (1, 0.0)),
        "share positions": lambda name: acquirer._position(name, topic, 0),
        "fetch sessions": lambda name: services.fetch_sessions.begin(opening(name), 12, "user"),
    }


def declared() -> Iterator[str]:
    """Yield the name of each cache in the source."""
    for path in PACKAGE.rglob("*.py"):
        text = path.read_text()
        yield from re.findall(r'(?:ByteBounded\[.*\]|Decisions)\(\s*"([^"]+)"', text)


async def test_no_cache_grows_beyond_its_bytes(broker: Broker) -> None:
    table = floods(broker)
    assert set(table) == set(declared())
    for name, add in table.items():
        # Those of other tests in this process stay as they are.
        before = {cache: (len(cache), cache.bytes) for cache in list(ByteBounded.instances)}
        for number in range(20):
            add(f"{number:06}{LONG}")
        caches = [
            each for each, (rows, _) in before.items() if each.name == name and len(each) > rows
        ]
        assert caches, name
        for cache in caches:
            rows, size = before[cache]
            cache.limit = 10 * (cache.bytes - size) // (len(cache) - rows)
            for number in range(20, 60):
                add(f"{number:06}{LONG}")
            assert 0 < cache.bytes <= cache.limit, name
            assert len(cache) <= 10, name


def test_the_oldest_rows_leave_and_sizes_are_those_of_all_parts() -> None:
    cache = ByteBounded[str, tuple[str, ...]]("test", 10 * (ROW_BYTES + 500))
    for number in range(30):
        assert cache.put(f"{number:03}", ("x" * 200,)) == ("x" * 200,)
    assert cache.get("029") is not None and cache.get("000") is None
    assert cache.bytes == len(cache) * (ROW_BYTES + size_of("000") + size_of(("x" * 200,)))
    cache.put("029", ("y",))
    cache.pop("028")
    cache.pop("missing")
    assert cache.put("huge", ("z" * 10_000,)) == ("z" * 10_000,)
    assert cache.get("huge") is None and cache.get("029") == ("y",)
    assert isinstance(cache._sizes, OrderedDict), "a dict looks for its oldest row among many gone"
    cache.clear()
    assert (len(cache), cache.bytes) == (0, 0)


REVIEWED = {
    "it has what Redis has: topics, partitions, groups or members that exist": """
        base/metrics/families.py:_rows broker/background/compaction.py:_without_copies
        broker/background/scheduled_delivery.py:_called
        broker/background/scheduled_delivery.py:_due broker/background/tasks.py:_unfinished
        config/dynamic.py:_parsed config/dynamic.py:_rows fetch/sessions.py:_logged
        fetch/sessions.py:_channels
        groups/lag_survey.py:_counted groups/lag_survey.py:_counted_before
        log/leader_epochs.py:_accepting log/leader_epochs.py:_lost log/leader_epochs.py:_seen
        log/read_cache.py:_maps log/read_cache.py:_natural log/read_cache.py:_skip_logged
        log/recent_states.py:_states log/recent_states.py:_used log/size_estimates.py:_by_offset
        log/size_estimates.py:_by_partition log/size_estimates.py:_copied
        log/size_estimates.py:_densities log/size_estimates.py:_local_starts
        log/unchanged.py:_seen log/unchanged.py:_settled store/redis_py.py:_channels
        remote_log/copy_demand.py:_demands remote_log/manager.py:_copied
        remote_log/manager.py:_lags remote_log/manager.py:_logged_at
        remote_log/reader.py:_next_chunks remote_log/reader.py:_prepares_at
        security/quotas.py:_values security/rule_index.py:_exact security/rule_index.py:_literal
        security/rule_index.py:_prefixed share/dead_letters.py:_not_before topics/table.py:_rows
        topics/table.py:_views transactions/hanging.py:next_checks
    """,
    "it lives as long as a request, a connection or a task": """
        broker/background/gauges.py:_rows broker/interceptors.py:_paused
        broker/interceptors.py:_quiet
        console/visit.py:form fetch/delayed_operation.py:_by_channel
        handlers/describe_configs.py:_known log/append_batcher.py:_waiting
        log/cleaner.py:_newest broker/network/open_connections.py:_hosts
        broker/network/open_connections.py:_users remote_log/chunk_cache.py:_pending
        remote_log/reader.py:_loading security/attempts.py:_locks share/dead_letters.py:_tasks
        store/notifications.py:_asked store/notifications.py:_changed
        store/notifications.py:_confirmed store/notifications.py:_idle
        store/notifications.py:_missed store/notifications.py:_news
        store/notifications.py:_subscriptions wire/codegen.py:_known wire/codegen.py:names
    """,
    "its rows are counted, and each has few bytes": """
        broker/repeated_request.py:_templates console/consumers.py:instances
        console/sessions.py:_ended
        groups/share_group.py:_config log/read_cache.py:_batches log/range_reads.py:_ranges
        log/read_cache.py:_read base/logfmt.py:_written base/metrics/families.py:values
        remote_log/chunk_cache.py:_blocks remote_log/chunk_cache.py:_readers
        remote_log/known_segments.py:_footers remote_log/known_segments.py:_known
        remote_log/local_files.py:_ahead remote_log/chunk_cache.py:_asked
        remote_log/sync_reader.py:_footers security/audit.py:_events security/plain.py:_verified
        share/sessions.py:_sessions
    """,
    "its rows are the operator's: settings, nodes, scripts, listeners": """
        broker/background/gauges.py:_max_memory broker/background/gauges.py:_used
        broker/background/runner.py:_succeeded cluster/coordinators.py:_checks
        config/values.py:_values console/avro.py:_files legacy/zookeeper.py:_listed
        base/metrics/families.py:series remote_log/memory.py:_levels scripts/bundle.py:_code
        scripts/bundle.py:_constants scripts/bundle.py:_load_shipped
        scripts/bundle.py:_functions_of scripts/bundle.py:_words_in
        scripts/bundle.py:blank_comments scripts/generate.py:_replies
        scripts/inlined.py:raising scripts/inlined.py:step_name
        security/mechanisms.py:_policies security/mechanisms.py:_validators
        store/cluster_router.py:_nodes store/connection.py:_broken store/connection.py:_loaded
        store/notifications.py:_watchers store/replica_wait.py:_idle store/replica_wait.py:_known
        store/replica_wait.py:_queues store/replica_wait.py:_files store/replica_wait.py:_counting
        base/synced_files.py:_open
        store/redis_clients.py:_clients store/predecessors.py:_known
        store/handshake.py:kill_refused wire/primitives.py:packers wire/primitives.py:unpackers
    """,
}
"""Why a collection needs no bound in bytes."""
NOT_SERVED = {"spark", "pipeline", "cli", "recovery", "testing", "bench", "avro", "library"}
EMPTY = re.compile(r"\{\}|(OrderedDict|set|deque|defaultdict|Counter|dict)(\[|\()")
NAMED = re.compile(
    r"\b(str|bytes|tuple|Labels|LogOffset|TopicPartition|Node|K|ReadKey|Destination)\b"
)


def collections() -> Iterator[str]:
    """Yield attributes that begin empty and may hold names, and cached functions of arguments."""
    for path in PACKAGE.rglob("*.py"):
        place = path.relative_to(PACKAGE)
        if not NOT_SERVED.isdisjoint(place.parts) or place.name == "bounded.py":
            continue
        for node in nodes(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and node.args.args:
                words = " ".join(map(ast.unparse, node.decorator_list))
                kinds = (ast.unparse(arg.annotation) for arg in node.args.args if arg.annotation)
                if "cache" in words and "cached_" not in words and "str" in " ".join(kinds):
                    yield f"{place}:{node.name}"
            elif isinstance(node, ast.AnnAssign) and node.value is not None:
                target = ast.unparse(node.target)
                if not target.startswith("self.") or not EMPTY.match(ast.unparse(node.value)):
                    continue
                kind = ast.unparse(node.annotation)
                if NAMED.search(kind) and "Future" not in kind[:14]:
                    yield f"{place}:{target.removeprefix('self.')}"


def test_every_collection_that_may_hold_names_is_reviewed() -> None:
    known = {name for names in REVIEWED.values() for name in names.split()}
    found = set(collections())
    assert found - known == set(), "use ByteBounded, or say why not in REVIEWED"
    assert known - found == set()


@pytest.mark.parametrize("client", ["c" * 30_000, "ü" * 10_000])
def test_an_event_of_the_audit_keeps_no_names(client: str) -> None:
    from korvet import apis
    from korvet.config.broker_config import load
    from korvet.security.audit import Audit

    settings = load({"redis": "redis://x", "node-id": "1"}, environ={}).settings
    audit = Audit(settings, {row.key: row.name for row in apis.TABLE})
    assert audit._repeats(Session("h"), client) == 0
    assert audit._repeats(Session("h"), client) is None
    assert size_of(audit._known) < 1000
