"""When a node says that it should be sent requests: 200 or 503 on /ready, and what it lists."""

import shutil
import signal
import socket

from azure.cosmos import PartitionKey

from cluster_test import Cluster
from metrics import Exported
from node import free_ports, signed_headers, wait_until


def ready(node, query=""):
    answer = node.health(f"/ready{query}")
    told = answer.json
    assert told["ready"] == (answer.status == 200), told
    assert answer.status in (200, 503)
    return answer.status, told


def state(node):
    try:
        status, told = ready(node)
        return status, told["state"]
    except OSError:
        return None


def shards(node, condition):
    exported = Exported(node.health("/metrics").body.decode())
    return exported.value("bolide_shards", state=condition)


def damage(node, container):
    """Makes the shards of a container unreadable while the node is down; answers how many."""
    status = node.health("/status").json["containers"]
    names = [one["container"] for one in status]
    node.stop()
    folders = sorted((node.data / "shards").iterdir())
    assert len(folders) == len(names)
    # Folders are named by resource ids, which grow as containers are made.
    (folders[container] / "CURRENT").write_text("nonsense\n")


def test_a_node_without_shards_is_ready(new_node):
    node = new_node()
    assert ready(node) == (200, {"ready": True, "state": "ready", "reason": None, "broken": [], "opening": 0})
    assert ready(node, "?strict")[0] == 200
    assert node.metric("bolide_ready") == 1


def test_a_broken_shard_is_listed_and_counted_and_the_others_serve(new_node):
    node = new_node()
    database = node.client().create_database("d")
    for name in ["a", "b"]:
        database.create_container(name, PartitionKey("/pk")).create_item({"id": "1", "pk": "p"})
    damage(node, 0)
    node.start()
    status, told = ready(node)
    assert (status, told["state"]) == (200, "degraded")
    [broken] = told["broken"]
    assert broken["container"] == "dbs/d/colls/a" and broken["range"] == 0
    assert broken["state"] == "down" and "CURRENT" in broken["reason"]
    assert ready(node, "?strict")[0] == 503 and ready(node, "?strict=true")[0] == 503
    assert (shards(node, "down"), shards(node, "serving"), node.metric("bolide_ready")) == (1, 1, 1)
    assert database.get_container_client("b").read_item("1", "p")["id"] == "1"


def test_a_node_none_of_whose_shards_can_serve_is_not_ready(new_node):
    node = new_node()
    node.client().create_database("d").create_container("a", PartitionKey("/pk"))
    damage(node, 0)
    node.start()
    status, told = ready(node)
    assert (status, told["state"], len(told["broken"])) == (503, "no_shard", 1)
    assert node.metric("bolide_ready") == 0
    assert node.health("/alive").status == 200


def test_a_node_that_is_starting_says_so(new_node, tmp_path):
    [nobody, own] = free_ports(2)
    key = tmp_path / "cluster.key"
    key.write_text("0123456789abcdef" * 4)
    node = new_node(
        start=False,
        arguments=[
            "--set", f"cluster.address=127.0.0.1:{own}", "--set", f"cluster.key_file={key}",
            "--join", f"127.0.0.1:{nobody}",
        ],  # fmt: skip
    )
    node.spawn()
    assert wait_until(lambda: state(node), "the health port answers") == (503, "starting")
    assert node.health("/alive").status == 200
    assert node.health("/status").status == 503
    assert node.metric("bolide_ready") == 0
    assert node.order("/split?container=dbs/d/colls/c").status == 503


def test_a_node_that_is_stopping_says_so(new_node):
    node = new_node(arguments=["--set", "server.shutdown_seconds=60"])
    node.raw("POST", "/dbs", body={"id": "d"})
    headers = {**signed_headers("POST", "/dbs"), "host": "localhost", "content-length": "100"}
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    with socket.create_connection(("127.0.0.1", node.port)) as slow:
        # A request whose body never comes keeps the node from ending.
        slow.sendall(f"POST /dbs HTTP/1.1\r\n{lines}\r\n{{".encode())
        wait_until(lambda: node.metric("bolide_requests_in_flight") == 1, "the request is being read")
        node.process.send_signal(signal.SIGTERM)
        wait_until(lambda: state(node) == (503, "stopping"), "it says that it is stopping")


def test_a_node_without_the_catalogs_quorum_is_not_ready(new_node, tmp_path):
    cluster = Cluster(new_node, tmp_path)
    nodes = cluster.nodes
    nodes[1].client().create_database("d").create_container("c", PartitionKey("/pk"))
    wait_until(lambda: state(nodes[1]) == (200, "ready"), "all is well")
    nodes[2].kill()
    nodes[3].kill()
    wait_until(lambda: state(nodes[1]) == (503, "no_quorum"), "it is alone")
    wait_until(lambda: shards(nodes[1], "leaderless") == 1, "the shard has no leader")
    [broken] = ready(nodes[1])[1]["broken"]
    assert broken["container"] == "dbs/d/colls/c" and broken["state"] == "leaderless"
    assert nodes[1].metric("bolide_ready") == 0
    nodes[2].start()
    wait_until(lambda: state(nodes[1]) == (200, "ready"), "two of three are a majority")


def test_a_drained_node_is_not_ready(new_node, tmp_path):
    cluster = Cluster(new_node, tmp_path)
    assert cluster.nodes[1].order("/cluster/drain/3").status == 202
    wait_until(lambda: state(cluster.nodes[3]) in [(503, "drained"), (503, "no_quorum")], "the drained node is not ready")
    wait_until(lambda: state(cluster.nodes[1]) == (200, "ready"), "those that stay are")


def level(nodes):
    """Whether all running nodes have applied the same."""
    lsns = [[shard["lsn"] for shard in node.health("/status").json["containers"][0]["shards"]] for node in nodes]
    return all(each == lsns[0] for each in lsns)


def test_a_replica_that_cannot_take_part_is_broken(new_node, tmp_path):
    cluster = Cluster(new_node, tmp_path)
    nodes = cluster.nodes
    container = nodes[1].client().create_database("d").create_container("c", PartitionKey("/pk"))
    container.create_item({"id": "first", "pk": "p"})
    wait_until(lambda: level(nodes.values()), "node 3 has the first item")
    nodes[3].stop()
    # The Raft log as it is now, with what is recorded of it.
    older = tmp_path / "older"
    older.mkdir()
    shutil.copytree(nodes[3].data / "raft", older / "raft")
    shutil.copy(nodes[3].data / "watermarks", older)
    nodes[3].start()
    for number in range(10):
        container.create_item({"id": str(number), "pk": "p"})
    wait_until(lambda: level(nodes.values()), "node 3 has all items")
    nodes[3].kill()
    shutil.rmtree(nodes[3].data / "raft")
    shutil.copytree(older / "raft", nodes[3].data / "raft")
    shutil.copy(older / "watermarks", nodes[3].data)
    nodes[3].start()
    wait_until(lambda: "cannot take part" in nodes[3].log(), "the replica finds its log too short")
    wait_until(lambda: ready(nodes[3])[1]["broken"], "the replica is listed")
    [broken] = ready(nodes[3])[1]["broken"]
    assert broken["container"] == "dbs/d/colls/c" and "cannot take part" in broken["reason"]
    assert ready(nodes[3])[0] == 503, "none of its shards can serve"
    assert shards(nodes[3], "down") == 1
    assert ready(nodes[1])[0] == 200
