"""The console's application: pages, their data as JSON, forms, static files, sign-in."""

import re
from collections.abc import Awaitable, Callable
from importlib.resources import files
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from korvet.base import logfmt
from korvet.console import access, render
from korvet.console.pages import record
from korvet.console.pages.actions import Done
from korvet.console.routes import CALLS, FORMS, PAGES, RECORD, Call, Form, Page, openapi
from korvet.console.services import ConsoleServices
from korvet.console.visit import PageError, Visit, refusal
from korvet.library.values import KorvetError
from korvet.store.errors import StoreError
from korvet.topics.lifecycle import Refused

log = logfmt.get("console")

_STATIC = {
    "console.css": "text/css",
    "console.js": "text/javascript",
    "icon.svg": "image/svg+xml",
    "icons.svg": "image/svg+xml",
    "inter.woff2": "font/woff2",
}
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "font-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; "
        "frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
Endpoint = Callable[[Request], Awaitable[Response]]
_V2 = re.compile(r"application/vnd\.kafka\.((json|binary)\.)?v2\+json")
"""Media types of Confluent's REST proxy."""


def build(console: ConsoleServices) -> Starlette:
    """Return the application."""
    endpoints = _Endpoints(console)
    routes = [
        Route("/static/{name}", endpoints.safe(endpoints.static), methods=["GET"]),
        Route("/sign-in", endpoints.safe(endpoints.sign_in), methods=["GET", "POST"]),
        Route("/sign-out", endpoints.safe(endpoints.sign_out), methods=["POST"]),
        Route("/api/openapi.json", endpoints.safe(endpoints.document), methods=["GET"]),
        Route(f"{RECORD}/download", endpoints.safe(endpoints.download), methods=["GET"]),
    ]
    for call in CALLS:
        answer = endpoints.safe(endpoints.call(call))
        routes.append(Route(call.api_path, answer, methods=[call.method]))
    for form in FORMS:
        routes.append(Route(form.path, endpoints.safe(endpoints.form(form)), methods=["POST"]))
    for page in PAGES:
        routes.append(Route(page.path, endpoints.safe(endpoints.page(page)), methods=["GET"]))
        routes.append(Route(page.api_path, endpoints.safe(endpoints.data(page)), methods=["GET"]))
    methods = ["GET", "POST", "PUT", "PATCH", "DELETE"]
    routes.append(Route("/{path:path}", endpoints.safe(endpoints.other), methods=methods))
    return Starlette(routes=routes)


class _Endpoints:
    """The functions of the routes, over one instance of the services."""

    def __init__(self, console: ConsoleServices) -> None:
        self._console = console

    def safe(self, endpoint: Endpoint) -> Endpoint:
        """Return the endpoint with the headers, the check of the host, and pages for errors."""

        async def respond(request: Request) -> Response:
            try:
                access.check_host(request, self._console.hosts)
                response = await endpoint(request)
            except PageError as error:
                response = self._failed(request, error.status, str(error), error.code)
            except StoreError as error:
                response = self._failed(request, 503, f"Redis: {error}.", 50003)
            except Exception as error:
                log.exception("console page failed", error, path=request.url.path)
                response = self._failed(
                    request, 500, "The page failed: the broker's log has the reason.", 500
                )
            response.headers.update({**HEADERS, **response.headers})
            return response

        return respond

    def _failed(self, request: Request, status: int, sentence: str, code: int) -> Response:
        if request.url.path.startswith("/api/"):
            headers = {"WWW-Authenticate": 'Basic realm="korvet"'} if status == 401 else None
            return JSONResponse({"error_code": code, "message": sentence}, status, headers)
        if status == 401:
            return RedirectResponse(access.sign_in_path(request), 303)
        visit = getattr(request.state, "visit", None)
        return Response(render.failure(status, sentence, visit), status, media_type="text/html")

    async def _visit(self, request: Request) -> Visit:
        await self._console.refresh()
        visit = Visit(self._console, request, await access.session_of(request, self._console))
        request.state.visit = visit
        return visit

    # Pages and data.

    def page(self, page: Page) -> Endpoint:
        """Return the function that shows a page."""

        async def show(request: Request) -> Response:
            visit = await self._visit(request)
            try:
                return self._html(visit, page, await _run(page.load(visit)))
            except PageError as error:
                return await self._refused(visit, page, error)

        return show

    async def _refused(self, visit: Visit, page: Page, error: PageError) -> Response:
        """Return the page below the reason of a refusal. Raises the error if it cannot be shown."""
        visit.is_refused = True
        try:
            data = await _run((page.load_form or page.load)(visit))
        except PageError:
            raise error from None
        return self._html(visit, page, data, error.status, str(error))

    def data(self, page: Page) -> Endpoint:
        """Return the function that sends a page's data."""

        async def send(request: Request) -> Response:
            visit = await self._visit(request)
            body = msgspec.json.encode(await _run(page.load(visit)))
            return Response(body, media_type="application/json")

        return send

    def _html(
        self, visit: Visit, page: Page, data: Any, status: int = 200, error: str = ""
    ) -> Response:
        body = render.page(page.template, visit, data, error)
        response = Response(body, status, media_type="text/html")
        access.keep(response, visit)
        return response

    def form(self, form: Form) -> Endpoint:
        """Return the function that makes a change and shows the next page."""
        back = next(page for page in PAGES if page.path == form.back)

        async def change(request: Request) -> Response:
            visit = await self._visit(request)
            try:
                await access.read_form(visit)
                visit.require_write()
                done = await _run(form.action(visit))
            except PageError as error:
                return await self._refused(visit, back, error)
            finally:
                self._console.invalidate()
            log.info("console change", path=form.path, user=visit.user or None, done=done.sentence)
            return RedirectResponse(done.location(visit), 303)

        return change

    def call(self, call: Call) -> Endpoint:
        """Return the function that answers a call of the API."""

        async def answer(request: Request) -> Response:
            visit = await self._visit(request)
            if call.method != "GET":
                access.check_change(visit)
                visit.require_write()
            body = await visit.read_json(call.body) if call.body is not None else None
            found = await _run(call.run(visit, body))
            if isinstance(found, Response):
                return found
            if isinstance(found, Done) or call.status == 201:
                self._console.invalidate()
                done = found.sentence if isinstance(found, Done) else call.summary
                log.info("console change", path=call.path, user=visit.user or None, done=done)
            if found is None or isinstance(found, Done):
                return Response(status_code=204)
            accepted = request.headers.get("accept", "")
            kind = accepted if _V2.fullmatch(accepted) else "application/json"
            return Response(msgspec.json.encode(found), call.status, media_type=kind)

        return answer

    # Other paths.

    async def document(self, request: Request) -> Response:
        """Send the OpenAPI document."""
        await self._visit(request)
        return Response(openapi(), media_type="application/json")

    async def download(self, request: Request) -> Response:
        """Send a key, a value or a record as a file."""
        visit = await self._visit(request)
        body, media_type, name = await _run(record.download(visit))
        disposition = {"Content-Disposition": f'attachment; filename="{name}"'}
        return Response(body, media_type=media_type, headers=disposition)

    async def static(self, request: Request) -> Response:
        """Send a static file."""
        name = request.path_params["name"]
        if name not in _STATIC:
            raise PageError(404, "There is no such file.")
        body = files("korvet.console").joinpath("static", name).read_bytes()
        headers = {"Cache-Control": "max-age=300"}
        return Response(body, media_type=_STATIC[name], headers=headers)

    async def sign_in(self, request: Request) -> Response:
        """Show the form of the sign-in, or check it."""
        await self._console.refresh()
        return await access.sign_in(request, self._console)

    async def sign_out(self, request: Request) -> Response:
        """End the session."""
        visit = await self._visit(request)
        await access.read_form(visit)
        return access.sign_out(visit)

    async def other(self, request: Request) -> Response:
        """Answer a path of the ops port, on a connection that the console has; else 404."""
        if request.method == "GET":
            status, kind, body = await self._console.pages.answer(request.url.path)
            if status != 404:
                return Response(body, status, media_type=kind)
        await self._visit(request)
        raise PageError(404, "There is no such page.")


async def _run(work: Awaitable[Any]) -> Any:
    """Await the work; what the log refuses is an error of the page."""
    try:
        return await work
    except KorvetError as error:
        raise refusal(error.error, str(error)) from None
    except Refused as error:
        raise refusal(error.error, error.reason) from None
