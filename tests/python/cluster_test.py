"""Three node processes as one: any node answers, any node may die."""

import threading
import time

import pytest
from azure.cosmos import PartitionKey, exceptions

from node import free_ports, wait_until

NODES = 3


class Cluster:
    """Three nodes on free ports with a key of their own."""

    def __init__(self, new_node, tmp_path):
        key = tmp_path / "cluster.key"
        key.write_text("0123456789abcdef" * 4)
        ports = free_ports(NODES)
        members = ",".join(f"{number}=127.0.0.1:{port}" for number, port in enumerate(ports, 1))
        self.nodes = {
            number: new_node(
                start=False,
                arguments=[
                    "--set", f"cluster.node={number}", "--set", f"cluster.members={members}",
                    "--set", f"cluster.key_file={key}",
                ],  # fmt: skip
            )
            for number in range(1, NODES + 1)
        }
        for node in self.nodes.values():
            node.spawn()
        for node in self.nodes.values():
            node.wait_ready()
        self.wait_led()

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
                    found.append([shard["lsn"] for shard in each["shards"]])
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
