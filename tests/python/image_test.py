"""The container image without a container engine: its recipe is linted, its root folder is made as the recipe makes it, and
the node runs in that root, which is read-only, as the recipe's user."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from azure.cosmos import PartitionKey

from authentication_test import a_key
from node import Node, binary, free_ports, wait_until

ROOT = Path(__file__).parent.parent.parent
IMAGE = ROOT / "config" / "image"
BYTES_MAX = 60_000_000
SECONDS_MAX = 60

needs_root = pytest.mark.skipif(
    os.name != "posix" or os.geteuid() != 0 or not shutil.which("unshare"), reason="another root folder and user need root on Linux"
)


def instructions():
    """The last stage of the recipe, as (instruction, arguments)."""
    text = re.sub(r"\\\n\s*", "", (IMAGE / "Dockerfile").read_text())
    lines = [line.split(maxsplit=1) for line in text.splitlines() if line and not line.startswith("#")]
    last = max(at for at, (name, _) in enumerate(lines) if name == "FROM")
    return [(name, rest) for name, rest in lines[last:]]


def instruction(name):
    [only] = [rest for found, rest in instructions() if found == name]
    return only


def image_environment():
    return dict(pair.split("=", 1) for pair in shlex.split(instruction("ENV")))


def health_check():
    return json.loads(instruction("HEALTHCHECK").split("CMD", 1)[1])


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    """The root folder of the image, as the recipe makes it."""
    folder = tmp_path_factory.mktemp("image")
    # The profile `dist` strips.
    stripped = folder / "bolide"
    subprocess.run(["strip", "-o", stripped, binary()], check=True)
    root = folder / "root"
    subprocess.run([IMAGE / "root", stripped, root], check=True)
    return root


class Contained(Node):
    """A node as an engine runs it with --read-only: the image's root, its user, its environment, and a data folder."""

    def __init__(self, image, variables=None):
        super().__init__(start=False)
        self.image = image
        self.variables = variables or {}
        user, group = map(int, instruction("USER").split(":"))
        self.data.mkdir(mode=0o700)
        os.chown(self.data, user, group)
        # What an engine mounts.
        for folder in ["data", "proc", "dev"]:
            (image / folder).mkdir(exist_ok=True)

    def environment_of_the_node(self):
        return {
            **image_environment(), "PATH": os.environ["PATH"], "PORT": str(self.port),
            "BOLIDE_SERVER__HEALTH_PORT": str(self.health_port), **self.variables,
        }  # fmt: skip

    def inside(self, command):
        return ["chroot", f"--userspec={instruction('USER')}", str(self.image), *command]

    def spawn(self):
        root = shlex.quote(str(self.image))
        script = f"""
            set -e
            mount --bind {root} {root}
            mount --bind {shlex.quote(str(self.data))} {root}/data
            mount --rbind /proc {root}/proc
            mount --rbind /dev {root}/dev
            mount -o remount,bind,ro {root}
            exec {shlex.join(self.inside(json.loads(instruction("ENTRYPOINT"))))}
        """
        with open(self.output_path, "ab") as output, open(self.log_path, "ab") as log:
            # Each step replaces the one before: the process is the node in the end.
            self.process = subprocess.Popen(
                ["unshare", "--mount", "--propagation", "private", "sh", "-c", script],
                stdin=subprocess.DEVNULL, stdout=output, stderr=log, env=self.environment_of_the_node(),
            )  # fmt: skip

    def ready(self):
        return subprocess.run(
            self.inside(health_check()), env=self.environment_of_the_node(), capture_output=True, text=True,
            timeout=SECONDS_MAX, check=False,
        )  # fmt: skip


@pytest.fixture
def contained(image):
    nodes = []

    def make(**options):
        nodes.append(Contained(image, **options))
        return nodes[-1]

    yield make
    for node in nodes:
        node.close()


def test_the_recipe_passes_the_linter():
    linter = Path(sys.executable).parent / "hadolint"
    done = subprocess.run([linter, IMAGE / "Dockerfile"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_the_last_stage_needs_no_shell_and_no_root():
    names = [name for name, _ in instructions()]
    assert "RUN" not in names, "there is no shell to run it"
    assert instruction("FROM") == "scratch"
    user, group = instruction("USER").split(":")
    assert int(user) > 0 and int(group) > 0
    assert json.loads(instruction("VOLUME")) == ["/data"] == [image_environment()["DATA_PATH"]]
    assert json.loads(instruction("ENTRYPOINT"))[-1] == "--emulator"
    assert health_check()[1:] == ["ready"]
    owned = [rest for name, rest in instructions() if name == "COPY" and rest.endswith(" /data")]
    assert owned and f"--chown={user}:{group}" in owned[0], "the volume takes over the owner"


def test_the_build_gets_every_file_that_it_copies():
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    kept = {line[1:].split("/")[0] for line in ignored if line.startswith("!")}
    text = (IMAGE / "Dockerfile").read_text()
    copied = [line.split()[1:-1] for line in text.splitlines() if line.startswith("COPY ") and "--from" not in line]
    assert {name for names in copied for name in names} == kept
    for name in kept:
        assert (ROOT / name).exists(), name
    # The path of a library on this machine is nothing for the image.
    assert "!.cargo" not in ignored


def test_the_image_is_small(image):
    files = [path for path in image.rglob("*") if path.is_file()]
    assert image / "usr/local/bin/bolide" in files
    version = subprocess.run([binary(), "--version"], capture_output=True, text=True, check=True).stdout
    if "debug)" in version or "dev)" in version:
        pytest.skip("the binary is not optimised")
    assert sum(path.stat().st_size for path in files) < BYTES_MAX


@needs_root
def test_the_node_runs_in_the_image_read_only_as_its_user(contained):
    node = contained(variables={"PROTOCOL": "http", "ENABLE_TELEMETRY": "false", "ENABLE_EXPLORER": "false"})
    assert node.ready().returncode == 1
    node.spawn()
    wait_until(lambda: f"Now listening on: {node.endpoint}\n" in node.output() or node.process.poll(), "the line that tools wait for")
    assert node.process.poll() is None, node.log()
    done = node.ready()
    assert (done.returncode, done.stdout) == (0, "ready\n"), done

    process = Path("/proc", str(node.process.pid))
    user = re.search(r"^Uid:\t(.*)$", (process / "status").read_text(), re.M)[1]
    assert set(user.split()) == {instruction("USER").split(":")[0]}
    mounts = [line.split() for line in (process / "mountinfo").read_text().splitlines()]
    options = {mount[4]: mount[5].split(",") for mount in mounts}
    assert "ro" in options["/"] and "ro" not in options["/data"], options

    container = node.client().create_database("d").create_container("c", PartitionKey("/pk"), default_ttl=60)
    container.create_item({"id": "a", "pk": "p"})
    assert container.read_item("a", "p")["id"] == "a"
    account = node.raw("GET", "/", {"host": "host.docker.internal:49153"}).json
    assert account["writableLocations"][0]["databaseAccountEndpoint"] == "http://host.docker.internal:49153/"

    assert node.stop() == 0, node.log()
    node.start()
    assert node.client().get_database_client("d").get_container_client("c").read_item("a", "p")["id"] == "a"


@needs_root
def test_a_volume_of_another_user_is_used_with_a_warning(contained):
    node = contained()
    # As `--tmpfs /data` mounts it, and as a volume with a group of its own.
    os.chown(node.data, 0, 0)
    node.data.chmod(0o1777)
    node.start()
    assert node.raw("GET", "/dbs").status == 200
    assert "belongs to another user" in node.log()


@needs_root
def test_a_volume_that_cannot_be_written_is_named(contained):
    node = contained()
    os.chown(node.data, 0, 0)
    node.spawn()
    assert node.process.wait(SECONDS_MAX) == 1
    node.process = None
    assert "'/data'" in node.log() and "Permission denied" in node.log()


@needs_root
def test_a_wrong_variable_ends_the_node_with_one_line(contained):
    node = contained(variables={"PORT": "http"})
    node.spawn()
    assert node.process.wait(SECONDS_MAX) == 2
    node.process = None
    assert node.log() == "bolide: environment variable PORT: 'http' is not a whole number from 0 to 65535\n"


def compose(name):
    return yaml.safe_load((IMAGE / name).read_text())


KEYS = {
    "image", "build", "hostname", "ports", "environment", "volumes", "read_only", "cap_drop", "security_opt", "stop_grace_period",
    "restart", "entrypoint", "secrets", "network_mode",
}  # fmt: skip


@pytest.mark.parametrize("name", ["compose.yml", "compose.cluster.yml"])
def test_a_compose_file_names_what_there_is(name):
    made = compose(name)
    assert {key for key in made if not key.startswith("x-")} <= {"services", "volumes", "secrets"}
    for service, parts in made["services"].items():
        assert set(parts) <= KEYS, service
        for port in parts.get("ports", []):
            assert re.fullmatch(r"127\.0\.0\.1:\d+:\d+", port), f"{service} is for this machine only: {port}"
        for volume in parts.get("volumes", []):
            source = volume.split(":")[0]
            known = (IMAGE / source).exists() if source.startswith(".") else source in made["volumes"]
            assert known, (service, volume)
        for secret in parts.get("secrets", []):
            assert secret in made["secrets"]
        if "build" in parts:
            context = IMAGE / parts["build"]["context"]
            assert (context / parts["build"]["dockerfile"]).samefile(IMAGE / "Dockerfile")
            assert parts["read_only"] is True and parts["cap_drop"] == ["ALL"]


def test_the_settings_of_the_compose_file_make_a_cluster(new_node, tmp_path):
    services = compose("compose.cluster.yml")["services"]
    names = [name for name in services if name.startswith("node")]
    inner = dict(zip(names, free_ports(len(names)), strict=True))
    for secret in ["account_key", "cluster_key"]:
        (tmp_path / secret).write_text(a_key(secret))
        (tmp_path / secret).chmod(0o600)
    nodes = []
    for name in names:
        assert services[name]["entrypoint"][1:] == ["serve"]
        node = new_node(start=False, key=a_key("account_key"))
        environment = {key: str(value) for key, value in services[name]["environment"].items()}
        for other, port in inner.items():
            environment = {key: value.replace(f"{other}:8082", f"127.0.0.1:{port}") for key, value in environment.items()}
        node.environment = {key: value.replace("/run/secrets", str(tmp_path)) for key, value in environment.items()}
        nodes.append(node)
        node.spawn()
    for node in nodes:
        wait_until(lambda node=node: is_ready(node), f"{node.log()}")
    nodes[0].client().create_database("d")
    wait_until(lambda: nodes[2].raw("GET", "/dbs/d").status == 200, "the third node knows the database")


def is_ready(node):
    try:
        return node.health("/ready").status == 200
    except OSError:
        return False


@pytest.mark.skipif(not shutil.which("promtool"), reason="there is no promtool")
def test_prometheus_takes_its_settings(tmp_path):
    services = compose("compose.cluster.yml")["services"]
    for volume in services["prometheus"]["volumes"]:
        source, target, *_ = volume.split(":")
        if source.startswith("."):
            shutil.copy(IMAGE / source, tmp_path / Path(target).name)
    done = subprocess.run(["promtool", "check", "config", tmp_path / "prometheus.yml"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    [job] = yaml.safe_load((tmp_path / "prometheus.yml").read_text())["scrape_configs"]
    targets = job["static_configs"][0]["targets"]
    assert targets == [f"{name}:8080" for name in services if name.startswith("node")]


def test_grafana_finds_its_data_source():
    grafana = compose("compose.cluster.yml")["services"]["grafana"]
    [source] = yaml.safe_load((ROOT / "dashboards/grafana/provisioning/datasources/bolide.yml").read_text())["datasources"]
    assert source["url"] == "http://127.0.0.1:9090" and grafana["network_mode"] == "service:prometheus"
    mounted = dict(volume.split(":")[:2][::-1] for volume in grafana["volumes"])
    assert any((IMAGE / mounted[grafana["environment"]["DASHBOARDS_PATH"]]).glob("*.json"))
