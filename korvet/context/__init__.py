"""The context that a handler gets: one request of a client, and the services of the broker."""

from korvet.context.hooks import ApiRow, Interceptor, Tracing
from korvet.context.request import Context
from korvet.context.services import Services

__all__ = ["ApiRow", "Context", "Interceptor", "Services", "Tracing"]
