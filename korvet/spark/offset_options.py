"""Parse the options that say where a read starts and ends."""

from collections.abc import Iterator

import msgspec

from korvet.spark.errors import InvalidOption
from korvet.spark.option_text import OptionText
from korvet.spark.options import (
    BATCH_START,
    EARLIEST,
    FINGERPRINTS,
    LATEST,
    SPLITTING,
    Offsets,
    OffsetSpec,
)


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
