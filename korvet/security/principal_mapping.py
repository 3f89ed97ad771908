"""Map the name of a certificate to that of a principal, by ssl.principal.mapping.rules.

Rules
- RULE:PATTERN/REPLACEMENT/[LU] applies if the pattern matches the entire name: each match becomes
  the replacement, in which $1 is a group. L is lower case, U upper case. DEFAULT keeps the name.
- The first rule that applies decides. A name that none matches has no principal.
- A `/` or a backslash in pattern or replacement follows a backslash.
"""

import re

from korvet.config.setting import ConfigError

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
