"""Check lib.clock: Redis's time in milliseconds."""

from korvet.testing.lua_sandbox import library, lua_table


def test_the_time_is_redis_time_in_milliseconds() -> None:
    asked: list[bytes] = []

    def call(*words: bytes) -> object:
        asked.extend(words)
        return lua_table([b"1750000000", b"123999"])

    assert library("lib.clock", {"call": call})[b"now_ms"]() == 1_750_000_000_123
    assert asked == [b"TIME"]
