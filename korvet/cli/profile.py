"""`korvet profile`: brokers, user and TLS under a name, so that commands need no options for them.

Rules
- The file is $XDG_CONFIG_HOME/korvet/profiles.json, by default below ~/.config. Only its user may
  read it.
- It has no password unless `create --store-password` is given: KORVET_PASSWORD or a file has it.
- Options and the environment have priority: with --brokers, --client-config, --redis, --data-dir,
  KORVET_BROKERS or KORVET_REDIS_URL no profile is used, unless --profile names one.
"""

import json
import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from korvet.cli import options as o
from korvet.cli import table_output
from korvet.cli.kafka_client import ClientSettings
from korvet.config.setting import StartError

app = o.group()
_PASSWORD = "sasl.password"
_Name = Annotated[str, typer.Argument(metavar="NAME", help="The profile's name.")]


class Profiles(NamedTuple):
    """The profiles of a file, and the name of the one in use."""

    path: Path
    current: str | None
    profiles: dict[str, dict[str, str]]

    @classmethod
    def load(cls) -> "Profiles":
        """Read the user's file; there are no profiles without one. Raises StartError."""
        home = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
        path = Path(home) / "korvet" / "profiles.json"
        try:
            with path.open() as file:
                mode = os.fstat(file.fileno()).st_mode
                stored = json.load(file)
            current, profiles = stored["current"], stored["profiles"]
        except FileNotFoundError:
            return cls(path, None, {})
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise StartError(f"{path} cannot be read: {error!r}. Correct or delete it.") from None
        if stat.S_IMODE(mode) & 0o077 and any(_PASSWORD in row for row in profiles.values()):
            raise StartError(f"{path} has a password that others may read: chmod 600 {path}")
        return cls(path, current, profiles)

    def find(self, name: str) -> dict[str, str]:
        """Return a profile. Raises StartError that names those there are."""
        if name not in self.profiles:
            known = ", ".join(sorted(self.profiles)) or "none"
            raise StartError(f"There is no profile {name!r} in {self.path}; there are: {known}.")
        return self.profiles[name]

    def save(self) -> None:
        """Replace the file with one that only the user may read."""
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        written = self.path.with_suffix(".new")
        with suppress(FileNotFoundError):
            written.unlink()
        descriptor = os.open(written, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            json.dump({"current": self.current, "profiles": self.profiles}, file, indent=2)
        written.replace(self.path)


def settings_of(name: str | None, brokers: str, environ: Mapping[str, str]) -> ClientSettings:
    """Return the settings of a profile, by default of the one in use.

    `brokers` and the environment's password have priority over its own.
    """
    found = Profiles.load()
    name = name or found.current or ""
    return ClientSettings.of(
        found.find(name), brokers, environ, f"profile {name} in {found.path}", is_profile=True
    )


@o.command(app, "create")
def create(
    name: _Name,
    brokers: Annotated[str, typer.Option("--brokers", metavar="HOST:PORT", help="Or several.")],
    user: Annotated[
        str | None, typer.Option("--user", metavar="NAME", help="The SASL user.")
    ] = None,
    mechanism: Annotated[
        str, typer.Option("--mechanism", metavar="NAME", help="The user's SASL mechanism.")
    ] = "SCRAM-SHA-256",
    tls: Annotated[bool, typer.Option("--tls", help="The listener has TLS.")] = False,
    ca: Annotated[
        Path | None, typer.Option("--ca", metavar="FILE", help="Its CA; implies --tls.")
    ] = None,
    certificate: Annotated[
        Path | None,
        typer.Option("--cert", metavar="FILE", help="The client's certificate; implies --tls."),
    ] = None,
    key: Annotated[
        Path | None, typer.Option("--key", metavar="FILE", help="The certificate's key.")
    ] = None,
    password_file: Annotated[
        Path | None,
        typer.Option("--password-file", metavar="FILE", help="A file with the user's password."),
    ] = None,
    store_password: Annotated[
        bool,
        typer.Option(
            "--store-password", help="Store the password, from stdin or a prompt, as it is."
        ),
    ] = False,
) -> None:
    """Create a profile, or replace it, and use it from now on.

    Without --password-file and --store-password the password is in KORVET_PASSWORD.
    """
    if user is None and (password_file or store_password):
        raise typer.BadParameter("whose password: give --user")
    files = {
        "ssl.ca.location": ca,
        "ssl.certificate.location": certificate,
        "ssl.key.location": key,
        "sasl.password.file": password_file,
    }
    given = {setting: str(path.absolute()) for setting, path in files.items() if path is not None}
    has_tls = tls or any(setting.startswith("ssl.") for setting in given)
    kind = ("sasl_" if user is not None else "") + ("ssl" if has_tls else "plaintext")
    given |= {"bootstrap.servers": brokers, "security.protocol": kind}
    if user is not None:
        given |= {"sasl.mechanism": mechanism, "sasl.username": user}
    if store_password:
        given[_PASSWORD] = o.read_password()
    ClientSettings.of(given, "", {}, f"profile {name}")
    found = Profiles.load()
    found.profiles[name] = given
    found._replace(current=name).save()
    table_output.line(f"profile {name} is in use; {found.path} has it")


@o.command(app, "use")
def use(name: _Name) -> None:
    """Use a profile from now on."""
    found = Profiles.load()
    found.find(name)
    found._replace(current=name).save()
    table_output.line(f"profile {name} is in use")


@o.command(app, "list")
def list_(out: o.Output) -> None:
    """List the profiles. Passwords are not shown."""
    found = Profiles.load()
    columns = ("profile", "in_use", "brokers", "protocol", "user", "password")
    out.listing(columns, [_row(found, name) for name in sorted(found.profiles)])


@o.command(app, "delete")
def delete(name: _Name) -> None:
    """Delete a profile."""
    found = Profiles.load()
    found.find(name)
    del found.profiles[name]
    found._replace(current=None if found.current == name else found.current).save()
    table_output.line(f"deleted profile {name}")


def _row(known: Profiles, name: str) -> table_output.Row:
    given: dict[str, Any] = known.profiles[name]
    password = "stored" if _PASSWORD in given else given.get("sasl.password.file")
    return (
        name,
        name == known.current,
        given.get("bootstrap.servers"),
        given.get("security.protocol"),
        given.get("sasl.username"),
        password,
    )
