"""`korvet quickstart`: the tour, with the commands of the clients on this machine."""

import shutil
import socket
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from shlex import quote
from typing import Annotated, NamedTuple

import typer

from korvet.cli import options as o
from korvet.cli import table_output
from korvet.cli.brokers import live
from korvet.cli.redis_target import running
from korvet.config.broker_config import Config
from korvet.embedded_redis.socket import socket_path
from korvet.scripts.keys import Keys
from korvet.store.errors import StoreError
from korvet.store.sync_store import SyncStore

_TOPIC = "tour"
_DEFAULT = "127.0.0.1:9092"
_PLAIN = "PLAINTEXT://"


class _Step(NamedTuple):
    """A step of the tour: what it shows, and the commands."""

    shows: str
    commands: tuple[str, ...]


def quickstart(
    target: o.Target,
    bootstrap: Annotated[
        str | None,
        typer.Option(
            "--bootstrap",
            metavar="HOST:PORT",
            help=f"The broker's address. Default: that of a running one, else {_DEFAULT}.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Show the tour with the commands of the clients on this machine.

    It prints commands and runs none of them.
    """
    korvet = _Words(target)
    bootstrap = bootstrap or _running(target) or _DEFAULT
    steps = [
        *_ours(korvet, _answers(bootstrap)),
        *_clients(bootstrap),
        *_redis(target),
        *_python(korvet, bootstrap),
        _end(korvet),
    ]
    for number, step in enumerate(steps, start=1):
        table_output.line(f"{number}. {step.shows}")
        for command in step.commands:
            table_output.line(f"   {command}")
        table_output.line("")


def _running(target: o.Target) -> str | None:
    """Return the address of a broker on the target's Redis; None without one for plain clients."""
    url = running(target)
    try:
        if url is None:
            return None
        with SyncStore.connect(url) as store:
            listeners = [str(row[2]) for row in live(store, target.namespace)]
    except StoreError:
        return None
    found = [each for row in listeners for each in row.split(",") if each.startswith(_PLAIN)]
    return found[0].removeprefix(_PLAIN) if found else None


def _answers(bootstrap: str) -> bool:
    """Return whether a process listens at the address. Raises BadParameter if it is none."""
    host, _, port = bootstrap.rpartition(":")
    if not host or not port.isdigit():
        raise typer.BadParameter(f"--bootstrap must be HOST:PORT, not {bootstrap!r}")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=1).close()
    except OSError:
        return False
    return True


def _ours(korvet: "_Words", is_running: bool) -> Iterator[_Step]:
    if not is_running:
        yield _Step("Start a broker, in another terminal.", (korvet(""),))
    yield _Step(
        "Create a topic, append two records, and read them. These commands need no broker.",
        (
            korvet(f"topics create {_TOPIC} --partitions 1"),
            "printf 'k1:hello\\nk2:world\\n' | " + korvet(f"produce {_TOPIC} --key-separator :"),
            korvet(f"consume {_TOPIC} -f '%o %k %s\\n'"),
        ),
    )


def _clients(bootstrap: str) -> Iterator[_Step]:
    """Yield a step for each program that speaks Kafka's protocol."""
    for name in ("kcat", "kafkacat"):
        if shutil.which(name):
            yield _Step(
                f"The same topic with {name}.",
                (
                    f"printf 'k3:from {name}\\n' | {name} -b {bootstrap} -P -t {_TOPIC} -K:",
                    f"{name} -b {bootstrap} -C -t {_TOPIC} -e -f '%o %k %s\\n'",
                ),
            )
            break
    for ending in ("", ".sh"):
        producer, consumer = f"kafka-console-producer{ending}", f"kafka-console-consumer{ending}"
        if shutil.which(producer) and shutil.which(consumer):
            at = f"--bootstrap-server {bootstrap} --topic {_TOPIC}"
            yield _Step(
                "The same topic with Kafka's own tools.",
                (
                    f"echo 'from Kafka' | {producer} {at}",
                    f"{consumer} {at} --from-beginning --timeout-ms 5000",
                    f"kafka-topics{ending} --bootstrap-server {bootstrap} --describe",
                ),
            )
            break
    if shutil.which("rpk"):
        yield _Step(
            "The same topic with rpk.",
            (f"rpk topic consume {_TOPIC} -X brokers={bootstrap} --num 2",),
        )


def _redis(target: o.Target) -> Iterator[_Step]:
    """Yield a step that reads and appends with a client of Redis."""
    name = next(filter(shutil.which, ("redis-cli", "valkey-cli")), None)
    if name is None:
        return
    # A URL may hold a password: it is not printed.
    at = "-u REDIS_URL" if target.redis else f"-s {socket_path(Path(target.data_dir))}"
    stream = Keys(target.namespace).partition(_TOPIC, 0).stream
    yield _Step(
        "The records in Redis, and one that Redis appends: Kafka's clients receive it too.",
        (
            f"{name} {at} XRANGE {stream} - +",
            f"{name} {at} XADD {stream} '*' key k4 value 'from Redis'",
        ),
    )


def _python(korvet: "_Words", bootstrap: str) -> Iterator[_Step]:
    """Yield a step for the first of the Python clients that is installed."""
    config = f"{{'bootstrap.servers': '{bootstrap}', 'group.id': 'tour', "
    confluent = (
        "import confluent_kafka as k; "
        f"c = k.Consumer({config}'auto.offset.reset': 'earliest'}}); "
        f"c.subscribe(['{_TOPIC}']); print([m.value() for m in c.consume(2, 10)]); c.close()"
    )
    kafka = (
        "import kafka; "
        f"c = kafka.KafkaConsumer('{_TOPIC}', bootstrap_servers='{bootstrap}', group_id='tour', "
        "auto_offset_reset='earliest', consumer_timeout_ms=5000); print([m.value for m in c])"
    )
    for module, package, code in (
        ("confluent_kafka", "confluent-kafka", confluent),
        ("kafka", "kafka-python", kafka),
    ):
        if find_spec(module) is not None:
            yield _Step(
                f"A consumer group with {package}.",
                (f'{sys.executable} -c "{code}"', korvet("groups describe tour")),
            )
            return


def _end(korvet: "_Words") -> _Step:
    return _Step(
        "Look at the log, and delete the topic.",
        (
            korvet(f"topics describe {_TOPIC}"),
            korvet("top"),
            korvet("doctor"),
            korvet(f"topics delete {_TOPIC}"),
        ),
    )


class _Words:
    """The words that run this program on the same Redis."""

    def __init__(self, target: o.Target) -> None:
        found = shutil.which("korvet")
        is_ours = found is not None and Path(found).parent == Path(sys.executable).parent
        self._program = "korvet" if is_ours else f"{sys.executable} -m korvet"
        options = []
        if target.redis is not None:
            options += ["--redis", "REDIS_URL"]  # it may hold a password
        elif target.data_dir != Config().data_dir:
            options += ["--data-dir", quote(target.data_dir)]
        if target.namespace != Config().namespace:
            options += ["--namespace", target.namespace]
        self._options = options

    def __call__(self, command: str) -> str:
        """Return the words of a command."""
        return " ".join(word for word in (self._program, *self._options, command) if word)
