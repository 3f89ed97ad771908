"""Errors as one sentence on stderr."""

import errno
import sys
from collections.abc import Iterator
from typing import Any

import typer

from korvet.config.setting import StartError

# The base of typer's own refusals (unknown option, missing argument); it has no public name.
_Refusal = typer.BadParameter.__mro__[1].__mro__[1]


def complain(sentence: str) -> None:
    """Write the sentence to stderr, on one line."""
    sys.stderr.write("korvet: " + " ".join(sentence.split()) + "\n")


def sentence(error: BaseException) -> str | None:
    """Return the sentence for a user, or None if the error needs a traceback."""
    for leaf in _leaves(error):
        words = _words(leaf)
        if words is not None:
            return " ".join([words, *getattr(error, "__notes__", ())])
    return None


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for part in error.exceptions:
            yield from _leaves(part)
    else:
        yield error


def _words(error: BaseException) -> str | None:
    # Imported here: only a failure needs them.
    from korvet.library.values import KorvetError, NoTopic
    from korvet.scripts.bundle import BundleError
    from korvet.scripts.contract import ContractError
    from korvet.store.errors import StoreError, advice_for
    from korvet.topics.lifecycle import Refused

    if isinstance(error, _Refusal):
        return _usage(error)
    if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
        return (
            f"{error.strerror}: choose another port with --listen, "
            "or stop the process that listens there."
        )
    if isinstance(error, StoreError):
        return advice_for(error)
    if isinstance(error, NoTopic):
        return f"{error} Create it with `korvet topics create {error.name}`."
    ours = StartError | KorvetError | BundleError | ContractError | Refused
    if isinstance(error, ours):
        return str(error)
    if isinstance(error, ImportError) and not _is_ours(error):
        return (
            f"{error}: install Korvet again, with this Python: "
            f"{sys.executable} -m pip install --force-reinstall"
        )
    return None


def _is_ours(error: ImportError) -> bool:
    """Return whether a module of Korvet is at fault, and not a package that it needs."""
    return (error.name or "korvet").partition(".")[0] == "korvet"


def _usage(error: Any) -> str:
    """Return typer's message, and the command whose --help lists what exists."""
    text = str(error.format_message())
    wrong_value = isinstance(error, typer.BadParameter) and not text.startswith("Missing")
    if wrong_value or error.ctx is None:
        return text
    return f"{text.rstrip('.')}; see `{error.ctx.command_path} --help`."
