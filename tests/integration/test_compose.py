"""compose.yaml and its Dockerfile: checked by tools, and the same commands run as plain processes."""

import json
import re
import shlex
import subprocess
import sys
import tomllib
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from fedfeast.flower.app import write_app
from fedfeast.flower.local_fleet import LocalFleet, free_port

from .conftest import wait_for

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
DOCKERFILE = (DEPLOY / "Dockerfile").read_text()
FOLDERS = ("credentials", "state", "runs", "data", "node", "app", "operator")  # of containers, below /
SETTINGS = (
    "population.num_clients=3; partition.alpha_eff=10; population.gamma=0; training.rounds=1; "
    "training.batch_size=32; evaluation.every_rounds=1"
)


def program(name: str) -> str:
    return str(Path(sys.executable).parent / name)


def check(*words: str | Path) -> None:
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_compose_file_fits_the_compose_specification() -> None:
    check(program("check-jsonschema"), "--builtin-schema", "vendor.compose-spec", DEPLOY / "compose.yaml")


@pytest.mark.skipif(sys.platform != "linux", reason="hadolint is installed on Linux alone")
def test_the_dockerfile_has_no_fault_that_hadolint_knows() -> None:
    check(program("hadolint"), DEPLOY / "Dockerfile")


def test_issue_forms_and_citation_fit_their_schemas() -> None:
    forms = [*(ROOT / ".github" / "ISSUE_TEMPLATE").glob("*_re*.yml")]
    assert len(forms) == 2
    check(program("check-jsonschema"), "--builtin-schema", "vendor.github-issue-forms", *forms)
    config = ROOT / ".github" / "ISSUE_TEMPLATE" / "config.yml"
    check(program("check-jsonschema"), "--builtin-schema", "vendor.github-issue-config", config)
    check(program("check-jsonschema"), "--builtin-schema", "vendor.citation-file-format", ROOT / "CITATION.cff")


def test_images_are_built_from_what_is_there() -> None:
    stages = dict(re.findall(r"^FROM \S+ AS (\S+)\n(.*?)(?=^FROM|\Z)", DOCKERFILE, re.MULTILINE | re.DOTALL))
    for name, service in SERVICES.items():
        assert service["build"]["context"] == ".."
        assert (ROOT / service["build"]["dockerfile"]).is_file()
        assert "USER 10001" in stages[service["build"]["target"]], f"{name} runs as root"
    extras = {extra for found in re.findall(r"\$\{wheel\}\[([a-z,]+)\]", DOCKERFILE) for extra in found.split(",")}
    assert extras == {"flower", "privacy", "serve"}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert extras <= project["optional-dependencies"].keys()
    copied = re.findall(r"^COPY (?!--from)(.*) \S+$", DOCKERFILE, re.MULTILINE)
    sources = {word for line in copied for word in line.split() if not word.startswith("--")}
    sent = {line[1:] for line in (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines() if line.startswith("!")}
    assert sources == sent
    assert all((ROOT / source).exists() for source in sources)
    assert (
        "torch==" + re.findall(r"^torch==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)[0] in DOCKERFILE
    )


def test_the_superlink_is_reached_through_the_gateway_alone() -> None:
    assert "--host=127.0.0.1" in SERVICES["superlink"]["command"]
    assert SERVICES["superlink"]["ports"] == ["${FLEET_PORT:-8443}:${FLEET_PORT:-8443}"]
    assert "--port=${FLEET_PORT:-8443}" in SERVICES["gateway"]["command"]
    beside = {name for name, one in SERVICES.items() if one.get("network_mode") == "service:superlink"}
    assert beside == {"gateway", "enroll", "train"}
    keys = {
        name for name, one in SERVICES.items() if any(str(mount).startswith("credentials") for mount in one["volumes"])
    }
    assert keys == {"certificate", "superlink", *beside}, "a node, or who serves models, has the server's key"
    assert SERVICES["model-server"]["ports"][0].startswith("127.0.0.1:")
    for name, service in SERVICES.items():
        assert service["cap_drop"] == ["ALL"], name


class Containers:
    """What compose.yaml starts, as processes on this machine: its words, with folders and ports of a fleet here."""

    def __init__(self, fleet: LocalFleet, variables: Mapping[str, str]) -> None:
        self.fleet, self.variables, self.root = fleet, variables, fleet.folder / "root"
        for name in FOLDERS:
            (self.root / name).mkdir(parents=True)
        write_app(self.root / "app")
        (self.root / "operator" / "config.toml").write_text(self.here((DEPLOY / "operator.toml").read_text()))

    def here(self, text: str) -> str:
        """Return a text with variables put in, and with this fleet's folders and ports."""
        text = re.sub(r"\$\{(\w+):-([^}]*)\}", lambda found: self.variables.get(found[1], found[2]), text)
        assert "$" not in text, text
        text = re.sub(rf"(?<![\w.])/({'|'.join(FOLDERS)})(?=[/\"=;\s]|$)", rf"{self.root}/\1", text)
        text = text.replace("9091", str(self.fleet.superlink_port)).replace("0.0.0.0", "127.0.0.1")
        return text.replace("/tmp/flwr", str(self.root / "flwr"))

    def start(self, name: str) -> None:
        """Start a service's command with its variables."""
        service = SERVICES[name]
        assert "entrypoint" not in service
        settings = {"FEDFEAST_DATA": str(self.root / "data"), **service.get("environment", {})}
        variables = [f"{key}={self.here(str(value))}" for key, value in settings.items()]
        self.fleet.start(name, ["env", *variables, *map(self.here, service["command"])])

    def run(self, name: str, seconds: float = 240) -> str:
        """Run a service's command to its end, which must be a good one."""
        self.start(name)
        assert self.fleet.processes[name].wait(seconds) == 0, self.fleet.log(name)
        return self.fleet.log(name)

    def is_healthy(self, name: str) -> bool:
        """Run a service's own check of its health."""
        kind, *words = map(self.here, SERVICES[name]["healthcheck"]["test"])
        assert kind == "CMD"
        words[0] = sys.executable if words[0] == "python" else words[0]
        return subprocess.run(words, capture_output=True, check=False).returncode == 0

    def wait_until_healthy(self, name: str) -> None:
        wait_for(lambda: self.is_healthy(name), 120, f"the start of {shlex.quote(name)}", lambda: self.fleet.log(name))


def test_the_commands_of_compose_train_and_serve(tmp_path: Path, single_thread: None) -> None:
    with LocalFleet(tmp_path / "fleet") as fleet:
        models = free_port()
        variables = {"FLEET_HOST": "127.0.0.1", "FLEET_PORT": str(fleet.port), "MODELS_PORT": str(models)}
        containers = Containers(fleet, {**variables, "SETTINGS": SETTINGS, "NODE_NAME": "kitchen"})
        containers.run("certificate")
        containers.start("superlink")
        containers.wait_until_healthy("superlink")
        containers.start("gateway")
        containers.wait_until_healthy("gateway")
        containers.run("enroll")
        assert {file.name for file in (containers.root / "node").iterdir()} == {"ca.crt", "kitchen", "kitchen.pub"}
        containers.start("node")
        containers.run("train")
        summary = json.loads((containers.root / "runs" / "first" / "summary.json").read_text())
        assert summary["finished_rounds"] == 1
        containers.start("model-server")
        containers.wait_until_healthy("model-server")
        with urllib.request.urlopen(f"http://127.0.0.1:{models}/api/choose?max_macs=6e5", timeout=30) as answer:
            assert json.loads(answer.read())["run"] == "first"
