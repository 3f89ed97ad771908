"""A Redis Cluster of three masters on loopback, with a replica of one of them, for one session."""

import contextlib
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count

import redis
from redis.crc import key_slot

from tests.servers import binary

SLOTS = 16384


@dataclass
class TestCluster:
    """The ports of the nodes; the first three are masters in the beginning."""

    __test__ = False

    ports: list[int]
    processes: list["subprocess.Popen[str]"] = field(default_factory=list)

    @property
    def url(self) -> str:
        hosts = ",".join(f"127.0.0.1:{port}" for port in self.ports[:2])
        return f"redis+cluster://{hosts}"

    def client(self, node: int) -> redis.Redis:
        """A raw client of one node."""
        client = redis.Redis(port=self.ports[node], protocol=2)
        client.response_callbacks = {}  # type: ignore[assignment]
        return client

    def ask(self, node: int, *command: str | int) -> object:
        """The raw reply of one node."""
        with self.client(node) as client:
            return client.execute_command(*command)

    def ids(self) -> list[str]:
        """The node ids, in the order of the ports."""
        return [str(self.ask(n, "CLUSTER", "MYID"), "ascii") for n in range(len(self.ports))]  # type: ignore[arg-type]

    def owner(self, key: str) -> int:
        """Which node has the key's slot, as the first node knows it."""
        slot = key_slot(key.encode())
        for first, last, master, *_ in self.ask(0, "CLUSTER", "SLOTS"):  # type: ignore[attr-defined]
            if first <= slot <= last:
                return self.ports.index(master[1])
        raise LookupError(key)


def key_of_node(cluster: TestCluster, node: int) -> str:
    """Some key whose slot the node has."""
    return next(f"k{n}" for n in count() if cluster.owner(f"k{n}") == node)


def until(holds: Callable[[], bool]) -> None:
    """The condition holds; the nodes themselves take their time to agree."""
    while not holds():
        pass


def free_ports(n: int) -> list[int]:
    """Ports of loopback that nobody listens on."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(n)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


@contextmanager
def cluster() -> Iterator[TestCluster]:
    """Four nodes that agree: three masters and a replica of the first."""
    ports = free_ports(8)
    made = TestCluster(ports[:4])
    with tempfile.TemporaryDirectory(prefix="kv-") as directory, contextlib.ExitStack() as stack:
        for number, (port, bus) in enumerate(zip(ports[:4], ports[4:], strict=True)):
            process = stack.enter_context(_start(f"{directory}/{number}", port, bus))
            made.processes.append(process)
            stack.callback(process.kill)
        _join(made, ports[4:])
        yield made


@contextmanager
def _start(directory: str, port: int, bus: int) -> Iterator["subprocess.Popen[str]"]:
    program = binary("valkey")
    assert program
    subprocess.run(["mkdir", directory], check=True)
    options = {
        "port": port,
        "cluster-port": bus,
        "bind": "127.0.0.1",
        "dir": directory,
        "cluster-enabled": "yes",
        "cluster-node-timeout": 500,
        "repl-diskless-sync-delay": 0,
    }
    words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    with subprocess.Popen(
        [program, *words, "--save", ""], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert any("eady to accept connections" in line for line in process.stdout)
        yield process


def _join(made: TestCluster, buses: list[int]) -> None:
    third = SLOTS // 3 + 1
    for node in range(3):
        first, last = node * third, min((node + 1) * third, SLOTS) - 1
        made.ask(node, "CLUSTER", "ADDSLOTSRANGE", first, last)
    for node in range(1, 4):
        made.ask(node, "CLUSTER", "SET-CONFIG-EPOCH", node + 1)
        made.ask(0, "CLUSTER", "MEET", "127.0.0.1", made.ports[node], buses[node])
    until(lambda: all(b"known_nodes:4" in _info(made, node) for node in range(4)))
    first_id = made.ids()[0]
    until(lambda: first_id.encode() in bytes(made.ask(3, "CLUSTER", "NODES")))  # type: ignore[call-overload]
    made.ask(3, "CLUSTER", "REPLICATE", first_id)
    until(lambda: all(b"cluster_state:ok" in _info(made, node) for node in range(4)))
    until(lambda: b"master_link_status:up" in bytes(made.ask(3, "INFO", "replication")))  # type: ignore[call-overload]
    until(lambda: all(len(made.ask(n, "CLUSTER", "SLOTS")) == 3 for n in range(4)))  # type: ignore[arg-type]


def _info(made: TestCluster, node: int) -> bytes:
    return bytes(made.ask(node, "CLUSTER", "INFO"))  # type: ignore[call-overload]
