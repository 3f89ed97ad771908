"""The state of a log, as one read of a partition knows it."""

from korvet.base.errors import ErrorCode
from korvet.log.entries_query import EntriesQuery
from korvet.log.read_cache import ReadCache
from korvet.log.read_request import ReadRequest
from korvet.log.read_result import ReadResult
from korvet.log.recent_states import Fields, RecentState, RecentStates, parse_state
from korvet.store.calls import ReadCalls


class PartitionState:
    """The state that a read has seen last, and the result that begins with it."""

    def __init__(
        self,
        request: ReadRequest,
        store: ReadCalls,
        cache: ReadCache,
        max_entries: int,
        states: RecentStates | None,
    ) -> None:
        self._request = request
        self._store = store
        self._cache = cache
        self._query = EntriesQuery(request, store, cache, max_entries)
        self._states = states
        self._topic = request.topic
        self._partition = request.partition
        self._key = self._query.key
        self._result = ReadResult(ErrorCode.NONE)
        self._local_start = 0
        """The offset from which on Redis has the records; those below are in segments."""
        self._is_fresh = False
        """Whether the local start was read after the entries."""
        self._copied = 0
        """The offset up to which segments have the records."""
        self._known_end = -1
        """The end in the log's state: the entries that are read later may go further."""
        self._cleaned: bytes | None = None

    async def _read_state(self) -> None:
        self._use_state(await self._store.submit_command(*self._query.state()))

    async def _read_recent_state(self) -> None:
        """Use a state of the last milliseconds: records in segments hardly change."""
        states, where = self._states, (self._topic, self._partition)
        if states is None:
            await self._read_state()
            return
        recent = states.fresh(*where)
        self._use_state(await states.read(*where) if recent is None else recent.fields)

    def _use_state(self, fields: Fields) -> RecentState | None:
        """Begin the result with the log's state, and learn its sizes; None for an error."""
        state = parse_state(self._topic, fields, 0.0)
        if state is None:
            error = (
                ErrorCode.UNKNOWN_TOPIC_ID if fields[0] else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            )
            self._result = ReadResult(error)
            return None
        self._cache.learn_state(self._topic, self._partition, state)
        self._known_end, self._cleaned = state.end, fields[8]
        self._local_start, self._copied = state.local_start, state.copied
        self._result = ReadResult(
            ErrorCode.NONE,
            state.start,
            state.end,
            state.epoch,
            stable=state.stable,
            appended=state.appended,
        )
        return state

    async def _read_local_start(self) -> None:
        found = await self._store.submit_command(*self._query.local_start())
        self._local_start = int(found or 0)
