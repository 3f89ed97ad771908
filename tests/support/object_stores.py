"""Object stores on loopback: S3 by moto, Azure by Azurite, Google Cloud by fake-gcs-server.

Azurite is an npm package, fake-gcs-server a Go module: .ci/run installs both.
"""

import base64
import hashlib
import hmac
import json
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import Any, NamedTuple
from urllib.error import HTTPError
from urllib.parse import quote, unquote, urlencode
from urllib.request import Request, urlopen

from tests.support.ports import free_port
from tests.support.programs import NPM_INSTALL, Build, program

AZURITE = "azurite@3.37.0"
PATIENCE_S = 60.0
BUCKET = "logs"
_BUCKETS = count()
ACCOUNT, ACCOUNT_KEY = "korvet", base64.b64encode(b"a key for tests").decode()


class ObjectStore(NamedTuple):
    """A bucket: its URL, and the environment that the library reads."""

    url: str
    environment: Mapping[str, str]


@contextmanager
def s3() -> Iterator[ObjectStore]:
    """Serve S3's API in this process, with a new bucket: its servers share their buckets."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    bucket = f"{BUCKET}-{next(_BUCKETS)}"
    with urlopen(Request(f"{endpoint}/{bucket}", method="PUT")):
        pass
    yield ObjectStore(f"s3://{bucket}/some/prefix", s3_environment(endpoint))
    server.stop()


def s3_environment(endpoint: str) -> dict[str, str]:
    """Return what the library reads for a bucket at that endpoint."""
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "id",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
    }


@contextmanager
def azure(build: Build) -> Iterator[ObjectStore]:
    """Serve Azure's API by Azurite. A machine without it installs it for the run."""
    port = free_port()
    words = [_azurite(build), "--inMemoryPersistence", "--silent", "--disableTelemetry"]
    words += ["--skipApiVersionCheck"]
    words += ["--blobHost", "127.0.0.1", "--blobPort", str(port)]
    endpoint = f"http://127.0.0.1:{port}/{ACCOUNT}"
    with _running(words, port, {"AZURITE_ACCOUNTS": f"{ACCOUNT}:{ACCOUNT_KEY}"}):
        _create_container(endpoint)
        environment = {
            "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT,
            "AZURE_STORAGE_ACCOUNT_KEY": ACCOUNT_KEY,
            "AZURE_STORAGE_ENDPOINT": endpoint,
            "AZURE_ALLOW_HTTP": "true",
        }
        yield ObjectStore(f"az://{BUCKET}/some/prefix", environment)


def _azurite(build: Build) -> str:
    found = shutil.which("azurite-blob")
    return found or str(build(None, (*NPM_INSTALL, AZURITE)) / "node_modules/.bin/azurite-blob")


def _create_container(endpoint: str) -> None:
    """Create the container; its request is signed with the account's key."""
    headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-08-06"}
    signed = "PUT" + "\n" * 12 + "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
    signed += f"/{ACCOUNT}/{ACCOUNT}/{BUCKET}\nrestype:container"
    mac = hmac.new(base64.b64decode(ACCOUNT_KEY), signed.encode(), hashlib.sha256)
    headers["Authorization"] = f"SharedKey {ACCOUNT}:{base64.b64encode(mac.digest()).decode()}"
    url = f"{endpoint}/{BUCKET}?restype=container"
    with urlopen(Request(url, headers=headers, method="PUT")):
        pass


@contextmanager
def google() -> Iterator[ObjectStore]:
    """Serve Google's API by fake-gcs-server."""
    port = free_port()
    words = [program("fake-gcs-server"), "-scheme", "http", "-host", "127.0.0.1"]
    words += ["-port", str(port), "-public-host", f"127.0.0.1:{port}"]
    words += ["-backend", "memory", "-log-level", "error"]
    with _running(words, port):
        body = json.dumps({"name": BUCKET}).encode()
        with urlopen(Request(f"http://127.0.0.1:{port}/storage/v1/b?project=p", data=body)):
            pass
        with _xml_uploads(port) as endpoint:
            key = {"gcs_base_url": endpoint, "disable_oauth": True, "client_email": ""}
            key |= {"private_key": "", "private_key_id": ""}
            environment = {"GOOGLE_SERVICE_ACCOUNT_KEY": json.dumps(key)}
            yield ObjectStore(f"gs://{BUCKET}/some/prefix", environment)


@contextmanager
def _xml_uploads(port: int) -> Iterator[str]:
    """Pass requests on to fake-gcs-server, which has no PUT of an object in Google's XML API.

    The library uploads so. Google documents the upload of the JSON API as its equal: the condition
    that no object has the name is checked by the server in both.
    """

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def _pass_on(self) -> None:
            size = int(self.headers.get("Content-Length") or 0)
            data, path, method = self.rfile.read(size), self.path, self.command
            headers = {"Host": f"127.0.0.1:{port}"}
            headers |= {n: v for n, v in self.headers.items() if n.lower() in _PASSED}
            if method == "PUT":
                method, path = "POST", _upload(path, self.headers.get("x-goog-if-generation-match"))
                headers["Content-Type"] = "application/octet-stream"
            status, found, answer = _ask(f"http://127.0.0.1:{port}{path}", method, headers, data)
            self.send_response(status)
            if self.command == "PUT" and status == 200:
                found = {"ETag": json.loads(answer)["etag"]}
                answer = b""
            for name, value in found.items():
                if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                    self.send_header(name, value)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        do_GET = do_PUT = do_DELETE = do_POST = _pass_on

        def log_message(self, *_: Any) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


_PASSED = {"range", "content-type", "if-match", "if-none-match"}


def _upload(path: str, generation: str | None) -> str:
    """Return the path of the JSON API for the upload of an object at a path of the XML API."""
    bucket, _, name = path.lstrip("/").partition("/")
    query = {"uploadType": "media", "name": unquote(name)}
    if generation is not None:
        query["ifGenerationMatch"] = generation
    return f"/upload/storage/v1/b/{bucket}/o?{urlencode(query, quote_via=quote)}"


def _ask(
    url: str, method: str, headers: Mapping[str, str], data: bytes
) -> tuple[int, dict[str, str], bytes]:
    request = Request(url, data or None, dict(headers), method=method)
    try:
        with urlopen(request) as response:
            return response.status, dict(response.headers), response.read()
    except HTTPError as error:
        with error:
            return error.code, dict(error.headers), error.read()


@contextmanager
def _running(words: list[str], port: int, environ: Mapping[str, str] = {}) -> Iterator[None]:
    """Run a server until the end of the block; enter it once the port is open."""
    with subprocess.Popen(
        ["env", *(f"{name}={value}" for name, value in environ.items()), *words],
        stdout=subprocess.DEVNULL,
    ) as process:
        try:
            _wait_for(port, process)
            yield
        finally:
            process.terminate()


def _wait_for(port: int, process: "subprocess.Popen[bytes]") -> None:
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        assert process.poll() is None, f"the server ended with {process.returncode}"
        time.sleep(0.05)
    raise AssertionError(f"port {port} was not open after {PATIENCE_S:.0f} s")
