"""Who takes the reply to a call: a future, or what takes it without a turn of the loop between."""

from typing import Protocol, TypeVar

R_contra = TypeVar("R_contra", contravariant=True)


class ReplyWaiter(Protocol[R_contra]):
    """What a store asks of it; an `asyncio.Future` is one.

    Called where replies are read: it returns soon, and raises nothing.
    """

    def done(self) -> bool:
        """Whether it takes no reply any more."""

    def set_result(self, result: R_contra, /) -> None:
        """This is the reply."""

    def set_exception(self, error: BaseException, /) -> None:
        """There is none, and this is why."""


def settle(waiter: ReplyWaiter[R_contra], reply: R_contra) -> None:
    """The waiter has the reply, if it still wants it."""
    if not waiter.done():
        waiter.set_result(reply)


def fail(waiter: ReplyWaiter[R_contra], error: BaseException) -> None:
    """The waiter knows that there is no reply, if it still wants to."""
    if not waiter.done():
        waiter.set_exception(error)
