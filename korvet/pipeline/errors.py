"""Why a job cannot go on, in one sentence each. Each exception has one cause."""

from korvet.config.setting import StartError


class PipelineError(StartError):
    """A job cannot start, or cannot go on; nothing is half done."""


class ForeignTable(PipelineError):
    """There is something at the table's place, and no archive of ours has made it."""


class NoArchive(PipelineError):
    """There is no archive where one should be read."""


class MissingRuntime(PipelineError):
    """A table format needs a Spark package that is not there; the message names it."""


class Overtaken(PipelineError):
    """Somebody else committed to the table first; nothing of this batch is in it."""


class TrimmedEarly(PipelineError):
    """Offsets left the log before they were archived."""


class OtherLog(PipelineError):
    """The table holds a topic that is not this one, though the name is the same."""


class TailLost(PipelineError):
    """The log lost records that the table has, and gave their offsets to others since."""
