"""What nodes of a cluster may answer: consistency levels, nodes that were away, clocks that differ."""

import contextlib
import os
import signal
import socket
import subprocess
import threading
import time

import pytest
from azure.cosmos import CosmosClient, PartitionKey, exceptions

from cluster_test import Cluster, at, make
from node import EMULATOR_KEY, binary, settings_free, wait_until

KEY = {"x-ms-documentdb-partitionkey": '["a"]'}
ITEM = "/dbs/shop/colls/items/docs/one"


def level(name):
    return {**KEY, "x-ms-consistency-level": name}


@pytest.fixture
def cluster(new_node, tmp_path):
    return Cluster(new_node, tmp_path)


@pytest.fixture
def cluster_of(new_node, tmp_path):
    """A cluster whose account has the given level."""

    def of(consistency):
        def with_level(arguments, **options):
            return new_node(arguments=[*arguments, "--set", f"server.consistency={consistency}"], **options)

        return Cluster(with_level, tmp_path)

    return of


def test_strong_reads_see_every_acknowledged_write_at_every_node(cluster_of):
    first, second, third = cluster_of("strong").nodes.values()
    made = make(first)
    account = first.raw("GET", "/").json
    assert account["userConsistencyPolicy"]["defaultConsistencyLevel"] == "Strong"
    for index in range(60):
        at(second).upsert_item({"id": "one", "pk": "a", "n": index})
        for node in (third, first, second):
            # Without a session token, and without naming a level.
            answer = node.raw("GET", ITEM, KEY)
            assert answer.status == 200 and answer.json["n"] == index, (index, answer)
            query = {"query": "SELECT VALUE c.n FROM c", "parameters": []}
            headers = {**KEY, "x-ms-documentdb-isquery": "true", "content-type": "application/query+json"}
            found = node.raw("POST", "/dbs/shop/colls/items/docs", headers, query)
            assert found.json["Documents"] == [index], found
            feed = node.raw("GET", "/dbs/shop/colls/items/docs", {"a-im": "Incremental feed", **KEY})
            assert feed.json["Documents"][0]["n"] == index, feed
    for name in ("Strong", "BoundedStaleness", "Session", "ConsistentPrefix", "Eventual"):
        client = CosmosClient(third.endpoint, third.key, consistency_level=name)
        container = client.get_database_client("shop").get_container_client("items")
        assert container.read_item("one", "a")["n"] == 59
    assert made.read_item("one", "a")["n"] == 59


def test_a_request_may_ask_for_a_weaker_level_only(cluster_of):
    nodes = cluster_of("bounded-staleness").nodes
    make(nodes[1]).create_item({"id": "one", "pk": "a"})
    account = nodes[2].raw("GET", "/").json["userConsistencyPolicy"]
    assert account["defaultConsistencyLevel"] == "BoundedStaleness"
    assert account["maxStalenessPrefix"] == 100 and account["maxStalenessIntervalInSeconds"] == 5
    for node in nodes.values():
        for name in ("BoundedStaleness", "Session", "ConsistentPrefix", "Eventual"):
            wait_until(lambda: node.raw("GET", ITEM, level(name)).status == 200, f"{name} at {node.endpoint}")
        refused = node.raw("GET", ITEM, level("Strong"))
        assert refused.status == 400 and "Strong" in refused.message and "BoundedStaleness" in refused.message


def test_strong_reads_go_on_after_the_leader_died_and_stop_without_a_majority(cluster_of):
    cluster = cluster_of("strong")
    nodes = cluster.nodes
    make(nodes[1])
    leader = cluster.leader_of(("shop", "items"))
    others = [number for number in nodes if number != leader]
    at(nodes[leader]).create_item({"id": "one", "pk": "a"})
    nodes[leader].kill()
    assert nodes[others[0]].raw("GET", ITEM, KEY).status == 200
    nodes[others[1]].kill()
    wait_until(lambda: nodes[others[0]].raw("GET", ITEM, KEY).status == 503, "no majority, no strong read")


def test_a_change_of_the_default_ttl_holds_at_a_node_that_was_stopped_meanwhile(cluster):
    nodes = cluster.nodes
    made = make(nodes[1], default_ttl=-1)
    made.create_item({"id": "one", "pk": "a"})
    cluster.wait_level(("shop", "items"))
    stopped = nodes[3]
    assert stopped.raw("GET", ITEM, KEY).status == 200
    os.kill(stopped.process.pid, signal.SIGSTOP)
    try:
        time.sleep(1.5)

        def others_lead():
            groups = [group for number in (1, 2) for group in cluster.status(number)["cluster"]["groups"]]
            return all(group["leader"] in (1, 2) for group in groups)

        wait_until(others_lead, "the others lead everything")
        database = nodes[1].client().get_database_client("shop")
        database.replace_container("items", PartitionKey("/pk"), default_ttl=1)
        for node in (nodes[1], nodes[2]):
            assert node.raw("GET", ITEM, KEY).status == 404
    finally:
        os.kill(stopped.process.pid, signal.SIGCONT)
    # It answers when it has caught up, and never with what is gone.
    answers = {stopped.raw("GET", ITEM, KEY).status for _ in range(50)}
    assert 200 not in answers, answers
    wait_until(lambda: stopped.raw("GET", ITEM, KEY).status == 404, "it serves again")


def test_a_change_that_cannot_reach_a_majority_changes_nothing(cluster):
    nodes = cluster.nodes
    make(nodes[1], default_ttl=-1).create_item({"id": "one", "pk": "a"})
    nodes[2].kill()
    nodes[3].kill()
    headers = {"x-ms-consistency-level": "Eventual"}
    body = {"id": "items", "partitionKey": {"paths": ["/pk"], "kind": "Hash"}, "defaultTtl": 1}
    answer = nodes[1].raw("PUT", "/dbs/shop/colls/items", headers, body)
    assert answer.status == 503, answer
    nodes[2].start()
    nodes[3].start()
    cluster.wait_led()
    properties = wait_until(lambda: at(nodes[2]).read(), "the container is there")
    assert properties["defaultTtl"] == -1
    time.sleep(1.5)
    assert at(nodes[2]).read_item("one", "a")["id"] == "one"


@pytest.fixture
def skewed_cluster(faulty_node, tmp_path):
    """One whose nodes have wall clocks that can be set."""

    def skewed(arguments, **_):
        return faulty_node(arguments=arguments, started=False)

    return Cluster(skewed, tmp_path)


def set_clock(node, seconds):
    """Puts the wall clock of a node ahead by so much."""
    following = node.folder / "wall-clock.next"
    following.write_text(str(seconds))
    following.rename(node.wall_clock)


def test_time_runs_on_when_all_nodes_are_killed_and_their_clocks_put_back(skewed_cluster):
    nodes = skewed_cluster.nodes
    made = make(nodes[1], default_ttl=-1)
    before = made.create_item({"id": "before", "pk": "a"})["_ts"]
    for node in nodes.values():
        set_clock(node, 20)
    ahead = wait_until(lambda: (ts := made.upsert_item({"id": "ahead", "pk": "a"})["_ts"]) >= before + 20 and ts, "time jumps")
    since = time.monotonic()
    for node in nodes.values():
        node.kill()
        set_clock(node, 0)
    for node in nodes.values():
        node.start()
    skewed_cluster.wait_led()
    # The log alone would have it stand still until the clocks have caught up.
    passed = int(time.monotonic() - since)
    time.sleep(max(0, 2 - passed))
    after = at(nodes[2]).create_item({"id": "after", "pk": "a"})["_ts"]
    assert after - ahead >= int(time.monotonic() - since) - 1 >= 1


def test_one_clock_that_is_wrong_is_outvoted(skewed_cluster):
    nodes = skewed_cluster.nodes
    made = make(nodes[1], default_ttl=-1)
    set_clock(nodes[3], 300)
    time.sleep(1)
    written = made.create_item({"id": "one", "pk": "a", "ttl": 100})
    assert abs(written["_ts"] - time.time()) < 5
    skewed_cluster.wait_level(("shop", "items"))
    for node in nodes.values():
        assert node.raw("GET", ITEM, KEY).status == 200, "alive by the time of most"
    # Whoever leads, time goes on from where it was.
    leader = skewed_cluster.leader_of(("shop", "items"))
    nodes[leader].kill()
    survivor = next(node for number, node in nodes.items() if number != leader)
    later = at(survivor).create_item({"id": "two", "pk": "a"})
    assert 0 <= later["_ts"] - written["_ts"] < 60
    with pytest.raises(exceptions.CosmosResourceExistsError):
        at(survivor).create_item({"id": "one", "pk": "a"})


def documents_stored(node):
    containers = node.health("/status").json["containers"]
    return sum(shard.get("documents") or 0 for each in containers for shard in each["shards"])


@pytest.mark.parametrize("wrong", [[3], [1, 2, 3]])
def test_nodes_that_are_started_a_day_ahead_destroy_nothing(skewed_cluster, wrong):
    nodes = skewed_cluster.nodes
    made = make(nodes[1], default_ttl=-1)
    for n in range(5):
        made.create_item({"id": str(n), "pk": "a", "ttl": 3600})

    def restart(seconds_ahead):
        for number, node in nodes.items():
            node.stop()
            set_clock(node, seconds_ahead if number in wrong else 0)
        for node in nodes.values():
            node.spawn()
        for node in nodes.values():
            node.wait_ready()
        skewed_cluster.wait_led()

    wait_until(lambda: all(documents_stored(node) == 5 for node in nodes.values()), "all replicas have everything")
    restart(86_400)
    # Some ticks of the purger.
    time.sleep(2)
    for number in wrong:
        assert nodes[number].health("/status").json["purgingPaused"], number
    assert [documents_stored(node) for node in nodes.values()] == [5, 5, 5]
    restart(0)
    for node in nodes.values():
        found = node.raw("GET", "/dbs/shop/colls/items/docs", KEY)
        assert len(found.json["Documents"]) == 5, "time has not been dragged along"


def checked(node):
    return node.order("/cluster/check", "GET").json


def test_a_check_compares_live_items_of_all_replicas_under_load(cluster):
    nodes = cluster.nodes
    made = make(nodes[1], default_ttl=-1, offer_throughput=20_000)
    stop = threading.Event()

    def write():
        container, number = at(nodes[2]), 0
        while not stop.is_set():
            number += 1
            container.upsert_item({"id": f"{number % 50}", "pk": f"{number % 7}", "n": number, "ttl": 1 + number % 3})

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for node in (*nodes.values(), *nodes.values()):
            report = checked(node)
            assert report["equal"], report
            assert len(report["shards"]) == 2
            for shard in report["shards"]:
                assert [replica["node"] for replica in shard["replicas"]] == [1, 2, 3]
                assert len({(replica["lsn"], replica["at"], replica["sha256"]) for replica in shard["replicas"]}) == 1
    finally:
        stop.set()
        writer.join()
    made.create_item({"id": "one", "pk": "a"})
    items = sum(shard["replicas"][0]["items"] for shard in checked(nodes[3])["shards"])
    assert items >= 1
    nodes[3].kill()
    cluster.wait_led()
    report = checked(nodes[1])
    assert not report["equal"], "a replica that cannot be compared is no proof"
    assert [replica["node"] for replica in report["shards"][0]["replicas"] if replica["error"]] == [3]


def first_port_of_a_cluster():
    """Each of three nodes takes three ports in a row, and the nodes are ten apart; below those that the system gives out by itself."""
    for first in range(21_001, 32_000, 30):
        with contextlib.ExitStack() as held, contextlib.suppress(OSError):
            for port in (first + 10 * node + offset for node in range(3) for offset in range(3)):
                held.enter_context(socket.socket()).bind(("127.0.0.1", port))
            return first
    raise AssertionError("there are no nine free ports for three nodes")


def test_the_command_checks_a_cluster(tmp_path):
    def bolide(*arguments):
        command = [binary(), "cluster", *arguments, "--data-path", tmp_path / "cluster"]
        return subprocess.run(command, capture_output=True, text=True, env=settings_free(os.environ))

    port = first_port_of_a_cluster()
    started = bolide("up", "--port", str(port))
    assert started.returncode == 0, started
    try:
        client = CosmosClient(f"http://127.0.0.1:{port}/", EMULATOR_KEY)
        container = client.create_database("d").create_container("c", PartitionKey("/pk"))
        container.create_item({"id": "1", "pk": "p"})
        good = bolide("check")
        assert good.returncode == 0 and good.stdout.count("dbs/d/colls/c") == 3, good
    finally:
        bolide("down")
