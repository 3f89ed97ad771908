"""Check lib.share_assign: Kafka's assignor `simple`."""

from collections import Counter
from itertools import pairwise
from random import Random

import pytest

from korvet.testing.lua_sandbox import library
from tests.lua.test_lib_consumer_assign import Topics, assigned, member

assign = library("lib.share_assign")[b"assign"]
T, U = "a" * 32, "b" * 32


def test_one_member_gets_all_partitions() -> None:
    found = assigned([member("m", ["t"])], {"t": (T, 3), "u": (U, 2)}, assign)
    assert found == {"m": [f"{T}:0", f"{T}:1", f"{T}:2"]}


def test_more_members_than_partitions_share_them() -> None:
    members = [member(f"m{i}", ["t"]) for i in range(5)]
    found = assigned(members, {"t": (T, 2)}, assign)
    held = Counter(partition for mine in found.values() for partition in mine)
    assert held == {f"{T}:0": 3, f"{T}:1": 3}
    assert Counter(len(mine) for mine in found.values()) == {1: 4, 2: 1}


@pytest.mark.parametrize(("partitions", "leaves"), [(8, 0), (4, 3)])
def test_members_keep_what_they_have_when_one_leaves(partitions: int, leaves: int) -> None:
    members = [member(f"m{i}", ["t"]) for i in range(4)]
    before = dict(assigned(members, {"t": (T, partitions)}, assign))
    del members[leaves]
    after = assigned(members, {"t": (T, partitions)}, assign)
    for name, mine in after.items():
        assert set(before[name]) <= set(mine)


def test_nothing_is_assigned_without_topics() -> None:
    assert assigned([member("m", ["t"])], {}, assign) == {"m": []}


def kafkas_counts(members: int, partitions: int) -> list[int]:
    """Return the number of partitions that KIP-932 gives each member."""
    total = -(-members // partitions) * partitions
    upto = [-(-total * i // members) for i in range(members + 1)]
    return sorted(b - a for a, b in pairwise(upto))


@pytest.mark.parametrize("seed", range(40))
def test_every_partition_has_as_many_members_as_others_and_none_is_idle(seed: int) -> None:
    random = Random(seed)
    names = ["t"] if seed % 2 else ["t", "u", "v"]
    sizes: dict[str, int] = {name: random.randrange(1, 9) for name in names}
    members = [member(f"m{i:02}", names) for i in range(random.randrange(1, 9))]
    for step in range(12):
        topics: Topics = {name: (f"{i}" * 32, sizes[name]) for i, name in enumerate(names)}
        found = assigned(members, topics, assign)
        partitions = {f"{id}:{n}" for id, count in topics.values() for n in range(count)}
        held = Counter(partition for mine in found.values() for partition in mine)
        assert set(held) == partitions
        sharing = -(-len(members) // len(partitions))
        assert max(held.values()) <= sharing
        assert all(len(set(mine)) == len(mine) > 0 for mine in found.values())
        most = kafkas_counts(len(members), len(partitions))[-1]
        assert max(map(len, found.values())) <= most
        # The members change, and the topics grow.
        kind = random.random()
        if kind < 0.4 and len(members) < 12:
            members.append(member(f"n{step:02}", names))
        elif kind < 0.8 and len(members) > 1:
            members.pop(random.randrange(len(members)))
        else:
            sizes[random.choice(names)] += random.randrange(3)


@pytest.mark.parametrize("seed", range(20))
def test_each_topic_is_balanced_among_its_own_subscribers(seed: int) -> None:
    random = Random(seed)
    topics: Topics = {name: (name * 32, random.randrange(1, 6)) for name in "abc"}
    members = [member(f"m{i}", random.sample("abc", random.randrange(1, 4))) for i in range(6)]
    for _ in range(3):
        found = assigned(members, topics, assign)
        for name, (topic_id, count) in topics.items():
            mine = [m for m in members if name in m["names"]]
            held = Counter(p for each in found.values() for p in each if p.startswith(topic_id))
            assert sum(held.values()) <= -(-len(mine) // count) * count
            assert not mine or set(held) == {f"{topic_id}:{n}" for n in range(count)}
        for m in members:
            assert {p[0] for p in found[m["id"]]} <= set(m["names"])
        members[random.randrange(6)]["names"] = sorted(random.sample("abc", 2))
