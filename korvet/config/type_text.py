"""The type of a setting in words, for the command line and the reference pages."""

from collections.abc import Callable

from korvet.config.setting import LONG_MAX, Decimal, Flag, Levels, OneOf, Setting, SomeOf, Whole
from korvet.config.share_settings import BY_DURATION, OffsetReset


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
