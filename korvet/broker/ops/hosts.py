"""The names of the ops port: a page of another site must not read it through that site's name.

A site can let its name resolve to the address of this port; a browser then takes the port's pages
for pages of that site. An address has no such name.
"""

from ipaddress import ip_address
from urllib.parse import urlsplit

from korvet.config.broker_config import Config

WRONG_HOST = (
    "This port is not known as {!r}: open it by address or as localhost, or add the name to "
    "console.allowed.hosts.\n"
)


class HostNames:
    """The host names that requests may ask for."""

    def __init__(self, config: Config) -> None:
        addresses = [each.advertised or each.address for each in config.listeners]
        addresses += [config.ops] if config.ops is not None else []
        allowed = config.settings.words("console.allowed.hosts")
        names = {each.host for each in addresses} | set(allowed)
        # An IPv6 address has no name.
        self._names = {"localhost", *map(name_in, names)} - {""}

    def permit(self, host: str) -> bool:
        """Return whether a request with this Host header is served."""
        name = name_in(host)
        return name in self._names or is_address(name)


def name_in(host: str) -> str:
    """Return the name of a host, which may have a port, as names are compared; else nothing."""
    try:
        return (urlsplit(f"//{host}").hostname or "").rstrip(".")
    except ValueError:
        return ""


def is_address(host: str) -> bool:
    """Return whether the host is an IP address."""
    try:
        ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True
