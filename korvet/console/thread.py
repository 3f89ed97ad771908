"""The thread of the console, started by the first request for one of its pages.

Rules
- The broker's event loop accepts connections, answers probes and metrics, and hands over the other
  connections. A broker whose console is not open imports nothing of it.
- The thread has its own event loop and its own connections to Redis. It shares no object with the
  broker but the pages of the ops port, which it asks in the broker's event loop.
- If the console cannot start, each request gets 503 with the reason, and the next one tries again.
"""

import asyncio
import sys
import threading
from collections.abc import Callable
from contextlib import suppress

from korvet.base import logfmt
from korvet.broker.ops.connection import OpsConnection
from korvet.broker.ops.http import Page
from korvet.config.broker_config import Config
from korvet.config.setting import StartError
from korvet.console.inbox import BrokerPages, Inbox
from korvet.store.errors import StoreError

SWITCH_S = 0.001
"""Max seconds that the broker's thread waits for the interpreter while the console computes."""
STOP_S = 2.0
"""Seconds that the broker waits for the thread to end."""

log = logfmt.get("console")


class ConsoleThread:
    """Starts the console at the first request, and stops it with the broker."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._thread: threading.Thread | None = None
        self._inbox = Inbox()
        self._stop: Callable[[], object] | None = None

    def take(self, connection: OpsConnection, request: bytes, page: Page) -> None:
        """Serve and close the connection, of which `request` was read."""
        if self._thread is None or not self._thread.is_alive():
            self._inbox = Inbox()
            pages = BrokerPages(page, asyncio.get_running_loop())
            self._thread = threading.Thread(
                target=self._run, args=(pages, self._inbox), name="korvet-console", daemon=True
            )
            self._inbox.put(connection, request)
            self._thread.start()
        else:
            self._inbox.put(connection, request)

    def close(self) -> None:
        """Stop the thread."""
        if self._thread is not None and self._thread.is_alive():
            if self._stop is not None:
                with suppress(RuntimeError):  # its event loop is closed
                    self._stop()
            self._thread.join(STOP_S)

    def _run(self, pages: BrokerPages, inbox: Inbox) -> None:
        sys.setswitchinterval(SWITCH_S)
        try:
            asyncio.run(self._serve(pages, inbox))
        except (StartError, StoreError) as error:
            log.error("console cannot start", error=error)
            _refuse(inbox, f"The console cannot start: {error}")
        except Exception as error:
            log.exception("console failed", error)
            _refuse(inbox, "The console failed: the broker's log has the reason.")

    async def _serve(self, pages: BrokerPages, inbox: Inbox) -> None:
        from korvet.console.server import serve  # here: the thread imports, not the broker

        stop, loop = asyncio.Event(), asyncio.get_running_loop()
        self._stop = lambda: loop.call_soon_threadsafe(stop.set)
        await serve(self._config, pages, inbox, stop)


def _refuse(inbox: Inbox, sentence: str) -> None:
    """Answer what waits, and what follows until the next start, with 503."""
    body = f"{sentence}\n".encode()
    head = (
        "HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )

    def answer(connection: OpsConnection, request: bytes) -> None:
        with suppress(OSError), connection.socket:
            connection.send_now(head.encode() + body)

    inbox.open(answer)
