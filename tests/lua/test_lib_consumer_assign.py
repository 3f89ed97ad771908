"""Check lib.consumer_assign: members with different subscriptions."""

from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from korvet.groups.modern import pack
from korvet.testing.lua_sandbox import library, lua_table, within

Topics = dict[str, tuple[str, int]]
Member = dict[str, Any]

assign = library("lib.consumer_assign")[b"assign"]


def member(name: str, names: Sequence[str]) -> Member:
    return {"id": name, "names": sorted(names), "former": []}


def assigned(
    members: Sequence[Member], topics: Topics, assign: Any = assign
) -> dict[str, list[str]]:
    """Compute the members' targets, which become their former ones."""
    rows = [
        lua_table(
            {
                b"id": m["id"].encode(),
                b"instance": b"",
                b"assignor": b"",
                b"names": pack(m["names"]),
                b"regex": b"",
                b"former": lua_table([partition.encode() for partition in m["former"]]),
            }
        )
        for m in members
    ]
    by_name = {
        name.encode(): lua_table([topic_id.encode(), count])
        for name, (topic_id, count) in topics.items()
    }
    found = {b"by_name": lua_table(by_name), b"by_regex": lua_table({})}
    assign(lua_table(rows), lua_table(found))
    for m, row in zip(members, rows, strict=True):
        m["former"] = [partition.decode() for partition in row[b"target"].values()]
    return {m["id"]: m["former"] for m in members}


def expected(members: Sequence[Member], topics: Topics) -> dict[str, list[str]]:
    """Compute the targets: members keep partitions, free ones go to the lowest load."""
    members = sorted(members, key=lambda m: str(m["id"]))
    rows = sorted((topic_id, count, name) for name, (topic_id, count) in topics.items())
    readers = {topic_id: [m for m in members if name in m["names"]] for topic_id, _, name in rows}
    order = [(f"{i}:{n}", readers[i]) for i, count, _ in rows if readers[i] for n in range(count)]
    holder = {partition: m["id"] for partition, of in order for m in of if partition in m["former"]}
    load = Counter(holder.values())

    def least(of: Sequence[Member]) -> str:
        return str(min(of, key=lambda m: load[m["id"]])["id"])

    def give(partition: str, to: str) -> None:
        load[holder.get(partition, "")] -= 1
        load[to] += 1
        holder[partition] = to

    for partition, of in order:
        if partition not in holder:
            give(partition, least(of))
    for _ in range(10):
        for partition, of in order:
            if load[least(of)] + 1 < load[holder[partition]]:
                give(partition, least(of))
    return {m["id"]: [p for p, _ in order if holder[p] == m["id"]] for m in members}


@pytest.mark.parametrize("seed", range(60))
def test_free_partitions_go_to_the_members_with_the_lowest_load(seed: int) -> None:
    random = Random(seed)
    topics = {f"t{n}": (f"{random.randrange(1 << 32):08x}", random.randrange(9)) for n in range(6)}

    def newcomer(name: str) -> Member:
        return member(name, random.sample(sorted(topics), random.randrange(7)))

    members = [newcomer(f"m{n}") for n in range(random.randrange(2, 9))]
    members += [member("one", ["t0"]), member("other", ["t1"])]
    for step in range(6):
        wanted = expected(members, topics)
        assert assigned(members, topics) == wanted
        change = random.randrange(3)
        if change == 0:
            members.append(newcomer(f"n{step}"))
        elif change == 1:
            members.pop(random.randrange(len(members) - 2))
        else:
            name = random.choice(sorted(topics))
            topics[name] = (topics[name][0], topics[name][1] + 3)
        if len(members) < 3:
            members.insert(0, newcomer(f"o{step}"))


def test_a_large_group_of_different_subscriptions_does_not_block_redis() -> None:
    topics = {f"t{n}": (f"{n:08x}", 10) for n in range(100)}
    some = sorted(topics)[1:]
    members = [member(f"m{n:03}", some if n % 2 else list(topics)) for n in range(300)]
    quick = within(assign, 1_000_000)
    assert all(2 <= len(found) <= 4 for found in assigned(members, topics, quick).values())
    members.append(member("n", some))
    assert len(assigned(members, topics, quick)["n"]) >= 2
