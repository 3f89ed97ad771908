"""What a setting is: a name, a type that reads and refuses text, a default and a sentence.

Rules
- Values travel as text, the way Kafka's tools send and show them; `parse` gives the typed value.
- A refusal is a `ConfigError` with one whole sentence: the setting, what it may be, what it was.
- `effect=False` marks what is accepted only because Kafka's tools send it; the docs say so.
"""

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Protocol

import msgspec

LONG_MAX = 2**63 - 1
INT_MAX = 2**31 - 1
LONGEST_ARRAY = INT_MAX - 8
"""What Java can make, and so the largest record that Kafka can hold."""

Value = bool | int | float | str | tuple[str, ...]


class StartError(Exception):
    """Korvet cannot start or go on: one sentence that says what to do about it."""


class ConfigError(StartError):
    """An option or a setting has an unknown name or a value it cannot have."""


class Kind(IntEnum):
    """The type numbers of DescribeConfigs."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7


class Source(IntEnum):
    """Where a value comes from, with the numbers of DescribeConfigs."""

    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_GROUP = 8


class Type(Protocol):
    """Reads the text of one kind of value, or says with ValueError what it must be."""

    @property
    def kind(self) -> Kind: ...

    def parse(self, text: str) -> Value: ...


class Flag(msgspec.Struct, frozen=True):
    kind: Kind = Kind.BOOLEAN

    def parse(self, text: str) -> bool:
        word = text.strip().lower()
        if word not in ("true", "false"):
            raise ValueError("true or false")
        return word == "true"


class Whole(msgspec.Struct, frozen=True):
    lowest: int
    highest: int = INT_MAX
    kind: Kind = Kind.INT

    def parse(self, text: str) -> int:
        sentence = f"a whole number from {self.lowest} to {self.highest}"
        if len(text) > 40 or "_" in text or not text.isascii():
            raise ValueError(sentence)
        try:
            number = int(text)
        except ValueError:
            raise ValueError(sentence) from None
        if not self.lowest <= number <= self.highest:
            raise ValueError(sentence)
        return number


class Decimal(msgspec.Struct, frozen=True):
    lowest: float
    highest: float
    kind: Kind = Kind.DOUBLE

    def parse(self, text: str) -> float:
        sentence = f"a number from {self.lowest:g} to {self.highest:g}"
        try:
            number = float(text)
        except ValueError:
            raise ValueError(sentence) from None
        if not self.lowest <= number <= self.highest:
            raise ValueError(sentence)
        return number


class OneOf(msgspec.Struct, frozen=True):
    values: tuple[str, ...]
    kind: Kind = Kind.STRING

    def parse(self, text: str) -> str:
        if text not in self.values:
            raise ValueError("one of " + ", ".join(self.values))
        return text


class Levels(msgspec.Struct, frozen=True):
    """A whole number in a range, or the codec's own choice, -1."""

    lowest: int
    highest: int
    kind: Kind = Kind.INT

    def parse(self, text: str) -> int:
        if text.strip() == "-1":
            return -1
        return Whole(self.lowest, self.highest).parse(text)


class SomeOf(msgspec.Struct, frozen=True):
    """A comma-separated list out of known words, each counted once however often it stands there;
    an empty list only where that is said."""

    values: tuple[str, ...]
    may_be_empty: bool = False
    kind: Kind = Kind.LIST

    def parse(self, text: str) -> tuple[str, ...]:
        if self.may_be_empty and not text.strip():
            return ()
        words = tuple(word.strip() for word in text.split(","))
        if not set(words) <= set(self.values):
            raise ValueError("a comma-separated list of " + ", ".join(self.values))
        return tuple(dict.fromkeys(words))


class Text(msgspec.Struct, frozen=True):
    longest: int = 1024
    kind: Kind = Kind.STRING

    def parse(self, text: str) -> str:
        if len(text) > self.longest or not text.isprintable():
            raise ValueError(f"printable text of at most {self.longest} characters")
        return text


class Words(msgspec.Struct, frozen=True):
    """A comma-separated list of any words; may be empty."""

    longest: int = 65536
    kind: Kind = Kind.LIST

    def parse(self, text: str) -> tuple[str, ...]:
        Text(self.longest).parse(text)
        return tuple(word.strip() for word in text.split(",") if word.strip())


def long(lowest: int, highest: int = LONG_MAX) -> Whole:
    """A 64-bit number."""
    return Whole(lowest, highest, Kind.LONG)


class Setting(msgspec.Struct, frozen=True):
    """One named setting; `default` is text, or None for a setting that is unset by default."""

    name: str
    type: Type
    default: str | None
    sentence: str
    dynamic: bool = True
    effect: bool = True
    immutable: bool = False

    @property
    def kind(self) -> Kind:
        return self.type.kind

    @property
    def documentation(self) -> str:
        """What it does, whether it does anything here, and whether it can change."""
        parts = [self.sentence]
        if not self.effect:
            parts.append("Accepted and shown; it has no effect here.")
        if self.immutable:
            parts.append("Fixed when the topic is created.")
        return " ".join(parts)

    def parse(self, text: str) -> Value:
        """The typed value, or a ConfigError that says what it must be."""
        try:
            return self.type.parse(text)
        except ValueError as error:
            shown = text if len(text) <= 60 else text[:57] + "..."
            raise ConfigError(f"{self.name} must be {error}, not {shown!r}.") from None

    def shown(self, text: str) -> str:
        """The text as Kafka's tools show it: in a list of known words each stands once."""
        return ",".join(self.type.parse(text)) if isinstance(self.type, SomeOf) else text


def table(settings: Iterable[Setting]) -> dict[str, Setting]:
    """Settings by name; a name that stands twice or a default its own type refuses is a bug."""
    found: dict[str, Setting] = {}
    for setting in settings:
        if setting.name in found:
            raise AssertionError(f"{setting.name} is defined twice")
        if setting.default is not None:
            setting.parse(setting.default)
        found[setting.name] = setting
    return found


def find_setting(settings: Mapping[str, Setting], name: str, what: str) -> Setting:
    """The setting of that name, or a ConfigError that names one near it or says whose it is."""
    setting = settings.get(name)
    if setting is not None:
        return setting
    from korvet.config.suggestions import hint

    raise ConfigError(f"Unknown {what} {name[:100]!r}: {hint(name, settings)}")
