"""The Unix socket of the embedded Redis: its path, and one command on it."""

import hashlib
import os
import socket
import stat
import tempfile
from pathlib import Path

from korvet.config.setting import StartError

# sockaddr_un holds 108 bytes on Linux and 104 on macOS, the closing zero included.
_LONGEST = 103
_PATIENCE_S = 5.0


def socket_path(data_dir: Path) -> Path:
    """Return the directory's socket: in it, or in a private directory if the path is long."""
    inside = data_dir / "redis.sock"
    if len(os.fsencode(inside)) <= _LONGEST:
        return inside
    name = hashlib.sha256(os.fsencode(data_dir.resolve())).hexdigest()[:16]
    runtime = Path(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir())
    private = runtime / f"korvet-{os.getuid()}"
    private.mkdir(mode=0o700, exist_ok=True)
    found = private.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise StartError(
            f"{private} must be a directory that only this user may enter: remove it, "
            "or choose a shorter --data-dir so that it is not needed."
        )
    path = private / f"{name}.sock"
    if len(os.fsencode(path)) > _LONGEST:
        raise StartError(f"The path {path} is too long for a socket: choose a shorter --data-dir.")
    return path


def ask(path: Path, command: bytes) -> bytes:
    """Return the first bytes of a server's reply; empty if there is no server."""
    try:
        with socket.socket(socket.AF_UNIX) as line:
            line.settimeout(_PATIENCE_S)
            line.connect(str(path))
            line.sendall(command + b"\r\n")
            return line.recv(4096)
    except OSError:
        return b""
