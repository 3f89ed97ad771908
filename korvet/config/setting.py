"""Settings: a name, a type that parses and checks text, a default and a description.

Rules
- Values are passed as text, as Kafka's tools send and show them; `parse` returns the typed value.
- An invalid value raises a `ConfigError` with one sentence: setting, allowed values, given value.
- `effect=False` marks settings accepted only because Kafka's tools send them; the docs say so.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from fractions import Fraction
from typing import Protocol

import msgspec

LONG_MAX = 2**63 - 1
INT_MAX = 2**31 - 1
INTERNAL = "Belongs to the inside of Kafka's brokers."
LONGEST_ARRAY = INT_MAX - 8
"""Longest array of the JVM, in bytes: the largest record that Kafka can hold."""

_DURATION = re.compile(
    r"([-+]?)P(?:([-+]?\d{1,9})D)?"
    r"(?:T(?=[-+\d])(?:([-+]?\d{1,9})H)?(?:([-+]?\d{1,9})M)?(?:([-+]?\d{1,9}(?:[.,]\d{0,9})?)S)?)?",
    re.IGNORECASE,
)
_AGE = re.compile(r"(\d{1,9})([smhd])")
_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
BY_DURATION = "by_duration:"
_BLOCK = re.compile(r"(-----BEGIN [A-Z0-9 ]+-----)(.*?)(-----END [A-Z0-9 ]+-----)", re.DOTALL)

Value = bool | int | float | str | tuple[str, ...]


class StartError(Exception):
    """Korvet cannot start or continue; the message says what to do."""


class ConfigError(StartError):
    """An unknown option or setting, or an invalid value."""


class Kind(IntEnum):
    """Config types, with the numbers of DescribeConfigs."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7


class Source(IntEnum):
    """Origin of a value, with the numbers of DescribeConfigs."""

    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_GROUP = 8


class Type(Protocol):
    """Parser of one kind of value; raises ValueError with the allowed values."""

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
    """An integer in a range, or -1: the codec's default level."""

    lowest: int
    highest: int
    kind: Kind = Kind.INT

    def parse(self, text: str) -> int:
        if text.strip() == "-1":
            return -1
        return Whole(self.lowest, self.highest).parse(text)


class SomeOf(msgspec.Struct, frozen=True):
    """A comma-separated list of known words; repeated words count once.

    The list may be empty only if `may_be_empty`.
    """

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


class TopicName(msgspec.Struct, frozen=True):
    """The name of a topic, reserved or not; may be empty."""

    may_be_reserved: bool = True
    kind: Kind = Kind.STRING

    def parse(self, text: str) -> str:
        if text and (text in (".", "..") or not re.fullmatch(r"[A-Za-z0-9._-]{1,249}", text)):
            raise ValueError("a topic name: letters, digits, '.', '_' and '-', at most 249")
        if text.startswith("__") and not self.may_be_reserved:
            raise ValueError("a topic name that does not begin with __, or nothing")
        return text


class Words(msgspec.Struct, frozen=True):
    """A comma-separated list of any words; may be empty."""

    longest: int = 65536
    kind: Kind = Kind.LIST

    def parse(self, text: str) -> tuple[str, ...]:
        Text(self.longest).parse(text)
        return tuple(word.strip() for word in text.split(",") if word.strip())


class Overrides(msgspec.Struct, frozen=True):
    """A comma-separated list of ADDRESS:NUMBER, or of another word in its place; may be empty."""

    of: str = "ADDRESS"
    kind: Kind = Kind.LIST

    def parse(self, text: str) -> tuple[str, ...]:
        words = Words().parse(text)
        for word in words:
            name, _, number = word.rpartition(":")
            if not name or not (number.isascii() and number.isdigit() and len(number) < 10):
                raise ValueError(f"a comma-separated list of {self.of}:NUMBER")
        return words


def long(lowest: int, highest: int = LONG_MAX) -> Whole:
    """Return the type of a 64-bit integer in that range."""
    return Whole(lowest, highest, Kind.LONG)


class OffsetReset(msgspec.Struct, frozen=True):
    """The start of a share group in a partition: one of its ends, or a duration before now."""

    kind: Kind = Kind.STRING

    def parse(self, text: str) -> str:
        if text in ("latest", "earliest") or reset_duration_ms(text) is not None:
            return text
        raise ValueError("latest, earliest or by_duration:PnDTnHnMn.nS")


def reset_duration_ms(text: str) -> int | None:
    """Return the duration of a `share.auto.offset.reset` in ms; None without a valid one."""
    match = _DURATION.fullmatch(text.removeprefix(BY_DURATION))
    if not text.startswith(BY_DURATION) or match is None or not any(match.groups()[1:]):
        return None
    sign, *parts = match.groups()
    units = (86_400_000, 3_600_000, 60_000, 1000)
    total = sum(
        Fraction((part or "0").replace(",", ".").removesuffix(".")) * unit
        for part, unit in zip(parts, units, strict=True)
    )
    total = -total if sign == "-" else total
    return int(total) if total >= 0 else None


class PemType(msgspec.Struct, frozen=True):
    """The type of a key store or trust store: PEM only."""

    kind: Kind = Kind.STRING

    def parse(self, text: str) -> str:
        if text.upper() == "PEM":
            return "PEM"
        raise ValueError(
            "PEM: convert a JKS file to PKCS12 with `keytool -importkeystore -deststoretype "
            "PKCS12`, and that with `openssl pkcs12 -in FILE -out FILE.pem -nodes`"
        )


class Pem(msgspec.Struct, frozen=True):
    """PEM blocks in lines, or in one line with spaces, as a properties file has them."""

    kind: Kind = Kind.STRING

    def parse(self, text: str) -> str:
        blocks = _BLOCK.findall(text)
        if not blocks or len(text) > 1 << 20:
            raise ValueError("PEM: text from -----BEGIN to -----END")
        if "\n" in text:
            return text
        return "".join(f"{begin}\n{_lines(body)}\n{end}\n" for begin, body, end in blocks)


def _lines(body: str) -> str:
    """Wrap base64 to the 64 characters a line that OpenSSL reads."""
    text = "".join(body.split())
    return "\n".join(text[at : at + 64] for at in range(0, len(text), 64))


class Setting(msgspec.Struct, frozen=True):
    """A named setting; `default` is text, or None for a setting that is unset by default.

    A listener may have its own value of a setting that is `per_listener`. The value of a
    `sensitive` one is shown nowhere.
    """

    name: str
    type: Type
    default: str | None
    sentence: str
    dynamic: bool = True
    effect: bool = True
    immutable: bool = False
    per_listener: bool = False
    sensitive: bool = False

    @property
    def kind(self) -> Kind:
        return self.type.kind

    @property
    def documentation(self) -> str:
        """Effect of the setting, whether it has one here, and whether it can change."""
        parts = [self.sentence]
        if not self.effect:
            parts.append("Accepted and shown; it has no effect here.")
        if self.immutable:
            parts.append("Fixed when the topic is created.")
        return " ".join(parts)

    def parse(self, text: str) -> Value:
        """Return the typed value, or raise a ConfigError with the allowed values."""
        try:
            return self.type.parse(text)
        except ValueError as error:
            shown = text if len(text) <= 60 else text[:57] + "..."
            given = "" if self.sensitive else f", not {shown!r}"
            raise ConfigError(f"{self.name} must be {error}{given}.") from None

    def shown(self, text: str) -> str:
        """Return the text as Kafka's tools show it: without repeated words."""
        return ",".join(self.type.parse(text)) if isinstance(self.type, SomeOf) else text


def in_milliseconds(name: str, text: str) -> str:
    """Return the milliseconds of an age (7d, 12h) for a config in them, any other text as it is."""
    ms = age_ms(text) if name.endswith(".ms") else None
    return text if ms is None else str(ms)


def age_ms(text: str) -> int | None:
    """Return the milliseconds of an age such as 15m, 2h, 1d; None for any other text."""
    age = _AGE.fullmatch(text)
    return int(age[1]) * _MS[age[2]] if age else None


def accept(
    name: str, type_: Type, default: str | None, sentence: str = INTERNAL, *, dynamic: bool = True
) -> Setting:
    """Return a setting without effect here: Kafka's tools send it."""
    return Setting(name, type_, default, sentence, dynamic=dynamic, effect=False)


def type_of(setting: Setting, quoted: Callable[[str], str] = str) -> str:
    """Return the type of a setting, with its range or its values."""
    kind = setting.kind.name.lower()
    match setting.type:
        case Flag():
            return "boolean"
        case OneOf(values=values):
            return "one of " + ", ".join(map(quoted, values))
        case OffsetReset():
            words = ("latest", "earliest", f"{BY_DURATION}PnDTnHnMn.nS")
            return "one of " + ", ".join(map(quoted, words))
        case SomeOf(values=values):
            return "list of " + ", ".join(map(quoted, values))
        case Whole(lowest=lowest, highest=highest) if highest >= 2**31 - 9 or highest == LONG_MAX:
            return f"{kind}, at least {lowest}"
        case Levels(lowest=lowest, highest=highest):
            return f"{kind}, {lowest} to {highest}, or -1"
        case Whole(lowest=lowest, highest=highest) | Decimal(lowest=lowest, highest=highest):
            return f"{kind}, {lowest} to {highest}"
    return kind


def table(settings: Iterable[Setting]) -> dict[str, Setting]:
    """Return the settings by name.

    Raises AssertionError for a repeated name, ConfigError for an invalid default.
    """
    found: dict[str, Setting] = {}
    for setting in settings:
        if setting.name in found:
            raise AssertionError(f"{setting.name} is defined twice")
        if setting.default is not None:
            setting.parse(setting.default)
        found[setting.name] = setting
    return found


def find_setting(settings: Mapping[str, Setting], name: str, what: str) -> Setting:
    """Return the setting of that name, or raise a ConfigError with a hint.

    The hint is the nearest name, or why Kafka's setting does not exist here.
    """
    setting = settings.get(name)
    if setting is not None:
        return setting
    from korvet.config.suggestions import hint

    raise ConfigError(f"Unknown {what} {name[:100]!r}: {hint(name, settings)}")
