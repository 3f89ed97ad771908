"""Passwords that commands read: from stdin or a prompt, never from an argument."""

import sys

import typer

from korvet.config.setting import StartError


def read() -> str:
    """Ask for a password on a terminal, else read the first line of stdin. Raises StartError."""
    return ask() if sys.stdin.isatty() else from_stdin()


def ask() -> str:
    """Ask for a password, twice. Raises StartError."""
    return _checked(str(typer.prompt("Password", hide_input=True, confirmation_prompt=True)))


def from_stdin() -> str:
    """Read the first line of stdin. Raises StartError."""
    try:
        return _checked(sys.stdin.buffer.readline().decode().rstrip("\r\n"))
    except UnicodeDecodeError:
        raise StartError("The password on stdin is not UTF-8.") from None


def _checked(password: str) -> str:
    if not password:
        raise StartError("The password must not be empty: write it to stdin.")
    return password
