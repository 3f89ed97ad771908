"""The lines on stdout that whoever started a broker waits for."""

import sys

from korvet.config.broker_config import Address


def announce(host: str, port: int) -> None:
    """The one line on stdout: whoever started us may connect now."""
    sys.stdout.write(f"listening on {Address(host, port)}\n")
    sys.stdout.flush()


def announce_legacy(host: str, port: int) -> None:
    """The line behind it with --legacy-listen: clients of Kafka 0.7 may connect too."""
    sys.stdout.write(f"legacy listening on {Address(host, port)}\n")
    sys.stdout.flush()
