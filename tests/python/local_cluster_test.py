"""`bolide cluster`: what it says of nodes that are down, have joined, or were drained."""

import json
import os
import signal
import subprocess

import pytest
from azure.cosmos import CosmosClient, PartitionKey

from cluster_consistency_test import first_port_of_a_cluster
from node import EMULATOR_KEY, binary, free_ports, settings_free, wait_until

SECONDS_MAX = 120


class Local:
    """A cluster that `bolide cluster up` has started."""

    def __init__(self, folder):
        self.folder = folder / "my cluster"
        self.port = first_port_of_a_cluster()

    def bolide(self, *arguments):
        command = [binary(), "cluster", *arguments, "--data-path", self.folder]
        environment = settings_free(os.environ)
        return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, check=False, env=environment)

    def kill(self, number):
        [pid] = [node["pid"] for node in json.loads((self.folder / "cluster.json").read_text()) if node["id"] == number]
        os.kill(pid, signal.SIGKILL)

    def line(self, number):
        """The words that `status` has for a node; none if it does not list it."""
        lines = self.bolide("status").stdout.splitlines()
        return next((line.split() for line in lines if line.startswith(f"{number} ")), None)


@pytest.fixture
def local(tmp_path):
    made = Local(tmp_path)
    try:
        yield made
    finally:
        made.bolide("down")


def test_the_commands_tell_what_is_down_what_has_joined_and_what_has_left(local, new_node):
    assert "there is no cluster" in local.bolide("status").stderr
    started = local.bolide("up", "--port", str(local.port))
    assert started.returncode == 0, started
    hint = f"--data-path '{local.folder}'"
    assert started.stdout.count(hint) == 2, started.stdout
    assert hint in local.bolide("up", "--port", str(local.port)).stderr

    container = (
        CosmosClient(f"http://127.0.0.1:{local.port}/", EMULATOR_KEY).create_database("d").create_container("c", PartitionKey("/pk"))
    )
    container.create_item({"id": "1", "pk": "p"})
    local.kill(3)
    wait_until(lambda: local.line(3)[2] == "down", "node 3 is down")
    checked = wait_until(lambda: None if "no leader" in (done := local.bolide("check")).stdout else done, "the shard has a leader")
    assert checked.returncode == 1, checked
    assert "not compared: the node does not answer" in checked.stdout, checked
    assert "differs" not in checked.stdout and "null" not in checked.stdout, checked
    assert "node 3 were not compared" in checked.stderr, checked

    [port] = free_ports(1)
    joined = new_node(
        arguments=[
            "--set", f"cluster.address=127.0.0.1:{port}", "--set", f"cluster.key_file={local.folder / 'cluster.key'}",
            "--join", f"127.0.0.1:{local.port + 1}",
        ],
    )  # fmt: skip
    wait_until(lambda: "up" in (local.line(4) or []), "node 4 is listed as up")
    assert f"127.0.0.1:{port}" in local.line(4)
    unknown = local.bolide("drain", "9")
    assert "there is no node 9" in unknown.stderr and "1, 2, 3, 4" in unknown.stderr, unknown
    drained = local.bolide("drain", "3")
    assert drained.returncode == 0, drained
    assert local.line(3) is None
    joined.stop()

    local.bolide("down")
    after = local.bolide("status")
    assert after.returncode == 1
    assert "is down" in after.stderr and hint in after.stderr, after
