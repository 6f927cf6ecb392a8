"""Three node processes as one: any node answers, any node may die."""

import os
import shutil
import socket
import struct
import subprocess
import threading
import time

import pytest
from azure.cosmos import PartitionKey, exceptions

from metrics import Exported
from node import Refused, binary, free_ports, wait_until

NODES = 3


class Cluster:
    """Some nodes on free ports with a key of their own."""

    def __init__(self, new_node, tmp_path, count=NODES):
        self.new_node = new_node
        self.key = key = tmp_path / "cluster.key"
        key.write_text("0123456789abcdef" * 4)
        key.chmod(0o600)
        self.ports = ports = free_ports(count)
        members = ",".join(f"{number}=127.0.0.1:{port}" for number, port in enumerate(ports, 1))
        self.nodes = {
            number: new_node(
                start=False,
                arguments=[
                    "--set", f"cluster.node={number}", "--set", f"cluster.members={members}",
                    "--set", f"cluster.key_file={key}",
                ],  # fmt: skip
            )
            for number in range(1, count + 1)
        }
        for node in self.nodes.values():
            node.spawn()
        for node in self.nodes.values():
            node.wait_ready()
        self.wait_led()

    def newcomer(self, by, *settings, key=None):
        """A node that is to join by one that runs; it is not started."""
        [port] = free_ports(1)
        return self.new_node(
            start=False,
            arguments=[
                "--set", f"cluster.address=127.0.0.1:{port}", "--set", f"cluster.key_file={key or self.key}",
                *settings, "--join", f"127.0.0.1:{self.ports[by - 1]}",
            ],  # fmt: skip
        )

    def status(self, number):
        return self.nodes[number].health("/status").json

    def running(self):
        return [number for number, node in self.nodes.items() if node.process is not None]

    def wait_led(self):
        """All running nodes know a leader of the catalog and of every shard."""

        def led():
            for number in self.running():
                groups = self.status(number)["cluster"]["groups"]
                if not groups or any(group["leader"] is None for group in groups):
                    return False
            return True

        wait_until(led, "every group has a leader")

    def leader_of(self, container):
        """The node that leads the first shard of a container."""
        for number in self.running():
            for each in self.status(number)["containers"]:
                if each["container"] == f"dbs/{container[0]}/colls/{container[1]}":
                    leader = each["shards"][0]["leader"]
                    return leader or number
        raise AssertionError(f"nobody knows {container}")

    def lsns(self, container):
        """How far each running node is with each shard of a container."""
        found = []
        for number in self.running():
            for each in self.status(number)["containers"]:
                if each["container"] == f"dbs/{container[0]}/colls/{container[1]}":
                    found.append([shard.get("lsn") for shard in each["shards"]])
        return found

    def wait_level(self, container):
        """All running nodes have applied the same."""

        def level():
            lsns = self.lsns(container)
            return len(lsns) == len(self.running()) and all(each == lsns[0] for each in lsns)

        wait_until(level, "all nodes are level")


@pytest.fixture
def cluster(new_node, tmp_path):
    return Cluster(new_node, tmp_path)


def make(node, **options):
    database = node.client().create_database_if_not_exists("shop")
    return database.create_container("items", PartitionKey("/pk"), **options)


def at(node):
    return node.client().get_database_client("shop").get_container_client("items")


def ids(container):
    return sorted(item["id"] for item in container.query_items("SELECT c.id FROM c", enable_cross_partition_query=True))


def test_any_node_answers_any_request(cluster):
    first, *_ = cluster.nodes.values()
    make(first, offer_throughput=30_000)
    containers = [at(node) for node in cluster.nodes.values()]
    for number, container in enumerate(containers):
        for index in range(10):
            container.create_item({"id": f"{number}-{index}", "pk": f"key {index}", "n": index})
    cluster.wait_level(("shop", "items"))
    everything = sorted(f"{number}-{index}" for number in range(NODES) for index in range(10))
    for container in containers:
        assert ids(container) == everything
        assert sorted(item["id"] for item in container.read_all_items()) == everything
        with pytest.raises(exceptions.CosmosResourceExistsError):
            container.create_item({"id": "0-0", "pk": "key 0"})
        container.patch_item("1-1", "key 1", [{"op": "incr", "path": "/n", "value": 1}])
    cluster.wait_level(("shop", "items"))
    assert [container.read_item("1-1", "key 1")["n"] for container in containers] == [4, 4, 4]
    containers[1].delete_item("2-2", "key 2")
    cluster.wait_level(("shop", "items"))
    for container in containers:
        with pytest.raises(exceptions.CosmosResourceNotFoundError):
            container.read_item("2-2", "key 2")
    # What leads is spread over the nodes.
    leading = {number for number in cluster.nodes if any(g["leads"] for g in cluster.status(number)["cluster"]["groups"])}
    assert leading == set(cluster.nodes)


def test_a_session_reads_its_own_writes_at_any_node(cluster):
    first, second, third = cluster.nodes.values()
    make(first)
    writer = at(second)
    for index in range(50):
        written = writer.upsert_item({"id": "one", "pk": "a", "n": index})
        token = written.get_response_headers()["x-ms-session-token"]
        for node in (first, third):
            answer = node.raw(
                "GET", "/dbs/shop/colls/items/docs/one",
                {"x-ms-documentdb-partitionkey": '["a"]', "x-ms-session-token": token},
            )  # fmt: skip
            assert answer.status == 200 and answer.json["n"] >= index, answer


def test_kill_9_of_any_node_loses_nothing_and_writes_resume(cluster):
    nodes = cluster.nodes
    make(nodes[1], default_ttl=-1)
    at(nodes[1]).create_item({"id": "doomed", "pk": "doomed", "ttl": 2})
    acknowledged, refused, stop = [], [], threading.Event()
    lock = threading.Lock()

    def write(worker):
        container = {number: at(node) for number, node in nodes.items()}
        for index in range(1_000_000):
            if stop.is_set():
                return
            number = (worker + index) % NODES + 1
            item = {"id": f"{worker}-{index}", "pk": f"{index % 7}"}
            try:
                container[number].create_item(item)
            except Exception as failure:
                with lock:
                    refused.append((time.monotonic(), repr(failure)[:200]))
                time.sleep(0.02)
            else:
                with lock:
                    acknowledged.append((time.monotonic(), item["id"], item["pk"]))

    def since(moment):
        with lock:
            return [when for when, *_ in acknowledged if when > moment]

    workers = [threading.Thread(target=write, args=(worker,)) for worker in range(4)]
    for worker in workers:
        worker.start()
    try:
        for _ in range(3):
            time.sleep(1.5)
            victim = cluster.leader_of(("shop", "items"))
            nodes[victim].kill()
            killed = time.monotonic()
            wait_until(lambda: len(since(killed)) > 20, "writes resume")
            nodes[victim].start()
            cluster.wait_led()
    finally:
        stop.set()
        for worker in workers:
            worker.join()
    assert len(acknowledged) > 100, (len(acknowledged), refused[:5])
    cluster.wait_level(("shop", "items"))
    for node in nodes.values():
        there = set(ids(at(node)))
        lost = [name for _, name, _ in acknowledged if name not in there]
        assert not lost, f"{len(lost)} of {len(acknowledged)} lost at {node.endpoint}: {lost[:5]}"
        with pytest.raises(exceptions.CosmosResourceNotFoundError):
            at(node).read_item("doomed", "doomed")


def test_a_default_ttl_change_is_in_force_everywhere_and_expiry_is_final(cluster):
    nodes = list(cluster.nodes.values())
    made = make(nodes[0], default_ttl=-1, offer_throughput=30_000)
    database = nodes[1].client().get_database_client("shop")
    for index in range(20):
        made.create_item({"id": f"{index}", "pk": f"{index}"})
    time.sleep(2)
    database.replace_container("items", PartitionKey("/pk"), default_ttl=1)
    cluster.wait_level(("shop", "items"))
    for node in nodes:
        assert ids(at(node)) == []
    database.replace_container("items", PartitionKey("/pk"), default_ttl=None)
    at(nodes[2]).create_item({"id": "new", "pk": "0"})
    cluster.wait_level(("shop", "items"))
    for node in nodes:
        assert ids(at(node)) == ["new"]

    def purged():
        statuses = [cluster.status(number) for number in cluster.nodes]
        return all(sum(shard["documents"] for shard in status["containers"][0]["shards"]) == 1 for status in statuses)

    wait_until(purged, "every replica has removed what is expired")


def test_a_node_that_was_away_catches_up_with_items_and_catalog(cluster):
    nodes = cluster.nodes
    make(nodes[1])
    nodes[3].kill()
    cluster.wait_led()
    database = nodes[1].client().get_database_client("shop")
    for index in range(200):
        at(nodes[2]).create_item({"id": f"{index}", "pk": f"{index % 5}"})
    database.create_container("late", PartitionKey("/pk")).create_item({"id": "x", "pk": "x"})
    database.delete_container("late")
    database.create_container("later", PartitionKey("/pk")).create_item({"id": "y", "pk": "y"})
    nodes[3].start()
    cluster.wait_led()
    cluster.wait_level(("shop", "items"))
    assert len(ids(at(nodes[3]))) == 200
    later = nodes[3].client().get_database_client("shop").get_container_client("later")
    wait_until(lambda: ids(later) == ["y"], "the new container is there")
    names = [each["id"] for each in nodes[3].client().get_database_client("shop").list_containers()]
    assert sorted(names) == ["items", "later"]


def test_without_a_majority_nothing_is_acknowledged(cluster):
    nodes = cluster.nodes
    make(nodes[1]).create_item({"id": "before", "pk": "a"})
    nodes[2].kill()
    nodes[3].kill()
    answer = nodes[1].raw(
        "POST", "/dbs/shop/colls/items/docs", {"x-ms-documentdb-partitionkey": '["a"]'}, {"id": "after", "pk": "a"}
    )
    assert answer.status == 503, answer
    # Nor is anything read: the others might have changed what is in force.
    answer = nodes[1].raw("GET", "/dbs/shop/colls/items/docs/before", {"x-ms-documentdb-partitionkey": '["a"]'})
    assert answer.status == 503, answer
    nodes[2].start()
    assert at(nodes[1]).read_item("before", "a")["id"] == "before"


def test_a_node_with_another_key_stays_outside(cluster, tmp_path):
    other = tmp_path / "other.key"
    other.write_text("another secret that is long enough to be one")
    victim = cluster.nodes[3]
    victim.stop()
    victim.arguments[-1] = f"cluster.key_file={other}"
    victim.start()

    def refused():
        return any(cluster.status(number)["cluster"]["refusedNodes"] for number in (1, 2, 3))

    wait_until(refused, "the connection is refused")
    assert 3 not in cluster.status(1)["cluster"]["connected"]
    make(cluster.nodes[1]).create_item({"id": "x", "pk": "x"})


def test_a_node_that_lost_its_disk_is_filled_again(cluster):
    """It gets snapshots of the catalog and of every shard, and counts again for majorities."""
    nodes = cluster.nodes
    make(nodes[1], offer_throughput=20_000, default_ttl=3_600)
    written = [f"{index:03}" for index in range(60)]
    for name in written:
        at(nodes[1]).create_item({"id": name, "pk": name})
    cluster.wait_level(("shop", "items"))
    nodes[2].kill()
    shutil.rmtree(nodes[2].data)
    at(nodes[3]).create_item({"id": "while away", "pk": "x"})
    nodes[2].start()

    def answers():
        """While it is filled, others answer for it, or nobody; it never answers from what it has not."""
        try:
            found = ids(at(nodes[2]))
        except exceptions.CosmosHttpResponseError as failure:
            assert failure.status_code == 503, failure
            return False
        assert found == sorted([*written, "while away"])
        return True

    wait_until(answers, "the node answers")
    cluster.wait_level(("shop", "items"))

    def votes_again():
        # As the node itself knows it: what a leader shows may be from before it let the node go.
        groups = cluster.status(2)["cluster"]["groups"]
        return len(groups) == 3 and all(group["voters"] == [1, 2, 3] for group in groups)

    wait_until(votes_again, "the node votes in every group again")
    # Without one of the two others the filled node is needed for a majority.
    nodes[1].kill()
    cluster.wait_led()
    at(nodes[2]).create_item({"id": "with it", "pk": "y"})
    cluster.wait_level(("shop", "items"))
    everything = sorted([*written, "while away", "with it"])
    assert ids(at(nodes[2])) == everything
    assert ids(at(nodes[3])) == everything
    # What was filled lasts.
    nodes[2].kill()
    nodes[1].start()
    nodes[2].start()
    cluster.wait_led()
    cluster.wait_level(("shop", "items"))
    assert ids(at(nodes[2])) == everything


def test_five_nodes_with_three_replicas_answer_everything_at_every_node(new_node, tmp_path):
    cluster = Cluster(new_node, tmp_path, 5)
    nodes = cluster.nodes
    make(nodes[1], offer_throughput=50_000)
    shards = cluster.status(1)["containers"][0]["shards"]
    assert [len(shard["replicas"]) for shard in shards] == [3] * 5
    held = [number for shard in shards for number in shard["replicas"]]
    assert {held.count(number) for number in nodes} == {3}
    expected = []
    for number, node in nodes.items():
        wait_until(lambda node=node: node.health("/status").json["containers"], "the node knows the container")
        for index in range(8):
            at(node).create_item({"id": f"{number}-{index}", "pk": f"key {number} {index}", "n": index})
            expected.append(f"{number}-{index}")
    expected.sort()
    for number, node in nodes.items():
        container = at(node)
        read = container.read_item(f"{number % 5 + 1}-3", f"key {number % 5 + 1} 3")
        assert read["n"] == 3
        wait_until(lambda container=container: ids(container) == expected, f"node {number} finds everything")
        assert sorted(item["id"] for item in container.read_all_items()) == expected
        assert sorted(item["id"] for item in container.query_items_change_feed(start_time="Beginning")) == expected
        ordered = container.query_items("SELECT VALUE c.n FROM c ORDER BY c.n", enable_cross_partition_query=True)
        assert list(ordered) == sorted(index for index in range(8) for _ in nodes)
        count = container.query_items("SELECT VALUE COUNT(1) FROM c", enable_cross_partition_query=True)
        assert list(count) == [40]
    # One may die: its shards have two replicas each.
    nodes[5].kill()
    cluster.wait_led()
    for number in cluster.running():
        at(nodes[number]).create_item({"id": f"after {number}", "pk": f"key {number}"})
        expected = sorted([*expected, f"after {number}"])
        wait_until(lambda: ids(at(nodes[number])) == expected, f"node {number} finds everything")


def drain(cluster, number, by):
    bolide = str(binary())
    port = str(cluster.nodes[by].health_port)
    ended = subprocess.run(
        [bolide, "cluster", "drain", str(number), "--health-port", port], capture_output=True, text=True, timeout=60, check=False
    )
    return ended


def test_a_drained_node_gives_its_replicas_away_and_can_be_stopped(new_node, tmp_path):
    cluster = Cluster(new_node, tmp_path, 4)
    nodes = cluster.nodes
    make(nodes[1], offer_throughput=40_000)
    written = [f"{index:03}" for index in range(40)]
    for name in written:
        at(nodes[1]).create_item({"id": name, "pk": name})
    refused = drain(cluster, 9, by=1)
    assert refused.returncode != 0 and "no node 9" in refused.stderr, refused
    done = drain(cluster, 2, by=3)
    assert done.returncode == 0, done
    assert "off the list" in done.stdout
    status = cluster.status(3)
    assert sorted(status["cluster"]["nodes"]) == ["1", "3", "4"]
    for shard in status["containers"][0]["shards"]:
        assert shard["replicas"] == [1, 3, 4] and shard["leaving"] == []
    nodes[2].kill()
    cluster.wait_led()
    for number in cluster.running():
        at(nodes[number]).create_item({"id": f"after {number}", "pk": f"{number}"})
    cluster.wait_level(("shop", "items"))
    assert ids(at(nodes[4])) == sorted([*written, "after 1", "after 3", "after 4"])


def test_a_node_joins_under_load_gets_its_share_and_lasts(cluster):
    nodes = cluster.nodes
    make(nodes[1], offer_throughput=40_000, default_ttl=3_600)
    acknowledged, failed, stop, lock = [], [], threading.Event(), threading.Lock()

    def write(worker):
        containers = [at(node) for node in list(nodes.values())[:NODES]]
        for index in range(1_000_000):
            if stop.is_set():
                return
            name = f"{worker}-{index}"
            try:
                containers[(worker + index) % NODES].create_item({"id": name, "pk": name})
            except Exception as failure:
                failed.append((name, failure))
                continue
            with lock:
                acknowledged.append(name)

    workers = [threading.Thread(target=write, args=(worker,)) for worker in range(2)]
    for worker in workers:
        worker.start()
    try:
        wait_until(lambda: len(acknowledged) > 100, "something is written")
        nodes[4] = cluster.newcomer(by=2).start()

        def shared():
            known = cluster.status(1)["cluster"]["nodes"]
            return [(each["replicas"], each["leaving"]) for each in known.values()] == [(3, 0)] * 4

        wait_until(shared, "every node has three of the twelve replicas")
        written = len(acknowledged)
        wait_until(lambda: len(acknowledged) > written + 100, "writes go on")
    finally:
        stop.set()
        for worker in workers:
            worker.join()
    # Leads are handed over and replicas move; nobody who writes meanwhile notices.
    assert not failed
    status = cluster.status(4)
    assert status["cluster"]["node"] == 4 and sorted(status["cluster"]["nodes"]) == ["1", "2", "3", "4"]
    assert sum("remote" not in shard for shard in status["containers"][0]["shards"]) == 3
    wait_until(lambda: cluster.status(1)["cluster"]["connected"] == [2, 3, 4], "all know the new node")
    check = nodes[4].order("/cluster/check", "GET").json
    assert check["equal"] and [len(shard["replicas"]) for shard in check["shards"]] == [3] * 4, check
    assert not set(acknowledged) - set(ids(at(nodes[4])))
    # It knows who it is, whatever it is told at its next start; and one of the others may die.
    del nodes[4].arguments[-2:]
    nodes[4].kill()
    nodes[1].kill()
    nodes[4].start()
    cluster.wait_led()
    at(nodes[4]).create_item({"id": "after", "pk": "after"})
    assert not {*acknowledged, "after"} - set(ids(at(nodes[2])))


def test_a_node_that_may_not_join_is_told_why(cluster, tmp_path):
    other = tmp_path / "other.key"
    other.write_text("another secret that is long enough to be one")
    ports = cluster.ports
    for wrong, words in [
        (cluster.newcomer(by=1, key=other), "does not know this node's cluster key"),
        (cluster.newcomer(1, "--set", "cluster.name=another"), "cannot join the cluster 'another'"),
        (cluster.newcomer(2, "--set", "cluster.node=3"), f"3 is taken by the node at 127.0.0.1:{ports[2]}"),
        (cluster.newcomer(3, "--set", f"cluster.address=127.0.0.1:{ports[0]}"), f"127.0.0.1:{ports[0]}"),
    ]:
        if words.startswith("127"):
            wrong.arguments[-2:-2] = ["--set", "cluster.node=9"]
        with pytest.raises(Refused) as refused:
            wrong.start()
        assert refused.value.code == 2 and words in refused.value.output, refused.value
    assert sorted(cluster.status(1)["cluster"]["nodes"]) == ["1", "2", "3"]


def test_a_drained_node_is_forgotten_and_does_not_come_back(new_node, tmp_path):
    cluster = Cluster(new_node, tmp_path, 4)
    make(cluster.nodes[1], offer_throughput=20_000)
    assert drain(cluster, 4, by=1).returncode == 0
    wait_until(lambda: cluster.status(1)["cluster"]["connected"] == [2, 3], "the node is forgotten")
    cluster.nodes[4].kill()
    with pytest.raises(Refused) as refused:
        cluster.nodes[4].start()
    assert refused.value.code == 2 and "node 4 has left the cluster" in refused.value.output, refused.value
    # With an empty folder it is a new node.
    back = cluster.newcomer(by=1)
    back.start()
    wait_until(lambda: sorted(cluster.status(2)["cluster"]["nodes"]) == ["1", "2", "3", "5"], "it has a new number")


def frame(body, version=1, cluster=0):
    """A frame between nodes, with a seal that nobody has made."""
    rest = struct.pack(">BQ16s", version, cluster, b"") + body
    return struct.pack(">I", len(rest)) + rest


def test_garbage_between_nodes_closes_the_connection_is_counted_and_takes_no_memory(cluster):
    node, address = cluster.nodes[1], ("127.0.0.1", cluster.ports[0])
    garbage = {
        "noise": os.urandom(64 * 1024),
        "oversize": struct.pack(">I", 2**31) + bytes(64 * 1024),
        "too short": struct.pack(">I", 3) + b"abc",
        "another version": frame(b"", version=99),
        "another cluster": frame(b"x" * 500, cluster=7),
    }

    def throw(times):
        for _ in range(times):
            for bytes_ in garbage.values():
                with socket.create_connection(address, timeout=10) as connection:
                    try:
                        connection.sendall(bytes_)
                        connection.shutdown(socket.SHUT_WR)
                        while connection.recv(4096):
                            pass
                    except OSError:
                        # Closed before all of it was taken.
                        pass
            # Cut short, it is a broken connection like any other.
            with socket.create_connection(address, timeout=10) as connection:
                connection.sendall(struct.pack(">I", 500) + b"cut")

    def seen():
        resident = Exported(node.health("/metrics").body.decode()).value("process_resident_memory_bytes")
        return cluster.status(1)["cluster"]["refusedFrames"], resident

    throw(40)
    wait_until(lambda: seen()[0] == 40 * len(garbage), "all are counted")
    refused, resident = seen()
    throw(400)
    wait_until(lambda: seen()[0] == refused + 400 * len(garbage), "all are counted")
    assert seen()[1] < resident + 16 * 2**20
    make(cluster.nodes[2])
    at(node).create_item({"id": "one", "pk": "a"})
