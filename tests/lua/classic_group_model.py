"""A model of Kafka's coordinator of a classic group, which the scripts have to equal.

Kafka leaves two choices open: the next leader when the leader has left, and the protocol if two
have equal votes. `chosen` gives the scripts' choice. A pending member id holds a rebalance for one
second only (docs/concepts/groups.md).
"""

from collections.abc import Callable
from dataclasses import dataclass

from korvet.base.errors import ErrorCode as E

EMPTY, PREPARING = "Empty", "PreparingRebalance"
COMPLETING, STABLE = "CompletingRebalance", "Stable"
NEW_MEMBER_MS, HOLD_MS, LOOK_MS = 300_000, 1000, 60_000

Protocols = tuple[tuple[str, bytes], ...]


@dataclass
class Member:
    """A member of the group."""

    id: str
    instance: str
    session: int
    rebalance: int
    protocols: Protocols
    awaiting: bool = True
    new: bool = True
    synced: bool = False
    assignment: bytes = b""


@dataclass(frozen=True)
class Join:
    """A JoinGroup, with the id that a new member gets."""

    member: str
    fresh: str
    instance: str
    session: int
    rebalance: int
    type: str
    protocols: Protocols
    require_member_id: int
    skip: int
    max_size: int


@dataclass(frozen=True)
class Joined:
    """The response to JoinGroup; `leader` is empty while the member waits."""

    error: E
    waiting: int = 0
    skip: int = 0
    member: str = ""
    leader: str = ""


class Classic:
    """The group; every request first processes expired deadlines."""

    def __init__(self, now: Callable[[], int], delay: int) -> None:
        self.now, self.delay = now, delay
        self.exists, self.state, self.generation = False, EMPTY, 0
        self.type = self.protocol = self.leader = ""
        self.members: dict[str, Member] = {}
        self.pending: set[str] = set()
        self.instances: dict[str, str] = {}
        self.deadlines: dict[str, int] = {}
        self.initial = self.fresh = False
        self.left = 0
        self.committed: int | None = None
        self.chosen: Callable[[], tuple[str, str]] = lambda: ("", "")
        self.prefers: Callable[[set[str]], str] = lambda names: min(names)

    def is_due(self) -> bool:
        """Return whether a deadline has passed."""
        return any(moment <= self.now() for moment in self.deadlines.values())

    def tick(self) -> None:
        """Process expired deadlines."""
        while self.is_due():
            moment, _, name = min((at, id.encode(), id) for id, at in self.deadlines.items())
            del self.deadlines[name]
            self._expire(name, moment)

    def _expire(self, name: str, moment: int) -> None:
        if name == ":join":
            if self.initial and self.fresh and self.left > 0:
                step = min(self.delay, self.left)
                self.fresh, self.left = False, self.left - step
                self.deadlines[":join"] = moment + step
            else:
                self._complete()
        elif name == ":sync":
            for member in [each for each in self.members.values() if not each.synced]:
                self._remove(member.id)
            self._without()
        elif name == ":hold":
            self._try_complete()
        elif name in self.pending:
            self._forget(name)
            self._try_complete()
        elif name != ":offsets":
            self._remove(name)
            self._without()

    def _forget(self, id: str) -> None:
        self.pending.discard(id)
        self.deadlines.pop(id, None)
        if not self.pending:
            self.deadlines.pop(":hold", None)

    def _remove(self, id: str) -> None:
        member = self.members.pop(id)
        self.deadlines.pop(id, None)
        self.instances.pop(member.instance, None)
        if self.leader == id:
            self.leader = ""

    def _longest(self) -> int:
        return max((each.rebalance for each in self.members.values()), default=0)

    def _all_joined(self) -> bool:
        return all(each.awaiting for each in self.members.values()) and not (
            self.pending and ":hold" in self.deadlines
        )

    def _without(self) -> None:
        if self.state == PREPARING:
            self._try_complete()
        elif self.state != EMPTY:
            self._prepare(0)

    def _begin(self, delay: int = 0) -> None:
        if self.state == PREPARING:
            self._try_complete()
        else:
            self._prepare(delay)

    def _try_complete(self) -> None:
        if self.state == PREPARING and not self.initial and self._all_joined():
            self._complete()

    def _prepare(self, delay: int) -> None:
        first = self.state == EMPTY
        for each in self.members.values() if self.state == COMPLETING else ():
            if each.synced and not each.awaiting:
                self.deadlines[each.id] = self.now() + each.session
            each.synced = False
        self.deadlines.pop(":sync", None)
        self.state, self.initial = PREPARING, first
        if first and delay:
            self.fresh, self.left = False, max(self._longest() - delay, 0)
            self.deadlines[":join"] = self.now() + delay
        elif first or self._all_joined():
            self._complete()
        else:
            self.deadlines[":join"] = self.now() + self._longest()

    def _common(self) -> set[str]:
        names = [{name for name, _ in each.protocols} for each in self.members.values()]
        return set.intersection(*names) if names else set()

    def _best(self) -> set[str]:
        common, votes = self._common(), dict.fromkeys(self._common(), 0)
        for each in self.members.values():
            votes[next(name for name, _ in each.protocols if name in common)] += 1
        return {name for name, count in votes.items() if count == max(votes.values())}

    def _complete(self) -> None:
        self.deadlines.pop(":join", None)
        for each in [m for m in self.members.values() if not (m.awaiting or m.instance)]:
            self._remove(each.id)
        joined = {each.id for each in self.members.values() if each.awaiting}
        if self.members and not joined:
            self.deadlines[":join"] = self.now() + self._longest()
            return
        self.generation, self.initial = self.generation + 1, False
        if not self.members:
            self.state, self.protocol, self.leader = EMPTY, "", ""
            self.deadlines[":offsets"] = self.now() + LOOK_MS
            return
        leader, self.protocol = self.chosen()
        assert self.protocol in self._best()
        assert leader in joined and (leader == self.leader or self.leader not in joined)
        self.leader, self.state = leader, COMPLETING
        for each in self.members.values():
            each.awaiting = each.new = each.synced = False
            each.assignment = b""
            self.deadlines[each.id] = self.now() + each.session
        self.deadlines.pop(":offsets", None)
        self.deadlines[":sync"] = self.now() + self._longest()

    def _validate(self, id: str, instance: str, generation: int | None = None) -> E:
        if instance and self.instances.get(instance, id) != id:
            return E.FENCED_INSTANCE_ID
        if (instance and instance not in self.instances) or id not in self.members:
            return E.UNKNOWN_MEMBER_ID
        stale = generation is not None and generation != self.generation
        return E.ILLEGAL_GENERATION if stale else E.NONE

    def _refusal(self, join: Join) -> E:
        if join.member and not self.exists:
            return E.UNKNOWN_MEMBER_ID
        known = self.members.get(join.member)
        awaiting = sum(each.awaiting for each in self.members.values())
        if self.state == PREPARING:
            full = not (known and known.awaiting) and awaiting >= join.max_size
        else:
            full = self.state != EMPTY and not known and len(self.members) >= join.max_size
        if full:
            return E.GROUP_MAX_SIZE_REACHED
        names = {name for name, _ in join.protocols}
        fits = bool(names & self._common()) or not self.members
        if self.state != EMPTY and (join.type != self.type or not fits):
            return E.INCONSISTENT_GROUP_PROTOCOL
        if not join.member or (join.member in self.pending and not join.instance):
            return E.NONE
        return self._validate(join.member, join.instance)

    def join(self, join: Join) -> Joined:
        """Process a JoinGroup."""
        self.tick()
        error = self._refusal(join)
        if error:
            return Joined(error)
        self.exists = True
        if not join.member and join.instance in self.instances:
            return self._come_back(join)
        if not join.member and join.require_member_id and not join.instance:
            self.pending.add(join.fresh)
            self.deadlines[join.fresh] = self.now() + join.session
            self.deadlines[":hold"] = self.now() + HOLD_MS
            return Joined(E.MEMBER_ID_REQUIRED, member=join.fresh)
        member = self.members.get(join.member)
        if not member:
            id = join.member or join.fresh
            self._add(id, join)
            return self._placed(id)
        same = member.protocols == join.protocols
        if same and (
            self.state == COMPLETING or (self.state == STABLE and self.leader != member.id)
        ):
            return Joined(E.NONE, 0, 0, member.id, self.leader)
        member.protocols, member.awaiting = join.protocols, True
        member.session, member.rebalance = join.session, join.rebalance
        if not member.new:
            self.deadlines.pop(member.id, None)
        self._begin()
        return self._placed(member.id)

    def _come_back(self, join: Join) -> Joined:
        old, leader = self.instances[join.instance], self.leader
        member = self.members.pop(old)
        self.deadlines.pop(old, None)
        member.id, member.new, member.protocols = join.fresh, False, join.protocols
        member.session, member.rebalance = join.session, join.rebalance
        self.members[join.fresh], self.instances[join.instance] = member, join.fresh
        if leader == old:
            self.leader = join.fresh
        if self.state == STABLE and self.prefers(self._best()) == self.protocol:
            member.awaiting = False
            self.deadlines[join.fresh] = self.now() + join.session
            skip = int(join.skip and leader == old)
            return Joined(E.NONE, 0, skip, join.fresh, self.leader if join.skip else leader)
        member.awaiting = True
        self._begin()
        return self._placed(join.fresh)

    def _add(self, id: str, join: Join) -> None:
        if not self.members:
            self.type, self.leader = join.type, id
        if id in self.pending:
            self._forget(id)
        if self.state == PREPARING and self.generation == 0:
            self.fresh = True
        self.members[id] = Member(id, join.instance, join.session, join.rebalance, join.protocols)
        if join.instance:
            self.instances[join.instance] = id
        self.deadlines[id] = self.now() + NEW_MEMBER_MS
        self._begin(self.delay)

    def _placed(self, id: str) -> Joined:
        waiting = self.state == PREPARING
        return Joined(E.NONE, int(waiting), 0, id, "" if waiting else self.leader)

    def sync(
        self, id: str, instance: str, generation: int, parts: dict[str, bytes]
    ) -> tuple[E, int, bytes]:
        """Process a SyncGroup; return error, whether the member waits, and assignment."""
        self.tick()
        error = self._validate(id, instance, generation)
        if error or self.state == PREPARING:
            return error or E.REBALANCE_IN_PROGRESS, 0, b""
        member = self.members[id]
        member.synced = True
        if all(each.synced for each in self.members.values()):
            self.deadlines.pop(":sync", None)
        if self.state == COMPLETING and self.leader != id:
            self.deadlines.pop(id, None)
            return E.NONE, 1, b""
        for each in self.members.values() if self.state == COMPLETING else (member,):
            if self.state == COMPLETING:
                each.assignment = parts.get(each.id, b"")
            if each.synced:
                self.deadlines[each.id] = self.now() + each.session
        self.state = STABLE
        return E.NONE, 0, member.assignment

    def heartbeat(self, id: str, instance: str, generation: int) -> E:
        """Process a Heartbeat; the deadline is up to a tenth of the session later."""
        self.tick()
        error = self._validate(id, instance, generation)
        if error:
            return error
        member = self.members[id]
        if not member.awaiting:
            step = member.session // 10
            self.deadlines[id] = -(-(self.now() + member.session) // step) * step
        return E.REBALANCE_IN_PROGRESS if self.state == PREPARING else E.NONE

    def leave(self, id: str, instance: str) -> E:
        """Process a LeaveGroup of one member, named by its id or its instance."""
        self.tick()
        if not id and instance:
            id = self.instances.get(instance, "")
        if id in self.pending:
            self._forget(id)
            self._try_complete()
            return E.NONE
        error = self._validate(id, instance)
        if not error:
            self._remove(id)
            self._without()
        return error

    def commit(self, id: str, instance: str, generation: int, offset: int) -> E:
        """Process an OffsetCommit."""
        self.tick()
        if not self.exists and generation >= 0:
            return E.GROUP_ID_NOT_FOUND
        simple = generation < 0 and self.state == EMPTY
        error = E.NONE if simple else self._validate(id, instance, generation)
        if error or self.state == COMPLETING:
            return error or E.REBALANCE_IN_PROGRESS
        self.exists, self.committed = True, offset
        if not simple and not self.members[id].awaiting:
            self.deadlines[id] = self.now() + self.members[id].session
        return E.NONE
