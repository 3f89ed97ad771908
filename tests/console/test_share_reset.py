"""Check a reset of a share group in the console, with a share consumer before and after."""

from collections.abc import Iterator
from itertools import count
from time import monotonic

import httpx
import pytest
from confluent_kafka import ShareConsumer

from korvet import Record
from tests.support.running_console import RunningConsole, send

_names = count()
PATIENCE_S = 30


@pytest.fixture
def queue(console: RunningConsole, browser: httpx.Client) -> Iterator[tuple[str, str]]:
    """A topic with 10 records in each of two partitions, and the group that has accepted them."""
    number = next(_names)
    topic, group = f"queue-{number}", f"workers-{number}"
    console.log.create_topic(topic, 2, {"offset.mode": "dense"})
    for partition in range(2):
        console.log.append(topic, partition, [Record(b"%d" % at) for at in range(10)])
    page = f"/group/reset?id={group}&topic={topic}&to=earliest"
    # The group exists once its configs or offsets do: a member creates it, and reads from the end.
    assert deliver(console, group, topic, 0) == 0
    assert send(browser, page, page, id=group, topic=topic, offsets="0:0,1:0").status_code == 200
    assert deliver(console, group, topic, 20) == 20
    yield topic, group


def deliver(console: RunningConsole, group: str, topic: str, most: int) -> int:
    """Let a member join, accept records until there are `most`, and leave; return their number."""
    config = {"bootstrap.servers": console.bootstrap, "group.id": group, "log_level": "0"}
    end, found = monotonic() + PATIENCE_S, 0
    with ShareConsumer(config) as consumer:
        consumer.subscribe([topic])
        joined = False
        while found < most or not joined:
            assert monotonic() < end, f"{found} of {most} records"
            found += len([each for each in consumer.poll(0.2) if not each.error()])
            members = console.api("/group", id=group)["members"] if not joined else [1]
            joined = any(each == 1 or each["partitions"] for each in members)
        consumer.commit_sync(PATIENCE_S)
    return found


def test_a_preview_counts_and_a_reset_delivers_again(
    console: RunningConsole, browser: httpx.Client, queue: tuple[str, str]
) -> None:
    topic, group = queue
    found = console.api("/group", id=group)
    assert (found["type"], found["state"], found["lag"]) == ("share", "Empty", 0)
    preview = console.api("/group/reset", id=group, topic=topic, to="6")
    assert (preview["type"], preview["skipped"], preview["repeated"]) == ("share", 0, 8)
    assert [(row["offset"], row["lag"], row["new_lag"]) for row in preview["rows"]] == [
        (6, 0, 4)
    ] * 2
    assert console.api("/group", id=group)["lag"] == 0, "a preview only"
    page = f"/group/reset?id={group}&topic={topic}&to=6"
    assert "delivers all records from its start offset on again" in browser.get(page).text
    done = send(browser, page, page, id=group, topic=topic, offsets=preview["offsets"])
    assert f"Group {group} was reset in {topic}." in done.text
    assert console.api("/group", id=group)["lag"] == 8
    (row,) = console.api(f"/topics/{topic}")["consumers"]
    assert (row["group"], row["lag"], row["partitions"]) == (group, 8, 2)
    skipped = console.api("/group/reset", id=group, topic=topic, to="latest")
    assert (skipped["skipped"], skipped["repeated"]) == (8, 0)
    assert deliver(console, group, topic, 8) == 8


def test_a_share_group_with_members_is_not_reset(
    console: RunningConsole, browser: httpx.Client, queue: tuple[str, str]
) -> None:
    topic, group = queue
    config = {"bootstrap.servers": console.bootstrap, "group.id": group, "log_level": "0"}
    page = f"/group/reset?id={group}&topic={topic}&to=earliest"
    with ShareConsumer(config) as consumer:
        consumer.subscribe([topic])
        end = monotonic() + PATIENCE_S
        while not console.api("/group", id=group)["members"]:
            assert monotonic() < end
            consumer.poll(0.2)
        refused = send(browser, page, page, id=group, topic=topic, offsets="0:0,1:0")
    assert refused.status_code == 400 and "stop them first" in refused.text


def test_a_share_group_is_deleted_with_its_state(
    console: RunningConsole, browser: httpx.Client, queue: tuple[str, str]
) -> None:
    _, group = queue
    done = send(browser, f"/group?id={group}", "/group/delete", id=group)
    assert f"Group {group} was deleted." in done.text
    assert browser.get("/group", params={"id": group}).status_code == 404
