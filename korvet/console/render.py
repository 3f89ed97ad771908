"""Templates: one environment that escapes everything, and the filters of numbers and times."""

import hmac
import re
import time
from collections.abc import Sequence
from functools import cache
from http import HTTPStatus
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from korvet import __version__
from korvet.base.human import ago, moment, size
from korvet.console.shown import FORMATS
from korvet.console.visit import Visit


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("korvet.console"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "count": count,
        "size": size,
        "marked": marked,
        "moment": moment,
        "ago": ago,
        "when": when,
        "coloured": coloured,
        "segment": lambda text: quote(str(text), safe=""),
        "query": lambda pairs: urlencode(pairs),
    }
    environment.globals |= {"version": __version__, "bar": bar, "chart": chart, "formats": FORMATS}
    environment.globals["p"] = environment.get_template("parts.html").module
    return environment


def page(template: str, visit: Visit, data: Any, error: str = "") -> str:
    """Return a page."""
    return (
        _environment()
        .get_template(template)
        .render(
            data=data,
            visit=visit,
            form=visit.form,
            csrf=visit.console.sessions.token(visit.session),
            error=error,
            done=_done(visit),
            here=visit.request.url.path,
            section=visit.section,
        )
    )


def _done(visit: Visit) -> str:
    """Return the sentence of the change that led to this page, if it is signed here."""
    parameters = visit.request.query_params
    sentence = parameters.get("done", "")
    mark = visit.console.sessions.digest("done", sentence.encode("utf-8", "replace"))
    return (
        sentence if hmac.compare_digest(mark.encode(), parameters.get("mark", "").encode()) else ""
    )


def sign_in(visit: Visit, to: str, error: str, user: str = "") -> str:
    """Return the page of the sign-in."""
    csrf = visit.console.sessions.token(visit.session)
    template = _environment().get_template("sign_in.html")
    return template.render(
        visit=None, csrf=csrf, to=to, user=user, error=error, done="", here="/sign-in"
    )


def failure(status: int, sentence: str, visit: Visit | None) -> str:
    """Return a page with one sentence, and the navigation if the user may see pages."""
    template = _environment().get_template("error.html")
    phrase = HTTPStatus(status).phrase
    return template.render(
        visit=visit,
        csrf=visit.console.sessions.token(visit.session) if visit else "",
        section=visit.section if visit else "",
        **{"status": status, "phrase": phrase, "error": sentence, "done": "", "here": ""},
    )


def when(ms: int) -> Markup:
    """Return a time as its distance from now, with the exact time as its title."""
    if ms < 0:
        return Markup('<span class="quiet-text">-</span>')
    seconds, exact = time.time() - ms / 1000, moment(ms)
    day = 86_400
    if abs(seconds) > 30 * day:
        text = exact[:10] if exact[4] == "-" else exact
    elif abs(seconds) < 2:
        text = "now"
    else:
        text = f"{_whole(seconds)} ago" if seconds > 0 else f"in {_whole(-seconds)}"
    return Markup('<time data-ms="{}" title="{} UTC">{}</time>').format(ms, exact, text)


def _whole(seconds: float) -> str:
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= length:
            return f"{seconds // length:.0f} {unit}"
    return f"{seconds:.0f} s"


_JSON = re.compile(
    r'("(?:[^"\\]|\\.)*")(\s*:)?|(-?\d[\d.eE+-]*)|\b(true|false|null)\b|([^"\dtfn-]+|.)'
)


def coloured(text: str) -> Markup:
    """Return JSON with its parts marked."""

    def mark(token: re.Match[str]) -> str:
        string, colon, number, word, other = token.groups(default="")
        if other:
            return escape(other)
        kind = "key" if colon else "text" if string else "number" if number else "word"
        return Markup('<span class="j-{}">{}</span>{}').format(
            kind, string or number or word, colon
        )

    return Markup(_JSON.sub(mark, text))


def count(number: float) -> str:
    """Return a number with thin separators of thousands."""
    return f"{number:,}".replace(",", "\u202f")


def marked(text: str) -> Markup:
    """Return a sentence with its words in backquotes as code."""
    parts = [escape(part) for part in text.split("`")]
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if at % 2 else part for at, part in enumerate(parts)
    )


def bar(parts: list[tuple[str, int]], width: int = 1000) -> list[tuple[str, int, int]]:
    """Return class, start and width of the parts of a bar; each that is not empty can be seen."""
    total = sum(max(0, length) for _, length in parts)
    found, at = [], 0
    least = width // 50
    shown = [(name, max(least, length * width // total)) for name, length in parts if length > 0]
    over = sum(length for _, length in shown) or 1
    for name, length in shown:
        wide = length * width // over
        found.append((name, at, wide))
        at += wide
    return found


WIDTH, HEIGHT = 600, 60
"""The size of a chart in its own units."""
POINT = 4
"""The width of a sample's line."""


class Chart(msgspec.Struct, frozen=True):
    """Lines from `from_ms` to `to_ms`; a gap in the samples separates two lines."""

    lines: list[str]
    highest: int
    last: int


def chart(
    times_ms: Sequence[int], values: Sequence[int], from_ms: int, to_ms: int, gap_ms: int
) -> Chart:
    """Return the chart of samples; a pause above `gap_ms` is a gap."""
    shown = [each for each in zip(times_ms, values, strict=True) if each[0] >= from_ms]
    highest = max((value for _, value in shown), default=0)
    lines: list[list[str]] = []
    before = 0
    for at_ms, value in shown:
        if not lines or at_ms - before > gap_ms:
            lines.append([])
        before = at_ms
        x = (at_ms - from_ms) * WIDTH / max(1, to_ms - from_ms)
        y = HEIGHT - 1 - (HEIGHT - 3) * value / max(1, highest)
        if not lines[-1]:
            # A line of one point would not be seen.
            lines[-1].append(f"{max(0.0, x - POINT):.1f},{y:.1f}")
        lines[-1].append(f"{x:.1f},{y:.1f}")
    return Chart([" ".join(points) for points in lines], highest, values[-1] if values else 0)
