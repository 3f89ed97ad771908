"""Log lines: one event, one line, as key=value text or as JSON, on stderr.

log = logfmt.get("broker.connection")
log.warning("unknown api version", api="Produce", version=99, client="10.0.0.7:5101")

A value from outside can neither break the line nor exceed its length limit.
"""

import logging
import sys
from datetime import UTC, datetime
from time import monotonic

import msgspec

_ROOT = "korvet"
_LONGEST = 500
REPEAT_INTERVAL_S = 30.0
MAX_REPEATED_LINES = 1000
"""Max distinct lines whose last time is kept."""
_ENCODER = msgspec.json.Encoder()
_LEVEL_NAMES = {logging.WARNING: "warning", logging.CRITICAL: "error"}


class Log:
    """Writes events with fields under one name."""

    __slots__ = ("_logger", "_written")

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._written: dict[int, tuple[float, int]] = {}

    def debug(self, event: str, **fields: object) -> None:
        self._write(logging.DEBUG, event, fields)

    def info(self, event: str, **fields: object) -> None:
        self._write(logging.INFO, event, fields)

    def warning(self, event: str, **fields: object) -> None:
        self._write(logging.WARNING, event, fields)

    def error(self, event: str, **fields: object) -> None:
        self._write(logging.ERROR, event, fields)

    def error_again(self, event: str, **fields: object) -> None:
        """Log an error that retrying clients may cause hundreds of times a second.

        The same line is written once in REPEAT_INTERVAL_S, with the number of lines left out.
        """
        self._write_again(logging.ERROR, event, fields)

    def warning_again(self, event: str, **fields: object) -> None:
        """Log a warning of an action that is retried. Repeated lines are limited as above."""
        self._write_again(logging.WARNING, event, fields)

    def _write_again(self, level: int, event: str, fields: dict[str, object]) -> None:
        line = hash((event, *map(str, fields.values())))  # a line may be long
        now = monotonic()
        written_at, left_out = self._written.get(line, (-REPEAT_INTERVAL_S, 0))
        if now - written_at < REPEAT_INTERVAL_S:
            self._written[line] = written_at, left_out + 1
            return
        if len(self._written) >= MAX_REPEATED_LINES:
            self._written.clear()
        self._written[line] = now, 0
        self._write(level, event, fields | ({"left_out": left_out} if left_out else {}))

    def exception(self, event: str, error: BaseException, **fields: object) -> None:
        """Log an unexpected error with its traceback, the only event of more than one line.

        As JSON, `trace` holds it on the one line.
        """
        if self._logger.isEnabledFor(logging.ERROR):
            self._logger.error(
                event,
                exc_info=error,
                extra={"fields": {**fields, "error": f"{type(error).__name__}: {error}"}},
            )

    def _write(self, level: int, event: str, fields: dict[str, object]) -> None:
        if self._logger.isEnabledFor(level):
            self._logger.log(level, event, extra={"fields": fields})


def get(name: str) -> Log:
    """Return the log of that name, such as `broker.connection`."""
    return Log(logging.getLogger(f"{_ROOT}.{name}"))


def setup(level: str = "info", style: str = "text") -> None:
    """Write events of that level and above to stderr in that style from now on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if style == "json" else TextLines())
    root = logging.getLogger(_ROOT)
    root.handlers = [handler]
    root.setLevel(level.upper())
    root.propagate = False


class TextLines(logging.Formatter):
    """`time=... level=... log=... event="..." key=value ...`"""

    def format(self, record: logging.LogRecord) -> str:
        line = " ".join(f"{key}={_word(value)}" for key, value in _fields(record).items())
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


class JsonLines(logging.Formatter):
    """Lines with one JSON object each."""

    def format(self, record: logging.LogRecord) -> str:
        fields = {key: _plain(value) for key, value in _fields(record).items()}
        if record.exc_info:
            fields["trace"] = self.formatException(record.exc_info)
        return _ENCODER.encode(fields).decode()


def _fields(record: logging.LogRecord) -> dict[str, object]:
    moment = datetime.fromtimestamp(record.created, UTC)
    fields: dict[str, object] = {
        "time": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "level": _LEVEL_NAMES.get(record.levelno, record.levelname.lower()),
        "log": record.name.removeprefix(_ROOT + "."),
        "event": record.getMessage(),
    }
    fields.update(getattr(record, "fields", {}))
    return fields


def _plain(value: object) -> object:
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        value = bytes(value).decode("utf-8", "backslashreplace")
    text = str(value)
    if len(text) > _LONGEST:
        text = text[:_LONGEST] + "..."
    if text.isprintable():
        return text
    # Control characters could move a terminal's cursor; a lone surrogate is not UTF-8.
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _word(value: object) -> str:
    plain = _plain(value)
    if plain is None:
        return "-"
    if isinstance(plain, bool):
        return "true" if plain else "false"
    text = str(plain)
    if text and text.isprintable() and not any(char in text for char in ' ="\\'):
        return text
    return _ENCODER.encode(text).decode()
