"""The registry: the ids of all groups, with which a topic's deletion finds committed offsets."""

from collections.abc import Iterable

from korvet.scripts.call import Call, decode_group, encode_group
from korvet.scripts.calls.namespace import GROUP_REGISTER, GroupRegisterReply
from korvet.scripts.keys import Keys
from korvet.store.calls import AsyncCalls
from korvet.topics.table import VERSION_FIELD

SCAN_COUNT = 500
"""Fields of one step of a scan."""


class GroupRegistry:
    """The registry of one namespace."""

    def __init__(self, store: AsyncCalls, keys: Keys) -> None:
        self._store = store
        self._keys = keys

    def add(self, group_id: str, max_groups: int = 0) -> Call[GroupRegisterReply]:
        """Return the call that registers the group, unless known or above `max_groups`."""
        return self._keys.group_register(group=group_id, most=max_groups)

    async def make(self) -> None:
        """Make the registry unless there is one: `__consumer_offsets` is listed from then on."""
        keys = self._keys
        # The version is a field that is no encoded id.
        await self._store.run(Call(GROUP_REGISTER, (keys.groups(),), (VERSION_FIELD, 0)))

    async def remove(self, group_id: str) -> None:
        """Remove a deleted group, unless it was created again."""
        store, keys = self._store, self._keys
        mark = await store.command("HGET", keys.groups(), encode_group(group_id))
        if mark is None:
            return
        await store.run(keys.group_unregister(group=group_id, mark=mark))
        if await store.command("EXISTS", keys.group(group_id).group):
            await store.run(self.add(group_id))

    async def list_all(self) -> list[str]:
        """Return all group ids."""
        return _decoded(await self._store.command("HKEYS", self._keys.groups()))

    async def scan_all(self) -> list[str]:
        """Return all group ids, sorted, read as `scan_fields` does."""
        return sorted(_decoded(await scan_fields(self._store, self._keys.groups())))


async def scan_fields(store: AsyncCalls, key: str) -> set[bytes]:
    """Return the fields of a hash, read in steps that block Redis for a short time each."""
    cursor, found = b"0", set[bytes]()
    while True:
        cursor, flat = await store.command("HSCAN", key, cursor, "COUNT", SCAN_COUNT)
        found.update(flat[::2])
        if cursor == b"0":
            return found


def _decoded(fields: Iterable[bytes]) -> list[str]:
    return [decode_group(name.decode()) for name in fields if name != VERSION_FIELD.encode()]
