"""What a Spark user did or met, in one sentence. Each exception has one cause."""


class BadOption(ValueError):
    """An option cannot be honoured; the message names it."""

    def __init__(self, option: str, reason: str) -> None:
        super().__init__(f"Option {option!r}: {reason}")


class BadFrame(ValueError):
    """A DataFrame cannot be written: a column is missing or has the wrong type or value."""


class UnknownTopic(ValueError):
    """A topic, or a partition of one, does not exist."""


class Vanished(UnknownTopic):
    """A topic went, or was made anew, while a query was at work on it."""


class DataLost(RuntimeError):
    """Records that were asked for are no longer in the log (or never were)."""


class TooFewCopies(RuntimeError):
    """Replicas do not have what was written. Redis has it, and a repetition does not double it."""


class OtherTopic(RuntimeError):
    """A checkpoint speaks of a topic that has since been deleted and created again."""


class NotRepeatable(RuntimeError):
    """A task was run again and brought other rows than its first attempt had written."""


class UnsupportedSpark(RuntimeError):
    """This PySpark or pyarrow cannot run the source; the message names what is needed."""
