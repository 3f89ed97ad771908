"""The fixtures that korvet.testing offers."""

from korvet.testing.fixtures import korvet_broker, korvet_session_broker

__all__ = ["korvet_broker", "korvet_session_broker"]
