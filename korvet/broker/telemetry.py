"""Open tracing if OpenTelemetry's variables ask for it; without them it costs nothing.

OTEL_TRACES_EXPORTER, or an endpoint in OTEL_EXPORTER_OTLP_ENDPOINT or
OTEL_EXPORTER_OTLP_TRACES_ENDPOINT, turns it on; OTEL_SDK_DISABLED=true turns it off.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio

from korvet.base import logfmt
from korvet.config.setting import StartError

if TYPE_CHECKING:
    from korvet.broker.tracing import Tracing

EXPORTER = "OTEL_TRACES_EXPORTER"
EXPORTERS = ("otlp", "console", "none")
ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
PROTOCOLS = ("OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL")
PROTOCOL = "http/protobuf"
CLOSE_S = 3.0
"""Max seconds of the last export."""

log = logfmt.get("broker.telemetry")


@asynccontextmanager
async def traced(environ: Mapping[str, str], node_id: int) -> "AsyncIterator[Tracing | None]":
    """Yield the tracing that the variables ask for; export what is left at the end."""
    tracing = open_tracing(environ, node_id)
    try:
        yield tracing
    finally:
        if tracing is not None:
            with anyio.move_on_after(CLOSE_S, shield=True):
                await anyio.to_thread.run_sync(tracing.close, abandon_on_cancel=True)


def open_tracing(environ: Mapping[str, str], node_id: int) -> "Tracing | None":
    """Return the tracing that the variables ask for, None for none. Raises StartError."""
    exporter = exporter_of(environ)
    if exporter == "none":
        return None
    try:
        from korvet.broker import tracing
    except ImportError as error:
        log.warning(
            "tracing is off: OpenTelemetry is not installed",
            missing=error.name,
            advice="install korvet[otel]",
        )
        return None
    return tracing.Tracing.open(exporter, environ, node_id)


def exporter_of(environ: Mapping[str, str]) -> str:
    """Return the exporter that the variables name; `none` if tracing is off."""
    if environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return "none"
    default = "otlp" if any(environ.get(name) for name in ENDPOINTS) else "none"
    exporter = environ.get(EXPORTER) or default
    if exporter not in EXPORTERS:
        raise StartError(f"{EXPORTER} must be one of {', '.join(EXPORTERS)}, not {exporter!r}.")
    for name in PROTOCOLS:
        if exporter == "otlp" and environ.get(name, PROTOCOL) != PROTOCOL:
            raise StartError(f"{name} must be {PROTOCOL}, not {environ[name]!r}.")
    return exporter
