"""Texts of options by name in any letter case, parsed as one of the types that options have."""

import re
from collections.abc import Mapping

from korvet.spark.errors import InvalidOption

_DURATION = re.compile(r"(\d+)\s*(ms|s|m|min|h|d)?", re.IGNORECASE)
_MILLISECONDS = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_SIZE = re.compile(r"(\d+)\s*([kmg]?)i?b?", re.IGNORECASE)
_UNITS = {"": 0, "k": 10, "m": 20, "g": 30}


class OptionText:
    """The given options. Each method raises InvalidOption for a text that it does not accept."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._values = {name.lower(): value for name, value in options.items()}

    def __len__(self) -> int:
        return len(self._values)

    def text(self, name: str) -> str | None:
        return self._values.get(name.lower())

    def filled(self, name: str) -> str | None:
        """Return the text of an option; raise InvalidOption if it is set but empty."""
        value = self.text(name)
        if value is not None and not value.strip():
            raise InvalidOption(name, "is set but empty.")
        return value

    def refuse(self, name: str, reason: str) -> None:
        if self.text(name) is not None:
            raise InvalidOption(name, reason)

    def one_of(self, name: str, choices: tuple[str, ...], default: str) -> str:
        value = self.text(name)
        if value is None:
            return default
        word = value.strip().lower()
        if word not in choices:
            raise InvalidOption(name, f"must be one of {', '.join(choices)}, not {value!r}.")
        return word

    def flag(self, name: str, default: bool) -> bool:
        return self.one_of(name, ("true", "false"), str(default).lower()) == "true"

    def number(self, name: str) -> int | None:
        value = self.text(name)
        if value is None:
            return None
        if not (value.isascii() and value.isdigit() and 0 < int(value) < 2**63):
            raise InvalidOption(name, f"must be a whole number above 0, not {value!r}.")
        return int(value)

    def size(self, name: str, default: int) -> int:
        value = self.text(name)
        if value is None:
            return default
        found = parse_size(value)
        if not found:
            raise InvalidOption(name, f"must be a size such as 64m, not {value!r}.")
        return found

    def duration(self, name: str, default: int) -> int:
        """Return a duration in ms; a number without a unit is in ms."""
        value = self.text(name)
        if value is None:
            return default
        found = parse_duration(value)
        if found is None:
            raise InvalidOption(name, f"must be a duration such as 15m, not {value!r}.")
        return found


def parse_size(text: str) -> int | None:
    """Return a size such as 64m in bytes; None for any other text."""
    found = _SIZE.fullmatch(text.strip())
    return int(found[1]) << _UNITS[found[2].lower()] if found else None


def parse_duration(text: str) -> int | None:
    """Return a duration such as 15m, or a number of ms, in ms; None for any other text."""
    found = _DURATION.fullmatch(text.strip())
    return int(found[1]) * _MILLISECONDS[(found[2] or "ms").lower()] if found else None
