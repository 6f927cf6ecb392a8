"""Three node processes in network namespaces of their own: killed, paused and cut off while the load driver checks every answer."""

import json
import os
import shutil
import signal
import subprocess
import time
import urllib.request

import pytest

from node import Node, binary, settings_free, wait_until

NODES = (1, 2, 3)
# A network of its own, behind a bridge; the driver is at its end.
BRIDGE, PREFIX = "bolide0", "10.117.53"
DRIVER = f"{PREFIX}.254"
PORT, HEALTH_PORT, PEER_PORT = 8081, 8080, 8082

# Every kind of operation, on items of which some expire at any time, in several shards.
WORKLOAD = """
about = "faults"
[container]
default_ttl = -1
throughput = 30_000
[items]
count = 500
ttl = 4
[operations]
read = 40
update = 15
insert = 20
upsert = 15
scan = 5
delete = 5
[keys]
distribution = "recent"
recent_seconds = 6
[run]
connections = 12
rate = 400
warm_up_seconds = 0
"""
# How long after the load's begin the fault comes, how long it lasts, and how long the load goes on in all.
BEFORE, LASTING, LENGTH = 2, 4, 11


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}"


class Network:
    """A namespace for each node, joined by a bridge."""

    def __init__(self):
        if os.geteuid() != 0 or not shutil.which("ip"):
            pytest.fail("network namespaces need root and the program 'ip' (package iproute2)", pytrace=False)
        self.close()
        run("ip", "link", "add", BRIDGE, "type", "bridge")
        run("ip", "address", "add", f"{DRIVER}/24", "dev", BRIDGE)
        run("ip", "link", "set", BRIDGE, "up")
        for node in NODES:
            inside, outside = f"bolide{node}i", f"bolide{node}o"
            run("ip", "netns", "add", self.name(node))
            run("ip", "link", "add", outside, "type", "veth", "peer", "name", inside, "netns", self.name(node))
            run("ip", "link", "set", outside, "master", BRIDGE, "up")
            self.inside(node, "ip", "address", "add", f"{self.address(node)}/24", "dev", inside)
            self.inside(node, "ip", "link", "set", inside, "up")
            self.inside(node, "ip", "link", "set", "lo", "up")

    @staticmethod
    def name(node):
        return f"bolide-{node}"

    @staticmethod
    def address(node):
        return f"{PREFIX}.{node}"

    def inside(self, node, *command):
        run("ip", "netns", "exec", self.name(node), *command)

    def drop(self, sender, receiver):
        """What the one sends to the other is lost."""
        self.inside(sender, "ip", "route", "add", "blackhole", f"{self.address(receiver)}/32")

    def heal(self):
        for node in NODES:
            for other in NODES:
                subprocess.run(
                    ["ip", "netns", "exec", self.name(node), "ip", "route", "del", "blackhole", f"{self.address(other)}/32"],
                    capture_output=True,
                )

    def close(self):
        for node in NODES:
            subprocess.run(["ip", "netns", "del", self.name(node)], capture_output=True)
            subprocess.run(["ip", "link", "del", f"bolide{node}o"], capture_output=True)
        subprocess.run(["ip", "link", "del", BRIDGE], capture_output=True)


class NetworkNode(Node):
    """A node in its namespace."""

    def __init__(self, network, number, folder):
        self.network, self.number = network, number
        members = ",".join(f"{each}={network.address(each)}:{PEER_PORT}" for each in NODES)
        arguments = [
            "--host", network.address(number), "--key-file", str(folder / "account.key"),
            "--set", f"cluster.node={number}", "--set", f"cluster.members={members}",
            "--set", f"cluster.key_file={folder / 'cluster.key'}",
            # The checker holds every answer against all that was acknowledged before it was asked for: that is what this level promises.
            "--set", "server.consistency=strong",
        ]  # fmt: skip
        super().__init__(arguments=arguments, start=False)
        self.port, self.health_port = PORT, HEALTH_PORT

    def command(self):
        # The process is the node's own: ip puts it in the place of itself.
        return ["ip", "netns", "exec", self.network.name(self.number), *super().command()]

    def status(self):
        url = f"http://{self.network.address(self.number)}:{HEALTH_PORT}/status"
        try:
            with urllib.request.urlopen(url, timeout=2) as answer:
                return json.load(answer)
        except OSError:
            return None

    def wait_ready(self):
        def ready():
            assert self.process.poll() is None, self.log()
            return self.status()

        wait_until(ready, f"node {self.number} answers")


class Cluster:
    def __init__(self, folder):
        self.folder = folder
        (folder / "cluster.key").write_text("0123456789abcdef" * 4)
        (folder / "account.key").write_text(subprocess.run([binary(), "key"], capture_output=True, text=True).stdout)
        self.network = Network()
        self.nodes = {number: NetworkNode(self.network, number, folder) for number in NODES}
        for node in self.nodes.values():
            node.spawn()
        self.wait_level()

    def statuses(self):
        return [node.status() for node in self.nodes.values()]

    def wait_level(self):
        """All nodes see all others, and have applied the same of every shard."""

        def level():
            statuses = self.statuses()
            if not all(statuses) or any(len(status["cluster"]["connected"]) != len(NODES) - 1 for status in statuses):
                return False
            if any(group["leader"] is None for status in statuses for group in status["cluster"]["groups"]):
                return False
            applied = [
                [(each["container"], shard["range"], shard.get("lsn")) for each in status["containers"] for shard in each["shards"]]
                for status in statuses
            ]
            return statuses[0]["cluster"]["groups"] and all(each == applied[0] for each in applied)

        wait_until(level, "all nodes are connected and level", 60)

    def terms(self):
        """How often each group has elected a leader, by the highest count that anybody knows."""
        terms = {}
        for status in filter(None, self.statuses()):
            for group in status["cluster"]["groups"]:
                terms[group["group"]] = max(group["term"], terms.get(group["group"], 0))
        return terms

    def busiest(self):
        """The node that leads most."""
        leads = [status["cluster"]["groups"] for status in self.statuses()]
        counts = [sum(group["leads"] for group in groups) for groups in leads]
        return self.nodes[NODES[counts.index(max(counts))]]

    def close(self):
        for node in self.nodes.values():
            if node.process:
                node.process.send_signal(signal.SIGCONT)
            node.kill()
            node.close()
        self.network.close()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    cluster = Cluster(tmp_path_factory.mktemp("faults"))
    try:
        yield cluster
    finally:
        cluster.close()


def kill(cluster, node):
    node.kill()
    return node.spawn


def pause(cluster, node):
    node.process.send_signal(signal.SIGSTOP)
    return lambda: node.process.send_signal(signal.SIGCONT)


def cut(*ways):
    def fault(cluster, node):
        for other in NODES:
            if other != node.number:
                if "out" in ways:
                    cluster.network.drop(node.number, other)
                if "in" in ways:
                    cluster.network.drop(other, node.number)
        return cluster.network.heal

    return fault


FAULTS = {
    "kill": kill,
    "pause": pause,
    "cut both ways": cut("in", "out"),
    "cut what it sends": cut("out"),
    "cut what it is sent": cut("in"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_no_answer_is_wrong_while_a_node_is_lost_and_comes_back(cluster, tmp_path, name):
    cluster.wait_level()
    (tmp_path / "faults.toml").write_text(WORKLOAD)
    report = tmp_path / "run.json"
    command = [str(binary()), "bench", "run", str(tmp_path / "faults.toml"), "--seconds", str(LENGTH), "--json", str(report)]
    command += ["--key-file", str(cluster.folder / "account.key"), "--metrics-port", "0"]
    for number in NODES:
        command += ["--endpoint", f"http://{cluster.network.address(number)}:{PORT}/"]
    with open(tmp_path / "log", "wb") as log:
        driver = subprocess.Popen(command, stdout=log, stderr=log, env=settings_free(os.environ))
    told = lambda: (tmp_path / "log").read_text(errors="replace")  # noqa: E731
    try:
        wait_until(lambda: "loaded in" in told() or driver.poll() is not None, "the driver has loaded its items")
        time.sleep(BEFORE)
        terms = cluster.terms()
        heal = FAULTS[name](cluster, cluster.busiest())
        time.sleep(LASTING)
        heal()
        code = driver.wait(120)
    finally:
        driver.kill()
        driver.wait()
        cluster.network.heal()
    assert code == 0, told()
    assert any(term > terms.get(group, term) for group, term in cluster.terms().items()), "the fault was noticed: leaders changed"
    run_report = json.loads(report.read_text())
    assert sum(run_report["violations"].values()) == 0, told()
    # The other two went on meanwhile, and all three after it.
    answered = [point["all"]["rate"] for point in run_report["points"]]
    assert sum(rate > 0 for rate in answered) >= LENGTH - 3, answered
    assert max(answered[-2:]) > 100, answered
    for operation in run_report["operations"]:
        assert operation["count"] > sum(operation["errors"].values()), operation
    cluster.wait_level()
