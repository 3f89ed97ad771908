"""The connected broker of `broker`."""

from tests.support.connected_broker import broker

__all__ = ["broker"]
