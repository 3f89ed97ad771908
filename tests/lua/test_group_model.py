"""Check that classic groups respond and are stored as in a model of Kafka's coordinator."""

from random import Random
from typing import Any

import pytest

from korvet.base.errors import ErrorCode as E
from korvet.scripts.calls.group import JoinReply
from korvet.testing import LuaRunner
from tests.lua.classic_group_model import COMPLETING, Classic, Join, Joined
from tests.lua.groups import KEYS, Group

STEPS = 120
BOTH = (("range", b"a"), ("round", b"b"))
LIKES = [(("range", b"a"),), BOTH, BOTH[::-1]]


class Both:
    """The scripts and the model, with the same requests."""

    def __init__(self, lua: LuaRunner, random: Random) -> None:
        self.lua, self.random = lua, random
        self.group = Group(lua, delay_ms=random.choice([0, 0, 3000]))
        self.model = Classic(lua.now_ms, self.group.delay_ms)
        self.model.chosen = self._chosen
        self.max_size = random.choice([1000, 3])
        self.likes = LIKES[:1] if random.random() < 0.2 else LIKES

    def _chosen(self) -> tuple[str, str]:
        row: Any = self.lua.command("HMGET", KEYS.group("readers").group, "leader", "protocol")
        return row[0].decode(), row[1].decode()

    def step(self, number: int) -> None:
        """Take one random step: mostly a valid request of a member."""
        random, model = self.random, self.model
        id, instance = random.choice(["", "m1", "ghost"]), random.choice(["", "", "i0", "i1"])
        if model.members and random.random() < 0.7:
            someone = random.choice(list(model.members.values()))
            if model.state == COMPLETING and random.random() < 0.5:
                someone = model.members.get(model.leader, someone)
            id, instance = someone.id, random.choice([someone.instance] * 9 + [instance])
        generation = model.generation + random.choice([0] * 8 + [-1, 1])
        kind = random.random()
        if kind < 0.35:
            self._join(random.choice([id, id, "", *sorted(model.pending)]), instance)
        elif kind < 0.55:
            some = list(model.members)[: random.choice([9, 9, 1])]
            parts = {each: b"for " + each.encode() for each in some}
            reply = self.group.sync(id, generation, tuple(parts.items()), instance=instance)
            got = (E(reply.error), reply.waiting, reply.assignment)
            assert got == model.sync(id, instance, generation, parts)
        elif kind < 0.67:
            got_error = self.group.heartbeat(id, generation, instance)
            assert got_error == model.heartbeat(id, instance, generation)
        elif kind < 0.74:
            left = self.group.leave((id, instance))
            assert E(left.error or left.results[0]) == model.leave(id, instance)
        elif kind < 0.84:
            if random.random() < 0.2:
                id, instance, generation = "", "", -1
            who = {"member": id, "instance": instance, "generation": generation}
            error = self.group.commit(number, **who)  # type: ignore[arg-type]
            assert error == model.commit(id, instance, generation, number)
        else:
            # Shorter than the absence of brokers that scripts assume after 5 s.
            self.lua.advance(random.choice([1, 300, 1000, 2500, 4000]))
            if model.is_due():
                self.group.tick()
            model.tick()

    def _join(self, id: str, instance: str) -> None:
        random, model = self.random, self.model
        words: dict[str, Any] = {
            "session_ms": random.choice([6000, 10_000]),
            "rebalance_ms": random.choice([5000, 20_000]),
            "protocol_type": random.choice(["consumer"] * 19 + ["connect"]),
            "require_member_id": random.randrange(2),
            "skip": random.randrange(2),
            "max_size": self.max_size,
            "max_bytes": 10**6,
        }
        likes = random.choice(self.likes)
        reply = self.group.join(id, likes, instance=instance, **words)
        # If two protocols have equal votes, Kafka may choose either.
        stays = not reply.waiting and reply.generation == model.generation
        model.prefers = lambda names: model.protocol if stays else "another"
        session, rebalance, kind, require_member_id, skip, max_size, _ = words.values()
        fresh = f"m{self.group.next_id}"
        wanted = model.join(
            Join(
                id,
                fresh,
                instance,
                session,
                rebalance,
                kind,
                likes,
                require_member_id,
                skip,
                max_size,
            )
        )
        self._compare(reply, wanted)

    def _compare(self, reply: JoinReply, wanted: Joined) -> None:
        error = E(reply.error)
        if error not in (E.NONE, E.MEMBER_ID_REQUIRED):
            assert Joined(error) == wanted
            return
        words = reply.member.decode(), reply.leader.decode()
        assert Joined(error, reply.waiting, reply.skip, *words) == wanted
        if not error and not reply.waiting:
            model = self.model
            assert (reply.generation, reply.protocol.decode()) == (model.generation, model.protocol)
            leads = wanted.leader == wanted.member
            listed = [each.decode() for each in reply.members[::3]]
            assert listed == (sorted(model.members) if leads else [])

    def check(self) -> None:
        """Check that the stored state equals the model's, to the millisecond."""
        model, k = self.model, KEYS.group("readers")
        assert self.group.committed() == model.committed
        if not model.exists:
            return
        row: Any = self.lua.command("HMGET", k.group, "state", "generation")
        assert (row[0].decode(), int(row[1])) == (model.state, model.generation)
        names: Any = self.lua.command("HKEYS", k.members)
        assert {each.decode() for each in names} == set(model.members) | model.pending
        flat: Any = self.lua.command("ZRANGE", k.deadlines, 0, -1, "WITHSCORES")
        pairs = (
            flat if flat and isinstance(flat[0], list) else zip(flat[::2], flat[1::2], strict=True)
        )
        stored = {name.decode(): int(float(moment)) for name, moment in pairs}
        for no_member in (":offsets", ":clock"):
            stored.pop(no_member, None)
        assert stored == {n: at for n, at in model.deadlines.items() if n != ":offsets"}


@pytest.mark.parametrize("seed", range(6))
def test_a_group_answers_and_is_stored_as_kafka_specifies(lua: LuaRunner, seed: int) -> None:
    both = Both(lua, Random(seed))
    for number in range(STEPS):
        both.step(number)
        both.check()
    assert both.model.generation > 1
