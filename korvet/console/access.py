"""Check host name, session, password and CSRF token of a request.

Rules
- The Host header must name this machine, as on all pages of the port (`ops.hosts`): connections
  with several requests are checked here.
- A change is refused with the Origin of another site. A form needs the CSRF token of its session,
  and so does a call with the session's cookie, in X-CSRF-Token. A call without it has JSON, which
  a page of another site cannot send.
- Users are those of SCRAM. A password is checked as by a PLAIN listener, with its delay after a
  wrong one. The API takes them in Basic authentication too.
"""

import asyncio
import base64
import binascii
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from korvet.base import logfmt
from korvet.broker.ops.http import WRONG_HOST, HostNames
from korvet.config.broker_config import Config
from korvet.console import render
from korvet.console.services import ConsoleServices
from korvet.console.sessions import COOKIE, SESSION_S, ConsoleSession
from korvet.console.visit import LISTENER, PageError, Visit
from korvet.security.credentials import Mechanism
from korvet.security.session import AuthenticationFailed, Session

MAX_NAME = 500
"""Max bytes of a user name or a password."""
_DEFAULT_HOSTS = HostNames(Config())
log = logfmt.get("console")


def check_host(request: Request, hosts: HostNames = _DEFAULT_HOSTS) -> None:
    """Raise PageError if the port is asked under the name of another host."""
    host = request.headers.get("host", "")
    if not hosts.permit(host):
        raise PageError(421, WRONG_HOST.format(host).strip())


async def session_of(request: Request, console: ConsoleServices) -> ConsoleSession:
    """Return the session. Raises PageError 401 if security is on and no user has signed in."""
    found = console.sessions.decode(request.cookies.get(COOKIE, ""))
    if not console.is_secured:
        return found or console.sessions.begin()
    if found is not None and found.user and found.mark == await mark_of(found.user, console):
        return found
    user = await _basic(request, console)
    if user is None:
        raise PageError(401, "Sign in first.")
    return console.sessions.begin(user)


async def mark_of(user: str, console: ConsoleServices) -> str:
    """Return the mark of the user's stored credentials; another one after a change."""
    services = console.services
    fields = [f"{each.title}:{user}" for each in Mechanism]
    stored = await services.store.command("HMGET", services.keys.users(), *fields)
    if not any(stored):
        return ""
    return console.sessions.digest("user", b"\0".join(each or b"" for each in stored))


async def _basic(request: Request, console: ConsoleServices) -> str | None:
    """Return the user of Basic authentication, which only the API takes."""
    scheme, _, encoded = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "basic" or not request.url.path.startswith("/api/"):
        return None
    try:
        user, _, password = base64.b64decode(encoded, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return None
    return user if await _is_right(request, console, user, password) else None


async def _is_right(request: Request, console: ConsoleServices, user: str, password: str) -> bool:
    """Check a password, and audit the attempt."""
    host = request.client.host if request.client else ""
    session, audit = Session(host, listener=LISTENER), console.services.audit
    if not user or not password or len(user) + len(password) > MAX_NAME:
        return False
    try:
        await console.passwords.check(user, password.encode(), host)
    except AuthenticationFailed as failed:
        audit.authentication(session, None, "PLAIN", failed.reason, failed.user or "")
        log.warning("console sign-in failed", client=host, user=failed.user, reason=failed.reason)
        delay = console.services.settings.integer("connection.failed.authentication.delay.ms")
        await asyncio.sleep(delay / 1000)
        return False
    audit.authentication(session, None, "PLAIN", "", user)
    return True


def sign_in_path(request: Request) -> str:
    """Return the sign-in page that comes back to this page."""
    return f"/sign-in?to={quote(request.url.path, safe='/')}"


async def sign_in(request: Request, console: ConsoleServices) -> Response:
    """Show the form, or check it and begin the user's session."""
    session = console.sessions.decode(request.cookies.get(COOKIE, "")) or console.sessions.begin()
    visit, error, status = Visit(console, request, session), "", 200
    to = request.query_params.get("to", "/")
    to = to if to.startswith("/") and not to.startswith(("//", "/\\")) else "/"
    if not console.is_secured:
        return RedirectResponse("/", 303)
    if request.method == "POST":
        try:
            await read_form(visit)
            user = visit.form.get("user", "")
            if not await _is_right(request, console, user, visit.form.get("password", "")):
                raise PageError(401, "The name or the password is wrong.")
            log.info("console sign-in", client=visit.host, user=user)
            begun = RedirectResponse(to, 303)
            _set(begun, visit, console.sessions.begin(user, await mark_of(user, console)))
            return begun
        except PageError as refused:
            error, status = str(refused), refused.status
    body = render.sign_in(visit, to, error, visit.form.get("user", ""))
    response = Response(body, status, media_type="text/html")
    _set(response, visit, session)
    return response


def sign_out(visit: Visit) -> Response:
    """End the session, in the process and in the browser."""
    request = visit.request
    visit.console.sessions.end(visit.session)
    response = RedirectResponse("/", 303)
    response.delete_cookie(COOKIE, secure=_is_tls(request), httponly=True, samesite="strict")
    return response


def check_change(visit: Visit) -> None:
    """Raise PageError if a change is from another site, or has a cookie without its token."""
    _check_origin(visit.request)
    token = visit.request.headers.get("x-csrf-token", "")
    if COOKIE in visit.request.cookies and not visit.console.sessions.is_token(
        visit.session, token
    ):
        raise PageError(403, "A call with a cookie needs X-CSRF-Token: use Basic authentication.")


def _check_origin(request: Request) -> None:
    origin = request.headers.get("origin")
    if origin is not None and origin.partition("://")[2] != request.headers.get("host"):
        raise PageError(403, "The request is from another site.")


async def read_form(visit: Visit) -> None:
    """Read the form of a POST. Raises PageError unless it is a form of this session."""
    _check_origin(visit.request)
    await visit.read_form()
    if not visit.console.sessions.is_token(visit.session, visit.form.get("csrf", "")):
        raise PageError(403, "The form is too old, or from another site: load the page again.")


def keep(response: Response, visit: Visit) -> None:
    """Send the session's cookie if the browser has another one."""
    encoded = visit.console.sessions.encode(visit.session)
    if visit.request.cookies.get(COOKIE) != encoded:
        _set(response, visit, visit.session)


def _is_tls(request: Request) -> bool:
    return request.url.scheme == "https"


def _set(response: Response, visit: Visit, session: ConsoleSession) -> None:
    response.set_cookie(
        COOKIE,
        visit.console.sessions.encode(session),
        max_age=SESSION_S,
        secure=_is_tls(visit.request),
        httponly=True,
        samesite="strict",
    )
