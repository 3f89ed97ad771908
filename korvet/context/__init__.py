"""The context that a handler gets: one request of a client, and the services of the broker."""

from korvet.context.request import Context
from korvet.context.services import ApiRow, Interceptor, Services, Tracing

__all__ = ["ApiRow", "Context", "Interceptor", "Services", "Tracing"]
