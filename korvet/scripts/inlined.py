"""The Lua that appends, commits and acknowledges records in the steps of users.

- `library` is `lib.korvet` as one text, put in front of a script. Its last line is the whole code:
  the numbers of the user's lines in errors are those of the user's file, plus the header's lines.
- `functions` is the same as a Redis Function library, for FUNCTION LOAD. Its name has the version
  of the contract. A later version has functions with other names, so both can be loaded; a later
  text of the same version replaces the one before.
- `steps` is another Function library: the scripts that the Python library queues on a pipeline,
  with their KEYS and ARGV. Its name and its functions' names have a checksum of the code: a call
  by name runs this code or none, whatever other versions of Korvet have loaded.

The first lines have a checksum of the code; that of `library` and `functions` the version, too.
"""

import hashlib
import re
from functools import cache

from korvet.base.errors import ErrorCode
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
LIBRARIES = ("korvet_v", "korvet_steps_")
"""Begin the names of the Function libraries, of every version."""
_REGISTER = """
local function register(name, callback, flags)
  redis.register_function({ function_name = name, callback = callback, flags = flags })
end
"""
_FUNCTIONS = """register("korvet_append@", korvet.append_now, {})
register("korvet_commit@", korvet.commit_now, {})
register("korvet_acknowledge@", korvet.acknowledge_now, {})
register("korvet_partition_of@", function(_, args)
  return korvet.partition_of(args[1], args[2])
end, { "no-writes" })
"""

REFUSED = "KORVETREFUSED"
"""The code of the error reply that `raising` makes of a refusal."""
_STEPS = ("log.append", "schedule.add", "group.commit_owned", "share.acknowledge")
_STEP = """local function run(KEYS, ARGV)
{text}end
local function raise(KEYS, ARGV)
  local answer, names = run(KEYS, ARGV), {{ {names} }}
  if answer[1] == 0 then return answer end
  local at = answer[2]
  local offset = type(at) == "number" and at >= 0 and string.format(" %d", at) or ""
  return redis.error_reply("{code} " .. (names[answer[1]] or answer[1]) .. " " .. KEYS[1] .. offset)
end
"""
_FORGET = 'require("lib.clock").forget()'
_REGISTERED = """do
{step}register(library .. "_{name}", run, {{ {flags} }})
register(library .. "_{name}_raising", raise, {{ {flags} }})
end
"""
_PROBE = 'register(library, function() return 1 end, { "no-writes" })\n'


def version() -> int:
    """Return the version of the contract."""
    return int(header_lines(bundle.source(_NAME))[0].rpartition(" ")[2])


def library_name() -> str:
    """Return the name of the Function library."""
    return f"{LIBRARIES[0]}{version()}"


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
    return "\n".join(lines) + _REGISTER + _FUNCTIONS.replace("@", suffix)


@cache
def raising(script: str) -> str:
    """Return the text of a script, by name, as one whose refusals are error replies."""
    return _step(script, bundle.load(script).text) + "return raise(KEYS, ARGV)\n"


@cache
def steps() -> str:
    """Return the text for FUNCTION LOAD of the functions that take a script's KEYS and ARGV.

    As in `functions`, libraries are built when it is loaded.
    """
    name = steps_name()
    return f'#!lua name={name}\nlocal library = "{name}"\n{_steps_code()}'


@cache
def steps_name() -> str:
    """Return the name of that Function library, and of its function that returns 1."""
    digest = hashlib.sha1(_steps_code().encode(), usedforsecurity=False).hexdigest()
    return LIBRARIES[1] + digest[:12]


@cache
def step_name(script: str, *, raises: bool = False) -> str:
    """Return the name of a script's function, empty if it has none.

    With `raises` its refusals are error replies.
    """
    if script not in _STEPS:
        return ""
    own = f"{steps_name()}_{script.replace('.', '_')}"
    return f"{own}_raising" if raises else own


@cache
def _steps_code() -> str:
    libraries, scripts = bundle.share(_STEPS, _FORGET)
    code = [libraries, _REGISTER, _PROBE]
    for script, text in scripts.items():
        flags = '"allow-oom"' if bundle.load(script).contract.full == "always" else ""
        name = script.replace(".", "_")
        code.append(_REGISTERED.format(step=_step(script, text), flags=flags, name=name))
    return "".join(code)


def _step(script: str, text: str) -> str:
    contract = bundle.load(script).contract
    names = ", ".join(
        f'[{int(ErrorCode[name])}] = "{name}"' for name in (*contract.refuses, *contract.signals)
    )
    return _STEP.format(text=text, names=names, code=REFUSED)


def texts() -> dict[str, str]:
    """Return the texts for FUNCTION LOAD by the names of their libraries."""
    return {library_name(): functions(), steps_name(): steps()}


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
