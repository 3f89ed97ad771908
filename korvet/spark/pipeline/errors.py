"""Errors that stop a job. Each class has one cause."""

from korvet.config.setting import StartError


class PipelineError(StartError):
    """A job cannot start or continue; no commit is incomplete."""


class ForeignTable(PipelineError):
    """The location has a table or files that were not made by korvet pipeline."""


class NoArchive(PipelineError):
    """No archive exists at the location."""


class MissingRuntime(PipelineError):
    """A Spark package that the table format needs is missing; the message names it."""


class ConcurrentCommit(PipelineError):
    """Another process committed to the table first; none of these rows were committed."""


class TrimmedEarly(PipelineError):
    """Offsets were removed from the log before they were archived."""


class TopicMismatch(PipelineError):
    """The table holds another topic of the same name, or a log that had more records."""


class TailLost(PipelineError):
    """The log lost records that the table has, and later appends reused their offsets."""
