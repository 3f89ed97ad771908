"""The receiver of a reply: a future, or an object that needs no event-loop iteration."""

from typing import Protocol, TypeVar

R_contra = TypeVar("R_contra", contravariant=True)


class ReplyWaiter(Protocol[R_contra]):
    """The methods that a store calls; an `asyncio.Future` is one.

    Its methods are called where replies are read: they return quickly and raise nothing.
    """

    def done(self) -> bool:
        """Return whether it takes no more replies."""

    def set_result(self, result: R_contra, /) -> None:
        """Take the reply."""

    def set_exception(self, error: BaseException, /) -> None:
        """Take the error in place of the reply."""


def resolve(waiter: ReplyWaiter[R_contra], reply: R_contra) -> None:
    """Give the waiter its reply, unless it is done."""
    if not waiter.done():
        waiter.set_result(reply)


def fail(waiter: ReplyWaiter[R_contra], error: BaseException) -> None:
    """Give the waiter the error, unless it is done."""
    if not waiter.done():
        waiter.set_exception(error)
