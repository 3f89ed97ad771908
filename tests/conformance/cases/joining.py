"""JoinGroup of dynamic members."""

from typing import Any

from korvet.wire.messages.join_group import JoinGroupRequestProtocol
from tests.conformance.asking import SUBSCRIBED, Ask, case, joining
from tests.conformance.cases.membership import leaving

OTHER = SUBSCRIBED.replace(b"t", b"c")
"""Consumer metadata with another topic."""


@case("JoinGroup")
async def no_group_id(ask: Ask) -> Any:
    return await ask(joining(""))


@case("JoinGroup")
async def no_group_id_and_a_short_session(ask: Ask) -> Any:
    return await ask(joining("", session_timeout_ms=1))


@case("JoinGroup")
async def a_session_that_is_too_short(ask: Ask) -> Any:
    return await ask(joining(ask.group, session_timeout_ms=5999))


@case("JoinGroup")
async def a_session_that_is_too_long(ask: Ask) -> Any:
    return await ask(joining(ask.group, session_timeout_ms=1_800_001, member_id="stranger"))


@case("JoinGroup")
async def an_unknown_member_in_an_absent_group(ask: Ask) -> Any:
    return await ask(joining(ask.group, member_id="stranger"))


@case("JoinGroup")
async def an_unknown_member_in_a_stable_group(ask: Ask) -> Any:
    await ask.stable()
    return await ask(joining(ask.group, member_id="stranger"))


@case("JoinGroup")
async def an_unknown_member_with_another_protocol_type(ask: Ask) -> Any:
    await ask.stable()
    return await ask(joining(ask.group, member_id="stranger", protocol_type="connect"))


@case("JoinGroup")
async def an_unknown_member_in_an_empty_group(ask: Ask) -> Any:
    member = await ask.stable()
    await ask(leaving(ask.group, member.id), 1)
    return [
        await ask(joining(ask.group, member_id=member.id)),
        await ask(joining(ask.group, member_id="stranger")),
    ]


@case("JoinGroup")
async def no_protocols(ask: Ask) -> Any:
    return [
        await ask(joining(ask.group, protocols=[])),
        await ask(joining(f"{ask.group}-other", protocols=[], member_id="stranger")),
    ]


@case("JoinGroup")
async def no_protocol_type(ask: Ask) -> Any:
    return await ask(joining(ask.group, protocol_type=""))


@case("JoinGroup")
async def another_protocol_type_than_the_group(ask: Ask) -> Any:
    await ask.stable()
    return await ask(joining(ask.group, protocol_type="connect"))


@case("JoinGroup")
async def other_protocols_than_the_group(ask: Ask) -> Any:
    await ask.stable()
    others = [JoinGroupRequestProtocol(name="sticky", metadata=b"")]
    return [
        await ask(joining(ask.group, protocols=others)),
        await ask(joining(ask.group, protocols=[])),
    ]


@case("JoinGroup", since=4)
async def a_new_member_is_given_an_id(ask: Ask) -> Any:
    return await ask(joining(ask.group))


@case("JoinGroup", until=3)
async def a_new_member_joins_without_an_id(ask: Ask) -> Any:
    return await ask(joining(ask.group))


@case("JoinGroup")
async def a_member_with_other_protocols_than_its_own(ask: Ask) -> Any:
    member = await ask.stable()
    others = [JoinGroupRequestProtocol(name="sticky", metadata=b"")]
    return [
        await ask(joining(ask.group, member_id=member.id, protocol_type="connect")),
        await ask(joining(ask.group, member_id=member.id, protocols=others)),
    ]


@case("JoinGroup")
async def a_leader_joins_again(ask: Ask) -> Any:
    member = await ask.stable()
    return await ask(joining(ask.group, member_id=member.id))


@case("JoinGroup")
async def a_member_joins_again_before_it_has_synchronised(ask: Ask) -> Any:
    member = await ask.joined()
    changed = [JoinGroupRequestProtocol(name="range", metadata=OTHER)]
    return [
        await ask(joining(ask.group, member_id=member.id)),
        await ask(joining(ask.group, member_id=member.id, protocols=changed)),
    ]


@case("JoinGroup")
async def a_protocol_named_twice(ask: Ask) -> Any:
    twice = [JoinGroupRequestProtocol(name="range", metadata=data) for data in (SUBSCRIBED, OTHER)]
    member = await ask.stable()
    return await ask(joining(ask.group, member_id=member.id, protocols=twice))


@case("JoinGroup")
async def odd_group_ids(ask: Ask) -> Any:
    found = []
    for odd in ("x" * 300, "{a}:b%7B", "\x01\n\x7f", " ", "gr\u00fcn\u2603"):
        member = await ask.stable(group_id=f"{odd}{ask.group}")
        found.append(await ask(joining(member.group, member_id=member.id)))
    return found


@case("JoinGroup")
async def a_rebalance_timeout_below_nothing(ask: Ask) -> Any:
    member = await ask.stable()
    wanted = joining(ask.group, member_id=member.id, rebalance_timeout_ms=-5)
    return await ask(wanted)
