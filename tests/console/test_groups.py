"""Check groups in the console: members, lag, reset, and the evidence for why one is stuck."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from time import monotonic
from typing import Any

import httpx
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from korvet import Record
from korvet.scripts.keys import Keys
from korvet.store.sync_store import SyncStore
from tests.lua.streams import Group as StreamsGroup
from tests.lua.streams import Member, settle, subtopology, topology
from tests.share.members import deliver, join_share_group
from tests.support.running_console import RunningConsole, send

_names = count()


@pytest.fixture
def topic(console: RunningConsole) -> str:
    """A topic with 10 records in each of two partitions."""
    name = f"groups-{next(_names)}"
    console.log.create_topic(name, 2, {"offset.mode": "dense"})
    for number in range(2):
        rows = [Record(b"v%d" % at, key=b"k%d" % at) for at in range(10)]
        console.log.append(name, number, rows)
    return name


@contextmanager
def consumer(console: RunningConsole, group: str, *topics: str, **options: Any) -> Iterator[Any]:
    """Run a consumer that has its assignment, and does not commit automatically."""
    made = Consumer(
        {
            "bootstrap.servers": console.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **{name.replace("_", "."): value for name, value in options.items()},
        }
    )
    try:
        made.subscribe(list(topics))
        until = monotonic() + 30
        while not made.assignment():
            made.poll(0.1)
            assert monotonic() < until
        yield made
    finally:
        made.close()


def evidence(console: RunningConsole, group: str) -> dict[str, str]:
    found = console.api("/group", id=group)["evidence"]
    return {f"{row['grade']} {row['subject']}": row["sentence"] for row in found}


def test_the_list_of_groups_has_state_members_and_lag(console: RunningConsole, topic: str) -> None:
    console.log.reset("listed", topic, "earliest")
    (row,) = console.api("/groups", q="liste")["groups"]
    assert (row["state"], row["members"], row["lag"]) == ("Empty", 0, 20)
    assert (row["topics"], row["partitions"]) == ([topic], 2)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_has_its_members_assignment_and_lag(
    console: RunningConsole, topic: str, protocol: str
) -> None:
    group = f"members-{protocol}"
    with consumer(console, group, topic, group_protocol=protocol, client_id="me") as made:
        made.commit(offsets=[TopicPartition(topic, 0, 4)], asynchronous=False)
        found = console.api("/group", id=group)
        assert (found["type"], found["state"], found["lag"]) == (protocol, "Stable", 16)
        (member,) = found["members"]
        assert (member["client_id"], member["partitions"]) == ("me", 2)
        assert 0 <= found["at_ms"] - member["last_heartbeat_ms"] < 10_000
        rows = [(row["committed"], row["lag"], row["member"]) for row in found["offsets"]]
        assert rows == [(4, 6, member["id"]), (-1, 10, member["id"])]


def test_a_reset_is_shown_first_and_commits_what_was_shown(
    console: RunningConsole, browser: httpx.Client, topic: str
) -> None:
    console.log.commit("moved", {(topic, 0): 4, (topic, 1): 4})
    preview = console.api("/group/reset", id="moved", topic=topic, to="8")
    assert [(row["committed"], row["offset"], row["new_lag"]) for row in preview["rows"]] == [
        (4, 8, 2)
    ] * 2
    assert (preview["skipped"], preview["repeated"]) == (8, 0)
    assert console.api("/group/reset", id="moved", topic=topic, to="earliest")["repeated"] == 8
    assert [row.offset for row in console.log.committed("moved")] == [4, 4], "a preview only"
    page = f"/group/reset?id=moved&topic={topic}&to=8"
    fields = {"id": "moved", "topic": topic, "offsets": preview["offsets"]}
    done = send(browser, page, page, **fields)
    assert "Group moved was reset" in done.text
    assert [row.offset for row in console.log.committed("moved")] == [8, 8]


def test_a_group_with_members_is_not_reset(
    console: RunningConsole, browser: httpx.Client, topic: str
) -> None:
    with consumer(console, "busy", topic):
        page = f"/group/reset?id=busy&topic={topic}&to=latest"
        fields = {"id": "busy", "topic": topic, "offsets": "0:1,1:1"}
        refused = send(browser, page, page, **fields)
        assert refused.status_code == 400
        assert "stop them first" in refused.text


def test_a_group_is_deleted(console: RunningConsole, browser: httpx.Client, topic: str) -> None:
    console.log.reset("gone", topic, "earliest")
    page = send(browser, "/group?id=gone", "/group/delete", id="gone")
    assert "Group gone was deleted." in page.text
    missing = browser.get("/group?id=gone")
    assert missing.status_code == 404
    assert "Not Found <small>404" in missing.text and "There is no group" in missing.text


def test_a_share_group_has_its_queue_and_its_locks(
    console: RunningConsole, browser: httpx.Client, topic: str
) -> None:
    keys, info = Keys(console.namespace), console.log.topic(topic)
    with SyncStore.connect(console.server.url) as store:
        join_share_group(store, keys, "jobs", (topic, info.id), 2)
        deliver(store, keys.partition(topic, 0, info.id), 0, 2, lock_ms=600_000)
    found = console.api("/group", id="jobs")
    assert (found["type"], found["members"][0]["client_id"]) == ("share", "app")
    queue = {row["partition"]: (row["acquired"], row["lag"]) for row in found["queue"]}
    assert queue[0] == (3, 10)
    (lock,) = found["locks"]
    assert (lock["first"], lock["last"], lock["member"], lock["deliveries"]) == (0, 2, "m1", 1)
    (row,) = console.api("/groups", q="jobs")["groups"]
    assert (row["type"], row["lag"], row["topics"]) == ("share", found["lag"], [topic])
    page = browser.get("/group?id=jobs").text
    assert "Delivered records" in page and "Reset offsets" in page


# The reasons why a group is stuck.


def test_a_streams_group_has_its_tasks_and_the_topics_it_lacks(
    console: RunningConsole, browser: httpx.Client, topic: str
) -> None:
    keys = Keys(console.namespace)
    with SyncStore.connect(console.server.url) as store:
        counting = topology(subtopology("0", [topic], changelogs=["c"]))
        group = StreamsGroup(store, counting, keys=keys, **{topic: 2})
        settle([Member(group, "m1"), Member(group, "m2")], replicas=1)
        store.run(keys.group_register(group="g"))
        found = console.api("/group", id="g")
        assert (found["type"], found["state"], found["assignor"]) == ("streams", "Stable", "sticky")
        tasks = sorted((row["active"], row["standby"]) for row in found["members"])
        assert tasks == [(["0_0"], ["0_1"]), (["0_1"], ["0_0"])]
        owners = {row["partition"]: row["member"] for row in found["offsets"]}
        assert sorted(owners.values()) == ["m1", "m2"]
        listed = {row["group"]: row["type"] for row in console.api("/groups", q="g")["groups"]}
        assert listed["g"] == "streams"
        assert "Standby tasks" in browser.get("/group?id=g").text
        group.size(topic, None)
        group.beat("m1", group.epoch("m1"))
    assert "are missing" in evidence(console, "g")["bad topology"]


def test_a_group_without_members_is_named(console: RunningConsole, topic: str) -> None:
    console.log.reset("alone", topic, "earliest")
    assert "bad members" in evidence(console, "alone")


def test_a_group_that_read_everything_is_not_stuck(console: RunningConsole, topic: str) -> None:
    with consumer(console, "done", topic) as made:
        ends = [TopicPartition(topic, number, 10) for number in range(2)]
        made.commit(offsets=ends, asynchronous=False)
        assert list(evidence(console, "done")) == ["ok lag"]


def test_an_old_commit_names_the_next_record(console: RunningConsole, topic: str) -> None:
    with consumer(console, "poison", topic) as made:
        for number, offset in ((0, 7), (1, 10)):
            made.commit(offsets=[TopicPartition(topic, number, offset)], asynchronous=False)
        assert list(evidence(console, "poison")) == ["ok progress"]
        key = f"{console.namespace}:group:poison:offsets"
        with console.server.client() as client:
            field = f"{console.namespace}:{topic}:0"
            parts = client.hget(key, field).split(b" ")
            parts[2] = b"%d" % (int(parts[2]) - 120_000)
            client.hset(key, field, b" ".join(parts))
        sentence = evidence(console, "poison")["bad no progress"]
    assert f"{topic}-0: 3 records wait, and the last commit was 2.0 min ago" in sentence
    assert "The next record is at offset 7 (key k7, 2 B)" in sentence


def test_an_open_transaction_is_named(console: RunningConsole, topic: str) -> None:
    producer = Producer({"bootstrap.servers": console.bootstrap, "transactional.id": "t"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=1)
    producer.flush(30)
    console.log.commit("waiting", {(topic, 0): 10, (topic, 1): 10})
    sentence = evidence(console, "waiting")["bad open transaction"]
    assert f"{topic}-1: an open transaction of producer" in sentence and "offset 10" in sentence
    row = console.api(f"/topics/{topic}")["partitions"][1]
    assert (row["open_transactions"], row["last_stable"], row["latest"]) == (1, 10, 11)
    (open_producer,) = console.api(f"/topics/{topic}/producers")["producers"]
    assert open_producer["open_since_offset"] == 10
    producer.abort_transaction(30)
    assert "bad open transaction" not in evidence(console, "waiting")


def test_a_late_heartbeat_is_named(console: RunningConsole, topic: str) -> None:
    with consumer(console, "late", topic, session_timeout_ms=45_000):
        (member,) = console.api("/group", id="late")["members"]
        key = f"{{{console.namespace}:group:late:offsets}}:deadlines"
        with console.server.client() as client:
            client.zincrby(key, -30_000, member["id"])
        sentence = evidence(console, "late")["bad heartbeat"]
    assert member["id"] in sentence and "sent its last heartbeat " in sentence


def test_a_topic_that_does_not_exist_is_named(console: RunningConsole, topic: str) -> None:
    with consumer(console, "lost", topic, "no-such-topic", group_protocol="consumer"):
        assert "no-such-topic" in evidence(console, "lost")["bad topic"]


def test_deleted_records_are_named(console: RunningConsole, topic: str) -> None:
    console.log.reset("behind", topic, "earliest")
    console.log.delete_records(topic, 0, before=5)
    assert (
        f"{topic}-0: the committed offset 0 is below"
        in (evidence(console, "behind")["note deleted records"])
    )


def test_a_partition_that_no_member_has_is_named(console: RunningConsole, topic: str) -> None:
    with consumer(console, "partly", "orders"):
        with console.server.client() as client:
            client.hset(
                f"{console.namespace}:group:partly:offsets", f"{console.namespace}:{topic}:1", "3"
            )
        assert f"{topic}-1" in evidence(console, "partly")["bad assignment"]


def test_a_hot_key_is_named(console: RunningConsole, topic: str) -> None:
    console.log.append(topic, 1, [Record(b"x", key=b"hot") for _ in range(300)])
    console.log.reset("skewed", topic, "earliest")
    sentence = evidence(console, "skewed")["note hot partition"]
    assert f"{topic}-1 has 96% of the topic's lag." in sentence
    assert "Key hot has 200 of its newest 200 records" in sentence
