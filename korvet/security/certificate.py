"""Names of a certificate; its subject as text, as Java writes RFC 2253: Kafka's client name.

Rules
- The last attribute comes first. CN, C, L, ST, O, OU, STREET, DC and UID have names; any other type
  is its OID.
- A value is text if its type has a name and the value is a string; else it is `#` and the hex of
  its DER.
- Backslashes escape , = + < > # ; " and backslash everywhere in a value, and spaces at its ends.

`PrincipalMapping` makes a principal's name of it, by ssl.principal.mapping.rules:
- RULE:PATTERN/REPLACEMENT/[LU] applies if the pattern matches the entire name: each match becomes
  the replacement, in which $1 is a group. L is lower case, U upper case. DEFAULT keeps the name.
- The first rule that applies decides. A name that none matches has no principal.
- A `/` or a backslash in pattern or replacement follows a backslash.
"""

import re

from korvet.config.setting import ConfigError

_VERSION, _EXTENSIONS = 0xA0, 0xA3
_ALTERNATIVE_NAMES = bytes.fromhex("0603551d11")
_NAMES = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
_STRINGS = {0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E, 0x1C}
"""Tags of UTF8, Printable, T61, IA5, General, BMP and Universal strings."""
_ESCAPED = ',=+<>#;"\\'
_BLANK = " \r"


def subject_of(certificate: bytes) -> str:
    """Return the subject of a certificate in DER. Raises ValueError if it is not one."""
    return name_text(subject_der(certificate))


def subject_der(certificate: bytes) -> bytes:
    """Return the subject of a certificate, as encoded. Raises ValueError if it is not one."""
    return _fields(certificate)[4]  # after serial, signature algorithm, issuer and validity


def alternative_names(certificate: bytes) -> set[bytes]:
    """Return the subject alternative names of a certificate, as encoded."""
    for field in _fields(certificate):
        if field[0] == _EXTENSIONS:
            for extension in _parts(_parts(field)[0]):
                oid, *_, value = _parts(extension)
                if oid == _ALTERNATIVE_NAMES:
                    return set(_parts(_element(value, 0)[1]))
    return set()


def _fields(certificate: bytes) -> list[bytes]:
    """Return the fields of a certificate from its serial number on. Raises ValueError."""
    fields = _parts(_parts(certificate)[0])
    if fields and fields[0][0] == _VERSION:
        del fields[0]
    if len(fields) < 6:
        raise ValueError("not a certificate")
    return fields


def name_text(name: bytes) -> str:
    """Return a Name in DER as text."""
    return ",".join("+".join(map(_attribute, _parts(part))) for part in reversed(_parts(name)))


def _attribute(encoded: bytes) -> str:
    oid, value = _parts(encoded)
    kind = _dotted(_element(oid, 0)[1])
    if kind in _NAMES and value[0] in _STRINGS:
        return f"{_NAMES[kind]}={_escaped(_element(value, 0)[1].decode('utf-8', 'replace'))}"
    return f"{_NAMES.get(kind, kind)}=#{value.hex()}"


def _escaped(text: str) -> str:
    """Escape a value: special characters anywhere, spaces at its start and end."""
    first = len(text) - len(text.lstrip(_BLANK))
    last = len(text.rstrip(_BLANK))
    return "".join(
        f"\\{char}"
        if char in _ESCAPED or (char in _BLANK and not first <= at < last)
        else "\\00"
        if char == "\0"
        else char
        for at, char in enumerate(text)
    )


def _dotted(oid: bytes) -> str:
    numbers: list[int] = []
    number = 0
    for byte in oid:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    if not numbers:
        raise ValueError("an empty object identifier")
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def _parts(encoded: bytes) -> list[bytes]:
    """Return the elements inside an element, as encoded. Raises ValueError."""
    _, data, _ = _element(encoded, 0)
    found, at = [], 0
    while at < len(data):
        _, _, end = _element(data, at)
        found.append(data[at:end])
        at = end
    return found


def _element(data: bytes, at: int) -> tuple[int, bytes, int]:
    """Return tag, content and end of the element at that position. Raises ValueError."""
    if at + 2 > len(data):
        raise ValueError("DER ends early")
    tag, length = data[at], data[at + 1]
    start = at + 2
    if length & 0x80:
        size = length & 0x7F
        if not 1 <= size <= 4:
            raise ValueError("DER without a length")
        length = int.from_bytes(data[start : start + size], "big")
        start += size
    if start + length > len(data):
        raise ValueError("DER ends early")
    return tag, data[start : start + length], start + length


_RULE = re.compile(
    r"\s*(?:(?P<default>DEFAULT)"
    r"|RULE:(?P<pattern>(?:\\.|[^\\/])*)/(?P<replacement>(?:\\.|[^\\/])*)/(?P<case>[LU]?))"
    r"\s*(?:,|$)",
    re.DOTALL,
)
_IN_REPLACEMENT = re.compile(r"\\(?P<literal>.)|\$(?P<number>\d)|\$\{(?P<name>\w+)\}", re.DOTALL)
SETTING = "ssl.principal.mapping.rules"


class _Rule:
    """A rule; without a pattern it is DEFAULT."""

    def __init__(self, pattern: str | None, replacement: str = "", case: str = "") -> None:
        self._case = case
        self._replacement = replacement
        try:
            # Java writes a named group without the P.
            self._pattern = pattern and re.compile(re.sub(r"\(\?<(?=\w)", "(?P<", pattern), re.A)
        except re.error as error:
            raise ConfigError(f"{SETTING}: {pattern!r} is not a pattern: {error}.") from None

    def apply(self, name: str) -> str | None:
        """Return the name of the principal, None if the rule does not match."""
        if not self._pattern:
            return name
        if not self._pattern.fullmatch(name):
            return None
        found = self._pattern.sub(self._replaced, name)
        return {"L": found.lower, "U": found.upper}.get(self._case, lambda: found)()

    def _replaced(self, match: re.Match[str]) -> str:
        def one(part: re.Match[str]) -> str:
            if part["literal"]:
                return part["literal"]
            if part["name"]:
                return match[part["name"]] or ""
            number = int(part["number"])
            # As in Kafka, a number without a group is text.
            return (match[number] or "") if number <= match.re.groups else part[0]

        return _IN_REPLACEMENT.sub(one, self._replacement)


class PrincipalMapping:
    """The rules of one listener, in order. Raises ConfigError for an invalid rule."""

    def __init__(self, text: str) -> None:
        self._rules: list[_Rule] = []
        text = text.strip() or "DEFAULT"
        at = 0
        while at < len(text):
            match = _RULE.match(text, at)
            if match is None:
                raise ConfigError(
                    f"{SETTING} must be RULE:PATTERN/REPLACEMENT/[LU] or DEFAULT, separated by "
                    f"commas, not {text[at : at + 60]!r}."
                )
            self._rules.append(_Rule(match["pattern"], match["replacement"] or "", match["case"]))
            at = match.end()

    def apply(self, name: str) -> str | None:
        """Return the name of the principal, None if no rule matches."""
        for rule in self._rules:
            found = rule.apply(name)
            if found is not None:
                return found
        return None
