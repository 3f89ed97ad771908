"""Check the recipes of deploy/: lint, render, and run their steps outside containers.

No container and no cluster is started: docs/operations/deploy.md says so.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from compose_spec import ComposeSpecification
from confluent_kafka import Producer

from tests.interop.brokers import Broker
from tests.support.ports import free_port
from tests.support.programs import program
from tests.support.raw_client import until
from tests.support.redis_servers import TestServer, server

pytestmark = pytest.mark.interop

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
DOCKERFILE = DEPLOY / "docker/Dockerfile"
COMPOSE = DEPLOY / "compose/compose.yaml"
CHART = DEPLOY / "helm/korvet"
KUBERNETES = "1.31.0"
REDIS = "redis.url=redis://redis:6379"
PORT = re.compile(r"(?:0\.0\.0\.0|127\.0\.0\.1|localhost|korvet):(\d+)")


def run(*words: str, **options: Any) -> str:
    """Run a program, which must succeed, and return its standard output."""
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, **options)
    assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
    return str(done.stdout)


def with_free_ports(words: Sequence[str]) -> list[str]:
    """Return the options of a recipe with this machine's address and free ports."""
    ports: dict[str, int] = {}

    def local(found: re.Match[str]) -> str:
        return f"127.0.0.1:{ports.setdefault(found[1], free_port())}"

    return [PORT.sub(local, word) for word in words]


class Recipe(Broker):
    """A broker that is started with the options of a recipe."""

    def __init__(self, folder: Path, words: Sequence[str], executable: str) -> None:
        super().__init__(folder)
        self.words = with_free_ports(words)
        self.executable = executable
        addresses = [self.words[at + 1] for at, word in enumerate(self.words) if word == "--listen"]
        self.bootstrap = addresses[0].rpartition("/")[2]
        self.ops = int(self.words[self.words.index("--ops") + 1].rpartition(":")[2])

    def start(self, **environment: str) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "stderr.log").open("a") as log:
            self._process = subprocess.Popen(
                [self.executable, *self.words],
                env={**os.environ, **environment},
                cwd=self.folder,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        self.address = self._first_line().removeprefix("listening on ").strip()

    def takes_a_record(self) -> bool:
        """Return whether a real client's record is acknowledged."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "log_level": 0})
        producer.produce("packaged", b"value")
        return int(producer.flush(30)) == 0


def korvet() -> str:
    return str(Path(sys.executable).with_name("korvet"))


# Dockerfile.


def instructions() -> list[tuple[str, str]]:
    """Return the Dockerfile's instructions in order: name and arguments."""
    text = re.sub(r"^#.*\n", "", DOCKERFILE.read_text(), flags=re.MULTILINE)
    lines = text.replace("\\\n", " ").splitlines()
    return [(line.split(None, 1)[0], line.split(None, 1)[1]) for line in lines if line.strip()]


def argument(name: str) -> list[str]:
    """Return the JSON list of an instruction; HEALTHCHECK's is after CMD."""
    (found,) = [rest for each, rest in instructions() if each == name]
    words: list[str] = json.loads(found[found.index("[") :])
    return words


class Image:
    """The Dockerfile's steps, run in a folder instead of the root of a container."""

    PATHS = ("/wheels", "/opt/korvet", "/src", "/var/lib/korvet")

    def __init__(self, root: Path) -> None:
        self.root = root
        self.folder = root
        self.arguments: dict[str, str] = {}
        self.skipped: list[str] = []

    def here(self, text: str) -> str:
        """Replace paths of the image by paths below the folder."""
        for path in self.PATHS:
            text = re.sub(rf"(?<![\w.]){path}\b", f"{self.root}{path}", text)
        return text

    def build(self) -> None:
        for name, rest in instructions():
            match name:
                case "ARG":
                    key, _, value = rest.partition("=")
                    self.arguments[key] = value
                case "WORKDIR":
                    self.folder = Path(self.here(rest))
                    self.folder.mkdir(parents=True, exist_ok=True)
                case "COPY":
                    self._copy(rest.split())
                case "RUN":
                    self._run(rest)

    def _copy(self, words: list[str]) -> None:
        if words[0].startswith("--from="):
            assert words[1] == words[2], "one folder has all stages"
            return
        *sources, target = words
        goal = Path(self.here(target)) if target.startswith("/") else self.folder / target
        for source in sources:
            found = ROOT / source
            if found.is_dir():
                ignored = shutil.ignore_patterns("__pycache__")
                shutil.copytree(found, goal, ignore=ignored)
            else:
                goal.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(found, goal / found.name if target == "./" else goal)

    def _run(self, step: str) -> None:
        if "useradd" in step:  # it would change this machine
            self.skipped.append(step)
            return
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        environment = {**os.environ, **self.arguments, "PATH": path}
        run("sh", "-ec", self.here(step), cwd=self.folder, env=environment)


def test_the_dockerfile_passes_its_linter() -> None:
    run(program("hadolint"), str(DOCKERFILE))


def test_the_dockerfiles_steps_make_a_broker_that_is_healthy(tmp_path: Path) -> None:
    image = Image(tmp_path / "image")
    image.build()
    assert len(image.skipped) == 1
    installed = Path(image.here("/opt/korvet"))
    before = {path: path.stat().st_mtime_ns for path in installed.rglob("*")}
    broker = Recipe(
        tmp_path / "run",
        [image.here(word) for word in argument("CMD")],
        str(installed / "bin" / argument("ENTRYPOINT")[0]),
    )
    environment = dict(
        word.split("=", 1)
        for name, rest in instructions() if name == "ENV"
        for word in shlex.split(rest) if not word.startswith("PATH=")
    )  # fmt: skip
    broker.start(**environment)
    try:
        check = argument("HEALTHCHECK")
        assert check[-1] in str(argument("CMD"))
        words = [str(installed / "bin/python"), image.here(check[1]), str(broker.ops)]
        assert until(lambda: subprocess.run(words, timeout=60, check=False).returncode == 0)
        assert broker.takes_a_record()
    finally:
        assert broker.stop() == 0
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1 and "does not answer" in done.stderr
    after = {path: path.stat().st_mtime_ns for path in installed.rglob("*")}
    assert after == before, "a broker writes nothing to its root file system"


def test_only_what_the_dockerfile_copies_is_sent_to_its_build() -> None:
    sent = {line[1:] for line in (ROOT / ".dockerignore").read_text().split() if line[0] == "!"}
    copied = {
        source
        for name, rest in instructions()
        if name == "COPY" and not rest.startswith("--from")
        for source in rest.split()[:-1]
    }
    assert sent == copied


# Compose.


def test_the_compose_file_is_valid_and_its_mounts_exist() -> None:
    content = yaml.safe_load(COMPOSE.read_text())
    ComposeSpecification.model_validate(content)
    named = content["volumes"]
    for service in content["services"].values():
        assert ":" in service["image"] or "build" in service, "other images have a version"
        for mount in service.get("volumes", []):
            source = mount.split(":")[0]
            assert source in named or (COMPOSE.parent / source).exists(), mount
    build = content["services"]["korvet"]["build"]
    assert (COMPOSE.parent / build["context"] / build["dockerfile"]).resolve() == DOCKERFILE


def test_the_compose_files_broker_serves_both_listeners(
    tmp_path: Path, redis_server: TestServer
) -> None:
    service = yaml.safe_load(COMPOSE.read_text())["services"]["korvet"]
    broker = Recipe(tmp_path, service["command"], korvet())
    variables = dict.fromkeys(service["environment"], redis_server.url)
    broker.start(**variables)
    try:
        assert broker.takes_a_record()
        broker.bootstrap = broker.words[3].rpartition("/")[2]
        assert broker.takes_a_record()
    finally:
        assert broker.stop() == 0


def test_the_compose_files_prometheus_takes_its_configuration(tmp_path: Path) -> None:
    folder = COMPOSE.parent
    text = (folder / "prometheus.yml").read_text()
    rules = str(DEPLOY / "prometheus/korvet.rules.yml")
    checked = tmp_path / "prometheus.yml"
    checked.write_text(text.replace("/etc/prometheus/korvet.rules.yml", rules))
    run(program("promtool"), "check", "config", str(checked))
    jobs = {job["job_name"] for job in yaml.safe_load(text)["scrape_configs"]}
    assert "korvet" in jobs, "the alert rules expect it"


# systemd.


def test_the_units_configuration_starts_a_broker(tmp_path: Path) -> None:
    file = tmp_path / "korvet.toml"
    text = (DEPLOY / "systemd/korvet.toml").read_text()
    text = text.replace("/var/lib/korvet", str(tmp_path / "data"))
    for name in ("listen", "ops"):
        text = re.sub(rf'(?m)^{name} = ".*"$', f'{name} = "127.0.0.1:0"', text)
    file.write_text(text)
    broker = Broker(tmp_path)
    broker._process = subprocess.Popen(
        [korvet(), "--config", str(file)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    assert broker._first_line()
    assert broker.stop() == 0


# Helm.


def rendered(*sets: str) -> list[dict[str, Any]]:
    """Return the manifests of the chart with these values."""
    words = [program("helm"), "template", "demo", str(CHART), "--namespace", "apps"]
    words += ["--kube-version", KUBERNETES]
    for each in sets:
        words += ["--set", each]
    return [each for each in yaml.safe_load_all(run(*words)) if each]


FULL = (
    REDIS,
    "serviceMonitor.enabled=true",
    "prometheusRule.enabled=true",
    r"settings.num\.partitions=6",
    "listeners[0].name=SASL",
    "listeners[0].protocol=SASL_SSL",
    "listeners[0].port=9094",
    "listeners[0].advertise=b$(NODE_ID).example.org:9094",
    "listeners[1].name=PLAINTEXT",
    "listeners[1].protocol=PLAINTEXT",
    "listeners[1].port=9092",
    "secretMounts[0].name=tls",
    "secretMounts[0].secretName=korvet-tls",
)


def test_the_chart_passes_helms_linter() -> None:
    run(program("helm"), "lint", "--strict", "--set", REDIS, "--kube-version", KUBERNETES,
        str(CHART))  # fmt: skip


@pytest.mark.parametrize("sets", [(REDIS,), FULL], ids=["defaults", "all"])
def test_the_manifests_follow_the_schemas_of_kubernetes(sets: tuple[str, ...]) -> None:
    manifests = rendered(*sets)
    kinds = {each["kind"] for each in manifests}
    assert {"StatefulSet", "Service", "PodDisruptionBudget", "ServiceAccount"} <= kinds
    for each in manifests:
        if not each["apiVersion"].startswith("monitoring.coreos.com/"):
            kubernetes_validate.validate(each, KUBERNETES, strict=True)


def test_without_a_redis_the_chart_is_refused() -> None:
    with pytest.raises(AssertionError, match=r"set redis\.url or redis\.existingSecret"):
        rendered()


@pytest.mark.parametrize(
    "value", ["replicas=0", "redis.url=redis", "listeners[0].protocol=TLS", "unknown=1"]
)
def test_wrong_values_are_refused_by_the_schema(value: str) -> None:
    with pytest.raises(AssertionError, match="values don't meet the specifications"):
        rendered(REDIS, value)


def test_each_broker_advertises_its_own_address_on_each_listener() -> None:
    (found,) = [each for each in rendered(*FULL) if each["kind"] == "StatefulSet"]
    words = found["spec"]["template"]["spec"]["containers"][0]["args"]
    advertised = [words[at + 1] for at, word in enumerate(words) if word == "--advertise"]
    assert advertised == [
        "SASL://b$(NODE_ID).example.org:9094",
        "PLAINTEXT://$(POD_NAME).demo-korvet-brokers.apps.svc:9092",
    ]
    services = [each for each in rendered(*FULL) if each["kind"] == "Service"]
    assert "demo-korvet-brokers" in {each["metadata"]["name"] for each in services}


def test_the_charts_options_start_a_broker(tmp_path: Path) -> None:
    (found,) = [
        each
        for each in rendered(REDIS, r"settings.num\.partitions=6")
        if each["kind"] == "StatefulSet"
    ]
    container = found["spec"]["template"]["spec"]["containers"][0]
    words = [word.replace("$(NODE_ID)", "2") for word in container["args"]]
    words = [
        word.replace("$(POD_NAME).demo-korvet-brokers.apps.svc", "localhost") for word in words
    ]
    broker = Recipe(tmp_path, words, korvet())
    with server("valkey") as redis:
        broker.start(KORVET_REDIS_URL=redis.url)
        try:
            assert broker.takes_a_record()
        finally:
            assert broker.stop() == 0
    probes = {container[f"{name}Probe"]["httpGet"]["path"] for name in ("startup", "readiness")}
    assert probes == {"/readyz"} and container["livenessProbe"]["httpGet"]["path"] == "/livez"


def test_the_charts_alert_rules_are_those_of_prometheus() -> None:
    rules = (DEPLOY / "prometheus/korvet.rules.yml").read_text()
    assert (CHART / "files/korvet.rules.yml").read_text() == rules
    (found,) = [each for each in rendered(*FULL) if each["kind"] == "PrometheusRule"]
    assert found["spec"] == yaml.safe_load(rules)
