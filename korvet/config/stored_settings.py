"""Settings that brokers store in Redis, for programs that read the log without a broker."""

from collections.abc import Mapping, Sequence

from korvet.config.values import Settings

URL = "remote_storage_url"
FIELDS: Mapping[str, str] = {
    URL: "remote.storage.url",
    "remote_storage_topics": "log.remote.storage.enable",
    "local_memory_bytes": "local.memory.bytes",
}
"""Field of the cluster hash -> setting; `lua/broker/set_storage.lua` writes them."""


def with_stored(settings: Settings, values: Sequence[bytes | None]) -> Settings:
    """Return the settings with the stored ones that they do not give themselves.

    `values` are those of FIELDS, in its order. A remote store that brokers had is one to read from,
    whether or not they still copy to it.
    """
    found = {
        setting: value.decode()
        for setting, value in zip(FIELDS.values(), values, strict=True)
        if value is not None
    }
    if "remote.storage.url" in found:
        found["remote.log.storage.system.enable"] = "true"
    missing = {name: text for name, text in found.items() if settings.describe(name).is_default}
    return settings.with_start(missing)
