"""A broker with its console in a thread of the test, over a real Redis."""

import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from itertools import count
from typing import Any

import anyio
import anyio.from_thread
import anyio.lowlevel
import httpx

from korvet import Korvet
from korvet.broker.server import serve
from korvet.config.broker_config import load
from korvet.console.thread import ConsoleThread
from korvet.scripts.keys import Keys
from korvet.security.credentials import MIN_ITERATIONS, Mechanism, encode, from_password
from korvet.store.redis_user import rules
from korvet.store.sync_store import SyncStore
from tests.support.redis_servers import TestServer

_namespaces = count()


class RunningConsole:
    """The addresses of a broker and its console, and the log as the library sees it."""

    def __init__(self, namespace: str, listen: str, console: str, server: TestServer) -> None:
        self.namespace = namespace
        self.bootstrap = listen
        self.url = console
        self.server = server
        self.log = Korvet.connect(server.url, namespace=namespace)

    def browser(self, **options: Any) -> httpx.Client:
        """Return a client with cookies, as a browser has them."""
        return httpx.Client(base_url=self.url, timeout=30, **options)

    def api(self, path: str, **query: str | int) -> Any:
        """Return the data of a page."""
        found = httpx.get(f"{self.url}/api{path}", params=query, timeout=30)
        assert found.status_code == 200, found.text
        return found.json()

    def add_user(self, name: str, password: str) -> None:
        """Store a user's SCRAM credentials."""
        rows = [
            (each.title, encode(made), made.shape)
            for each in Mechanism
            for made in [from_password(each, password, MIN_ITERATIONS)]
        ]
        with SyncStore.connect(self.server.url) as store:
            store.run(Keys(self.namespace).user_alter(rows, user=name, condition=""))


def where_of(made: RunningConsole, kind: str) -> tuple[str, ...]:
    """Return the options of a command that works at the broker (brokers) or on its Redis."""
    if kind == "brokers":
        return "--brokers", made.bootstrap
    return "--redis", made.server.url, "--namespace", made.namespace


@contextmanager
def running_console(
    server: TestServer,
    *sets: str,
    listen: str = "127.0.0.1:0",
    user: str = "",
    ops: str = "127.0.0.1:0",
    namespace: str = "",
    node_id: int = 0,
) -> Iterator[RunningConsole]:
    """Serve a namespace, by default a new one, until the end.

    `user`: a Redis user of the least privileges.
    """
    namespace, url = namespace or f"console{next(_namespaces)}", server.url
    if user:
        password = "redis-password"
        with server.client() as client:
            words = rules(namespace, password, waitaof=False)
            client.execute_command("ACL", "SETUSER", user, *words)
        url = url.replace("://", f"://{user}:{password}@", 1)
    options = {"listen": listen, "ops": ops, "redis": url, "namespace": namespace}
    options["node-id"] = str(node_id)
    config = load(options, sets=sets, environ={})
    console = ConsoleThread(config)
    ready: Future[tuple[Any, anyio.Event, str, str]] = Future()

    async def run() -> None:
        stop, token, bound = anyio.Event(), anyio.lowlevel.current_token(), [""]
        await serve(
            config,
            on_listening=lambda found: bound.append(str(found[0].address)),
            stop=stop,
            console=console,
            on_console=lambda url: ready.set_result((token, stop, bound[-1], url)),
        )

    def main() -> None:
        try:
            anyio.run(run)
        except BaseException as error:
            ready.set_exception(error)

    thread = threading.Thread(target=main, daemon=True)
    thread.start()
    token, stop, address, where = ready.result(30)
    made = RunningConsole(namespace, address, where, server)
    try:
        yield made
    finally:
        made.log.close()
        anyio.from_thread.run_sync(stop.set, token=token)
        thread.join(30)
        assert not thread.is_alive()


@contextmanager
def secured_console(
    server: TestServer, *, password: str = "a", mechanism: str = "SCRAM-SHA-256"
) -> Iterator[RunningConsole]:
    """Serve a namespace with ACLs, where the user admin with that password may do everything."""
    sets = (
        "authorizer.class.name=korvet",
        "super.users=User:admin",
        f"sasl.enabled.mechanisms={mechanism}",
        "connection.failed.authentication.delay.ms=0",
    )
    with running_console(server, *sets, listen="SASL_PLAINTEXT://127.0.0.1:0") as made:
        made.add_user("admin", password)
        yield made


def token_in(page: str) -> str:
    """Return the CSRF token of a page's first form."""
    return page.partition('name="csrf" value="')[2].partition('"')[0]


def send(browser: httpx.Client, page: str, action: str, **fields: str) -> httpx.Response:
    """Load a page and send one of its forms; underscores in names stand for dots."""
    csrf = token_in(browser.get(page).text)
    data = {"csrf": csrf, **{name.replace("_", "."): value for name, value in fields.items()}}
    return browser.post(action, data=data, follow_redirects=True)
