"""Check lib.streams_assign: assignments as members, processes and topics change."""

from collections import Counter
from random import Random
from typing import Any

import pytest

from korvet.testing.lua_sandbox import library, lua_table

assign = library("lib.streams_assign")[b"assign"]
Subtopologies = list[tuple[str, int, bool]]


class Member:
    """A member with its former tasks."""

    def __init__(self, id: str, process: str) -> None:
        self.id, self.process = id, process
        self.tasks: list[str] = []


def assigned(members: list[Member], subs: Subtopologies, replicas: int) -> None:
    """Compute the members' targets, which become their former ones."""
    rows = [
        lua_table(
            {
                b"id": m.id.encode(),
                b"process": m.process.encode(),
                b"former": lua_table([task.encode() for task in m.tasks]),
            }
        )
        for m in members
    ]
    listed = [
        lua_table({b"id": id.encode(), b"count": count, b"is_stateful": stateful})
        for id, count, stateful in subs
    ]
    assign(lua_table(rows), lua_table(listed), replicas)
    for m, row in zip(members, rows, strict=True):
        m.tasks = [task.decode() for task in row[b"target"].values()]


def check(members: list[Member], subs: Subtopologies, replicas: int) -> None:
    """Check that each task is active once, balanced, with standby tasks in other processes."""
    active = Counter(task[1:] for m in members for task in m.tasks if task[0] == "a")
    every = {f"{id}:{n}" for id, count, _ in subs for n in range(count)}
    assert active == Counter(every)
    counts = [sum(task[0] == "a" for task in m.tasks) for m in members]
    assert max(counts) - min(counts) <= 1
    processes: dict[str, list[str]] = {}
    for m in members:
        processes.setdefault(m.process, []).extend(task[1:] for task in m.tasks)
    assert all(len(set(tasks)) == len(tasks) for tasks in processes.values())
    standby = Counter(task[1:] for m in members for task in m.tasks if task[0] == "b")
    stateful = {f"{id}:{n}" for id, count, is_stateful in subs if is_stateful for n in range(count)}
    wanted = min(replicas, len(processes) - 1)
    assert standby == Counter({task: wanted for task in stateful if wanted})


@pytest.mark.parametrize("seed", range(40))
def test_every_assignment_is_complete_balanced_and_sticky(seed: int) -> None:
    random = Random(seed)
    subs: Subtopologies = [
        (f"3{n}", random.randrange(1, 9), random.random() < 0.6)
        for n in range(random.randrange(1, 5))
    ]
    replicas = random.randrange(3)
    members = [Member(f"m{n}", f"p{random.randrange(4)}") for n in range(random.randrange(1, 8))]
    for step in range(12):
        before = {m.id: list(m.tasks) for m in members}
        assigned(members, subs, replicas)
        check(members, subs, replicas)
        settled = {m.id: list(m.tasks) for m in members}
        random.shuffle(members)
        assigned(members, subs, replicas)
        assert {m.id: m.tasks for m in members} == settled, "no task moves without a change"
        if step and len(before) < len(members):
            _check_moves(before, members)
        if random.random() < 0.5 and len(members) > 1:
            members.remove(random.choice(members))
        else:
            members.append(Member(f"n{step}", f"p{random.randrange(4)}"))


def _check_moves(before: dict[str, list[str]], members: list[Member]) -> None:
    """Check that members that stay lose no more active tasks than the balance requires."""
    after = {m.id: m.tasks for m in members}
    total = sum(task[0] == "a" for tasks in after.values() for task in tasks)
    most = -(-total // len(members))
    for id, tasks in before.items():
        had = {task for task in tasks if task[0] == "a"}
        lost = had - set(after[id])
        assert len(lost) <= max(0, len(had) - total // len(members)), (id, most)


def test_a_lost_members_tasks_go_to_its_standby_tasks() -> None:
    members = [Member(f"m{n}", f"p{n}") for n in range(4)]
    subs: Subtopologies = [("30", 12, True)]
    assigned(members, subs, 1)
    lost = members.pop(0)
    had = {task[1:] for task in lost.tasks if task[0] == "a"}
    standby = {m.id: {task[1:] for task in m.tasks if task[0] == "b"} for m in members}
    assigned(members, subs, 1)
    taken = {m.id: {task[1:] for task in m.tasks if task[0] == "a"} & had for m in members}
    warm = sum(len(taken[m.id] & standby[m.id]) for m in members)
    assert warm >= len(had) - 1


def test_subtopologies_are_spread_over_members_and_processes() -> None:
    members = [Member(f"m{n}", f"p{n % 2}") for n in range(4)]
    assigned(members, [("30", 4, False), ("31", 4, True)], 0)
    for m in members:
        assert sorted(task[1:3] for task in m.tasks) == ["30", "31"]


def test_no_member_and_no_task_are_no_error() -> None:
    assigned([], [("30", 4, True)], 1)
    alone: list[Any] = [Member("m", "p")]
    assigned(alone, [], 1)
    assert alone[0].tasks == []
