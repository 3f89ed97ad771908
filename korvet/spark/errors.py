"""Errors of the Spark source and sink. Each class has one cause."""


class InvalidOption(ValueError):
    """An option cannot be honoured; the message names the option."""

    def __init__(self, option: str, reason: str) -> None:
        super().__init__(f"Option {option!r}: {reason}")


class InvalidDataFrame(ValueError):
    """A DataFrame cannot be written: a column is missing or has a wrong type or value."""


class UnknownTopic(ValueError):
    """A topic or partition does not exist."""


class TopicChanged(UnknownTopic):
    """A topic was deleted or created again during a query."""


class DataLoss(RuntimeError):
    """Requested records are not in the log: they were removed, or lost in a failover."""


class LeftRedis(Exception):
    """Requested records are in segments: Redis has the records from offset `local_start` on."""

    def __init__(self, local_start: int) -> None:
        super().__init__(local_start)
        self.local_start = local_start


class NotEnoughReplicas(RuntimeError):
    """Too few replicas have the written records. Redis has them; a retry writes no duplicates."""


class TopicRecreated(RuntimeError):
    """A checkpoint names a topic that was deleted and created again since."""


class NotRepeatable(RuntimeError):
    """A repeated task produced other rows than its first attempt wrote."""


class UnsupportedSpark(RuntimeError):
    """The installed PySpark or pyarrow cannot run the source; the message says which can."""
