"""A schema registry on loopback, with the part of the public REST API that serializers use."""

import base64
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

_BY_ID = re.compile(r"/schemas/ids/(\d+)")
_VERSIONS = re.compile(r"/subjects/([^/]+)/versions")
_VERSION = re.compile(r"/subjects/([^/]+)/versions/(\w+)")
_SUBJECT = re.compile(r"/subjects/([^/]+)")
CUP = {
    "type": "record",
    "name": "Cup",
    "fields": [
        {"name": "tea", "type": "string"},
        {"name": "guest", "type": {"type": "record", "name": "Guest", "fields": [
            {"name": "name", "type": ["null", "string"], "default": None}]}},
    ],
}  # fmt: skip
"""A schema with an optional field in a nested record."""


class Registry:
    """The schemas of a registry, and the requests that it got."""

    def __init__(self) -> None:
        self.schemas: dict[int, dict[str, Any]] = {}
        self.versions: dict[str, list[int]] = {}
        self.requests: list[str] = []
        self.user_info = ""
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def add(self, subject: str, schema: Any, **more: Any) -> int:
        """Register a schema; return its id."""
        row = {"schema": schema if isinstance(schema, str) else json.dumps(schema), **more}
        held = [number for number, known in self.schemas.items() if known == row]
        number = held[0] if held else len(self.schemas) + 1
        self.schemas[number] = row
        versions = self.versions.setdefault(subject, [])
        if number not in versions:
            versions.append(number)
        return number

    def get(self, path: str) -> tuple[int, dict[str, Any]]:
        """Return status and body of the answer to a GET."""
        if found := _BY_ID.fullmatch(path):
            row = self.schemas.get(int(found[1]))
            return (200, row) if row else (404, _error(40403, "Schema not found"))
        if found := _VERSION.fullmatch(path):
            versions = self.versions.get(found[1], [])
            number = len(versions) if found[2] == "latest" else int(found[2])
            if not 1 <= number <= len(versions):
                return 404, _error(40401, f"Subject '{found[1]}' not found.")
            held = versions[number - 1]
            return 200, {
                "subject": found[1],
                "version": number,
                "id": held,
                **self.schemas[held],
            }
        return 404, _error(404, "HTTP 404 Not Found")

    def post(self, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Return status and body of the answer to a POST."""
        more = {name: body[name] for name in ("schemaType", "references") if body.get(name)}
        if found := _VERSIONS.fullmatch(path):
            try:
                json.loads(body["schema"])
            except ValueError:
                return 422, _error(42201, "Invalid schema")
            return 200, {"id": self.add(found[1], body["schema"], **more)}
        if found := _SUBJECT.fullmatch(path):
            for number in self.versions.get(found[1], []):
                if self.schemas[number]["schema"] == body["schema"]:
                    return 200, {"subject": found[1], "id": number, "version": 1, **body}
            return 404, _error(40403, "Schema not found")
        return 404, _error(404, "HTTP 404 Not Found")


def _error(code: int, message: str) -> dict[str, Any]:
    return {"error_code": code, "message": message}


@contextmanager
def schema_registry(user_info: str = "") -> Iterator[Registry]:
    """Serve a registry until the end of the context, with Basic authentication if it is given."""
    registry = Registry()
    registry.user_info = user_info

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._send(*registry.get(self._begin()))

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            self._send(*registry.post(self._begin(), json.loads(body)))

        def _begin(self) -> str:
            registry.requests.append(f"{self.command} {self.path}")
            return self.path.partition("?")[0]

        def _send(self, status: int, body: dict[str, Any]) -> None:
            wanted = "Basic " + base64.b64encode(registry.user_info.encode()).decode()
            if registry.user_info and self.headers["Authorization"] != wanted:
                status, body = 401, _error(401, "Unauthorized")
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            """Write no log."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        registry.port = server.server_port
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield registry
        finally:
            server.shutdown()
            thread.join()
