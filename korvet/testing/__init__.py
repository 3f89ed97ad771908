"""Test tools: a Kafka broker in the test process, scripts under Lua, a fake Redis.

Install `korvet[testing]` for them. The pytest fixture is in `korvet.testing.fixtures`.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from korvet.testing.broker import Broker
    from korvet.testing.fake import fake_async_redis, fake_redis
    from korvet.testing.lua_runner import ContractViolation, LuaRunner, ScriptError

__all__ = [
    "Broker",
    "ContractViolation",
    "LuaRunner",
    "ScriptError",
    "fake_async_redis",
    "fake_redis",
]
_MODULES = {"Broker": "broker", "fake_async_redis": "fake", "fake_redis": "fake"}


def __getattr__(name: str) -> object:
    # `Broker` needs no Lua, `LuaRunner` no server: each is imported when it is used.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = _MODULES.get(name, "lua_runner")
    return getattr(import_module(f"{__name__}.{module}"), name)
