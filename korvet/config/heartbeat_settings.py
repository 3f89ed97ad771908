"""The settings that groups with server-side assignment have in common, by the type of the group."""

from korvet.config.setting import Setting, Whole


def heartbeat_rows(type_: str, groups: str) -> tuple[Setting, ...]:
    """Return the settings of the members' sessions and heartbeats."""
    return (
        *_bounded(
            type_, "session.timeout.ms", "session timeout",
            ("45000", "45000", "60000"), f"Session timeout of the members of {groups}.", lowest=1,
        ),
        *_bounded(
            type_, "heartbeat.interval.ms", "heartbeat interval",
            ("5000", "5000", "15000"), f"Heartbeat interval given to the members of {groups}.",
            lowest=1,
        ),
    )  # fmt: skip


def assignment_rows(type_: str, group: str) -> tuple[Setting, ...]:
    """Return the settings of the interval of target assignments."""
    return _bounded(
        type_, "assignment.interval.ms", "assignment interval", ("1000", "0", "15000"),
        f"The shortest time between two target assignments of a {group}.", lowest=0,
    )  # fmt: skip


def _bounded(
    type_: str, name: str, what: str, defaults: tuple[str, str, str], sentence: str, *, lowest: int
) -> tuple[Setting, ...]:
    """Return a setting, and the bounds of a group's own config of it."""
    default, least, most = defaults
    may_set = f"{what} that a group's own config may set."
    return (
        Setting(f"group.{type_}.{name}", Whole(lowest), default, sentence),
        Setting(f"group.{type_}.min.{name}", Whole(lowest), least, f"The shortest {may_set}"),
        Setting(f"group.{type_}.max.{name}", Whole(lowest), most, f"The longest {may_set}"),
    )
