"""Texts of options by name in any letter case, parsed as one of the types that options have.

Two groups of options say where a read starts and ends.
"""

import re
from collections.abc import Iterator, Mapping

import msgspec

from korvet.spark.errors import InvalidOption
from korvet.spark.options import (
    BATCH_START,
    EARLIEST,
    FINGERPRINTS,
    LATEST,
    SPLITTING,
    Offsets,
    OffsetSpec,
)

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


def parse_start(given: OptionText, streaming: bool) -> OffsetSpec:
    """Return where a read starts, or raise InvalidOption."""
    strategy = given.one_of("startingOffsetsByTimestampStrategy", ("error", "latest"), "error")
    start = _spec(given, "starting", LATEST if streaming else EARLIEST, strategy == "latest")
    if streaming:
        return start
    if start.every_partition == LATEST:
        raise InvalidOption(start.option, "a batch read cannot start at 'latest'.")
    _refuse_mark(start, LATEST, "a batch read of {} cannot start at -1.")
    return start


def parse_end(given: OptionText) -> OffsetSpec:
    """Return where a read ends, or raise InvalidOption."""
    end = _spec(given, "ending", LATEST, True)
    if end.every_partition == EARLIEST:
        raise InvalidOption(end.option, "a read cannot end at 'earliest'.")
    _refuse_mark(end, EARLIEST, "a read of {} cannot end at -2.")
    return end


def _refuse_mark(spec: OffsetSpec, mark: int, sentence: str) -> None:
    for topic, number, at in _each_offset(spec.offsets):
        if at == mark:
            raise InvalidOption(spec.option, sentence.format(f"{topic}-{number}"))


def _each_offset(offsets: Offsets | None) -> Iterator[tuple[str, int, int]]:
    for topic, places in (offsets or {}).items():
        for number, at in places.items():
            yield topic, number, at


def _spec(given: OptionText, side: str, default: int, latest_if_missing: bool) -> OffsetSpec:
    """Return start or end. Like Kafka's source: timestamp, then timestamps, then offsets."""
    moment, moments = f"{side}Timestamp", f"{side}OffsetsByTimestamp"
    option = f"{side}Offsets"
    if (value := given.text(moment)) is not None:
        if not (value.isascii() and value.isdigit()):
            raise InvalidOption(moment, f"must be milliseconds since 1970, not {value!r}.")
        return OffsetSpec(moment, timestamp=int(value), latest_if_missing=latest_if_missing)
    if (value := given.text(moments)) is not None:
        asked = _parse_partition_map(moments, value, "time")
        return OffsetSpec(moments, timestamps=asked, latest_if_missing=latest_if_missing)
    value = given.text(option)
    if value is None:
        return OffsetSpec(option, every_partition=default)
    named = {"earliest": EARLIEST, "latest": LATEST}.get(value.strip().lower())
    if named is not None:
        return OffsetSpec(option, every_partition=named)
    return OffsetSpec(option, offsets=_parse_partition_map(option, value, "offset"))


def _parse_partition_map(option: str, text: str, what: str) -> Offsets:
    """Parse JSON of topic, partition and value: a `what`, or -1 or -2."""
    try:
        found = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
        # Also accept a stream offset of a checkpoint, with its topic ids and other keys.
        topics = {
            name: msgspec.json.decode(raw, type=dict[str, int | str])
            for name, raw in found.items()
            if name not in (SPLITTING, BATCH_START, FINGERPRINTS)
        }
        parsed = {
            topic: {
                _parse_integer(number): _parse_integer(at)
                for number, at in places.items()
                if number != "id"
            }
            for topic, places in topics.items()
        }
    except (msgspec.DecodeError, ValueError) as error:
        raise InvalidOption(
            option,
            f'expects JSON such as {{"orders": {{"0": 23, "1": -2}}}}, not {text!r}: {error}.',
        ) from None
    for topic, number, at in _each_offset(parsed):
        if at < EARLIEST:
            raise InvalidOption(option, f"{at} of {topic}-{number} is not a valid {what}.")
    return parsed


def _parse_integer(text: int | str) -> int:
    """Parse digits only: int() would accept "1_0" as 10."""
    if isinstance(text, str) and not (text.isascii() and text.isdigit()):
        raise ValueError(f"{text!r} is not a whole number")
    return int(text)
