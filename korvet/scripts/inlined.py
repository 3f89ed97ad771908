"""The Lua with which users' scripts append records and commit offsets: `lib.korvet` as one text.

- `library` is put in front of a script. Its last line is the whole code: the numbers of the user's
  lines in errors are those of the user's file, plus the lines of the header.
- `functions` is the same as a Redis Function library, for FUNCTION LOAD. Its name has the version
  of the contract. A later version has functions with other names, so both can be loaded; a later
  text of the same version replaces the one before.

The first line of both has the version and a checksum of the code.
"""

import hashlib
import re
from functools import cache

from korvet.scripts import bundle
from korvet.scripts.contract import header_lines

_NAME = "lib.korvet"
_WITHOUT = frozenset(
    {
        # Layouts that lib.korvet refuses, and the shorter forms of an append's arguments.
        "lib.batch_entries",
        "lib.byte_entries",
        "lib.columnar_entries",
        # It appends without a producer id.
        "lib.producer_sequence",
        "lib.producer_state",
        # It commits for members of consumer groups only.
        "lib.streams_topology",
    }
)
LIBRARIES = "korvet_v"
"""Begins the name of every version's Function library."""
_FUNCTIONS = """
local function register(name, callback, flags)
  redis.register_function({ function_name = name, callback = callback, flags = flags })
end
register("korvet_append@", korvet.append_now, {})
register("korvet_commit@", korvet.commit_now, {})
register("korvet_partition_of@", function(_, args)
  return korvet.partition_of(args[1], args[2])
end, { "no-writes" })
"""


def version() -> int:
    """Return the version of the contract."""
    return int(header_lines(bundle.source(_NAME))[0].rpartition(" ")[2])


def library_name() -> str:
    """Return the name of the Function library."""
    return f"{LIBRARIES}{version()}"


@cache
def checksum() -> str:
    """Return the SHA-1 of the code."""
    return hashlib.sha1(_code().encode(), usedforsecurity=False).hexdigest()


@cache
def library() -> str:
    """Return the text that is put in front of a user's script; it ends with a line end."""
    contract = header_lines(bundle.source(_NAME))[1:]
    lines = [_title(), *(f"--{line}" for line in contract)]
    return "\n".join([*lines, f"local korvet = {_built()}"]) + "\n"


def functions() -> str:
    """Return the text for FUNCTION LOAD.

    It is built when it is loaded, and not at each call as in a script: of its libraries only
    lib.clock keeps anything between calls, and forgets it.
    """
    suffix = "" if version() == 1 else f"_v{version()}"
    lines = [f"#!lua name={library_name()}", _title()]
    lines.append(f"local korvet = {_built()}")
    return "\n".join(lines) + _FUNCTIONS.replace("@", suffix)


def checksum_in(text: str) -> str | None:
    """Return the checksum that a text names, None if it names none."""
    found = re.search(r"^-- korvet library v\d+ ([0-9a-f]{40})$", text, re.MULTILINE)
    return found and found[1]


def _title() -> str:
    return f"-- korvet library v{version()} {checksum()}"


def _built() -> str:
    return f"(function() {_code()} end)()"


@cache
def _code() -> str:
    return bundle.inline(_NAME, _WITHOUT)
