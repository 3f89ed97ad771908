"""The names that topics may have."""

import string

MAX_NAME = 249
KAFKAS_INTERNAL = frozenset({"__consumer_offsets", "__share_group_state", "__transaction_state"})
"""Names that tools look for in any cluster: their absence is no mistake of an application."""
_LEGAL = frozenset(string.ascii_letters + string.digits + "._-")


def check_topic_name(name: str, *, reserved: bool = False) -> str | None:
    """Return why a topic cannot have this name, or None if it can.

    `reserved`: the name may begin with `__`.
    """
    if not name:
        return "A topic name cannot be empty."
    if name in (".", ".."):
        return f"A topic cannot be called {name!r}."
    if len(name) > MAX_NAME:
        return f"A topic name has at most {MAX_NAME} characters, not {len(name)}."
    if not _LEGAL.issuperset(name):
        return f"A topic name holds letters, digits, '.', '_' and '-' only, not {name!r}."
    if name.startswith("__") and not reserved:
        return (
            "Names that begin with '__' are reserved for internal topics unless the broker setting "
            "reserved.topic.names.enable is true."
        )
    return None


def collide(one: str, other: str) -> bool:
    """Return whether two names differ, but only in dots and underscores.

    Kafka's metric names do not distinguish the two characters, so Kafka never has both topics.
    """
    return (
        len(one) == len(other) and one != other and one.replace(".", "_") == other.replace(".", "_")
    )
