"""A Redis Cluster of three masters on loopback, with replicas of some of them, for one session."""

import contextlib
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count

import redis
from redis.crc import key_slot

from tests.support.ports import free_ports
from tests.support.redis_servers import binary

SLOTS = 16384
PATIENCE = 60.0


@dataclass
class TestCluster:
    """The ports of the nodes; the first three are masters at the start."""

    __test__ = False

    ports: list[int]
    processes: list["subprocess.Popen[str]"] = field(default_factory=list)
    start: Callable[[int], None] = lambda node: None
    """Start a stopped node again, with its cluster configuration on disk."""

    @property
    def url(self) -> str:
        hosts = ",".join(f"127.0.0.1:{port}" for port in self.ports[:2])
        return f"redis+cluster://{hosts}"

    def client(self, node: int) -> redis.Redis:
        """Return a client of one node that does not convert replies."""
        client = redis.Redis(port=self.ports[node], protocol=2)
        client.response_callbacks = {}  # type: ignore[assignment]
        return client

    def ask(self, node: int, *command: str | int) -> object:
        """Return the raw reply of one node to a command."""
        with self.client(node) as client:
            return client.execute_command(*command)

    def is_master(self, node: int) -> bool:
        """Return whether the node's INFO names it a master."""
        return b"role:master" in bytes(self.ask(node, "INFO", "replication"))  # type: ignore[call-overload]

    def is_copied_to(self, node: int) -> bool:
        """Return whether the node is a replica that has all of its master's data."""
        pipeline = b"master_link_status:up"
        return pipeline in bytes(self.ask(node, "INFO", "replication"))  # type: ignore[call-overload]

    def ids(self) -> list[str]:
        """Return the node ids, in the order of the ports."""
        return [str(self.ask(n, "CLUSTER", "MYID"), "ascii") for n in range(len(self.ports))]  # type: ignore[arg-type]

    def agree(self) -> None:
        """Wait until all nodes have the same slots, of the same epoch.

        A slot that moves twice before that can get two owners of one epoch. The nodes resolve that
        so that neither of them has the slot.
        """
        nodes = range(len(self.ports))
        until(lambda: len({_epoch(_info(self, node)) for node in nodes}) == 1)
        until(lambda: len({str(self.ask(node, "CLUSTER", "SLOTS")) for node in nodes}) == 1)

    def move(self, key: str, source: int, target: int) -> None:
        """Move the key's slot and all of its keys to another node."""
        slot, ids = key_slot(key.encode()), self.ids()
        self.ask(target, "CLUSTER", "SETSLOT", slot, "IMPORTING", ids[source])
        self.ask(source, "CLUSTER", "SETSLOT", slot, "MIGRATING", ids[target])
        with self.client(source) as client:
            while keys := client.execute_command("CLUSTER", "GETKEYSINSLOT", slot, 100):
                to = ("127.0.0.1", self.ports[target], "", 0, 5000)
                client.execute_command("MIGRATE", *to, "KEYS", *keys)
        for node in (target, source):
            self.ask(node, "CLUSTER", "SETSLOT", slot, "NODE", ids[target])
        self.agree()

    def owner(self, key: str) -> int:
        """Return the node that has the key's slot, by the first node's CLUSTER SLOTS."""
        slot = key_slot(key.encode())
        for first, last, master, *_ in self.ask(0, "CLUSTER", "SLOTS"):  # type: ignore[attr-defined]
            if first <= slot <= last:
                return self.ports.index(master[1])
        raise LookupError(key)


def key_of_node(cluster: TestCluster, node: int) -> str:
    """Return a key whose slot the node has."""
    return next(f"k{n}" for n in count() if cluster.owner(f"k{n}") == node)


def until(holds: Callable[[], bool]) -> None:
    """Wait until the condition holds. Raises AssertionError after PATIENCE seconds."""
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, f"not within {PATIENCE} s"
        time.sleep(0.005)


@contextmanager
def cluster(
    replicated: Sequence[int] = (0,), options: Mapping[str, str] | None = None
) -> Iterator[TestCluster]:
    """Start three masters and a replica of each of those named; yield once all nodes agree."""
    count = 3 + len(replicated)
    ports = free_ports(2 * count)
    made = TestCluster(ports[:count])
    with tempfile.TemporaryDirectory(prefix="kv-") as directory, contextlib.ExitStack() as stack:

        def start(node: int) -> None:
            home, port, bus = f"{directory}/{node}", ports[node], ports[count + node]
            process = stack.enter_context(_start(home, port, bus, options or {}))
            stack.callback(process.kill)
            made.processes[node : node + 1] = [process]

        made.start = start
        for node in range(count):
            start(node)
        _join(made, ports[count:], replicated)
        yield made


@contextmanager
def _start(
    directory: str, port: int, bus: int, others: Mapping[str, str]
) -> Iterator["subprocess.Popen[str]"]:
    program = binary("valkey")
    assert program
    os.makedirs(directory, exist_ok=True)
    options = {
        "port": port,
        "cluster-port": bus,
        "bind": "127.0.0.1",
        "dir": directory,
        "cluster-enabled": "yes",
        "cluster-node-timeout": 500,
        "repl-diskless-sync-delay": 0,
        **others,
    }
    words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    with subprocess.Popen(
        [program, *words, "--save", ""], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert any("eady to accept connections" in line for line in process.stdout)
        yield process


def _join(made: TestCluster, buses: list[int], replicated: Sequence[int]) -> None:
    count = len(made.ports)
    third = SLOTS // 3 + 1
    for node in range(3):
        first, last = node * third, min((node + 1) * third, SLOTS) - 1
        made.ask(node, "CLUSTER", "ADDSLOTSRANGE", first, last)
    for node in range(1, count):
        made.ask(node, "CLUSTER", "SET-CONFIG-EPOCH", node + 1)
        made.ask(0, "CLUSTER", "MEET", "127.0.0.1", made.ports[node], buses[node])
    nodes, replicas = range(count), list(enumerate(replicated, 3))
    known = f"known_nodes:{count}".encode()
    until(lambda: all(known in _info(made, node) for node in nodes))
    ids = made.ids()
    until(
        lambda: all(
            ids[of].encode() in _cluster_reply(made, node, "NODES") for node, of in replicas
        )
    )
    for node, of in replicas:
        made.ask(node, "CLUSTER", "REPLICATE", ids[of])
    until(lambda: all(b"cluster_state:ok" in _info(made, node) for node in nodes))
    until(lambda: all(made.is_copied_to(node) for node, _ in replicas))
    until(lambda: all(len(made.ask(n, "CLUSTER", "SLOTS")) == 3 for n in nodes))  # type: ignore[arg-type]


def _epoch(info: bytes) -> bytes:
    (line,) = (each for each in info.split() if each.startswith(b"cluster_current_epoch:"))
    return line


def _info(made: TestCluster, node: int) -> bytes:
    return _cluster_reply(made, node, "INFO")


def _cluster_reply(made: TestCluster, node: int, what: str) -> bytes:
    return bytes(made.ask(node, "CLUSTER", what))  # type: ignore[call-overload, no-any-return]
