"""A shard of a cluster splits while it is used on all nodes: nothing is lost, nothing comes twice, replicas stay equal, clients follow."""

import json
import threading
import time

import pytest
from azure.cosmos import exceptions
from cluster_test import Cluster, at, ids, make

from node import wait_until

NAME = "dbs/shop/colls/items"


@pytest.fixture
def cluster(new_node, tmp_path):
    return Cluster(new_node, tmp_path)


def split(node, range_id=None):
    """Status and answer of a wish for a split."""
    suffix = "" if range_id is None else f"&range={range_id}"
    answer = node.order(f"/split?container={NAME}{suffix}")
    return answer.status, answer.json


def shards(node):
    containers = node.health("/status").json["containers"]
    return next(one["shards"] for one in containers if one["container"] == NAME)


def range_ids(node):
    return [shard["range"]["id"] for shard in shards(node)]


def cleared(node):
    return not any(shard.get("splitLeftovers", True) for shard in shards(node))


def catalog_leader(cluster):
    return wait_until(lambda: cluster.status(cluster.running()[0])["cluster"]["catalogLeader"], "the catalog has a leader")


def fill(container, count, **more):
    for number in range(count):
        container.upsert_item({"id": f"item{number}", "pk": f"key{number % 40}", "n": number, "text": "x" * 200, **more})


def check_equal(cluster, seconds_max=60):
    """All replicas hold the same, as `bolide cluster check` sees it."""

    def equal():
        found = cluster.nodes[cluster.running()[0]].order("/cluster/check", "GET").json
        nodes = {len(shard["replicas"]) for shard in found["shards"]}
        return found["equal"] and nodes == {len(cluster.nodes)} and found

    return wait_until(equal, "all replicas are equal", seconds_max)


def test_a_shard_splits_on_all_nodes_whichever_is_asked(cluster):
    nodes = list(cluster.nodes.values())
    container = make(nodes[0])
    fill(container, 300)
    before = {item["id"]: item for item in container.read_all_items()}
    leader = catalog_leader(cluster)
    follower = next(node for number, node in cluster.nodes.items() if number != leader)
    assert split(follower) == (200, {"ranges": [1, 2]})
    # When it answers, every node has the parts, and none answers for the old range.
    for node in nodes:
        assert range_ids(node) == [1, 2]
        gone = node.raw("GET", f"/{NAME}/docs", {"x-ms-documentdb-partitionkeyrangeid": "0"})
        assert (gone.status, gone.substatus) == (410, 1002)
        known = at(node)
        ranges = list(known.client_connection._ReadPartitionKeyRanges(known.container_link))
        assert [(each["id"], each["parents"]) for each in ranges] == [("1", ["0"]), ("2", ["0"])]
        assert {item["id"]: item for item in known.read_all_items()} == before, "etag, _ts, _rid and contents go over"
    assert split(cluster.nodes[leader], 2) == (200, {"ranges": [3, 4]})
    for node in nodes:
        assert range_ids(node) == [1, 3, 4]
        at(node).upsert_item({"id": f"new{node.port}", "pk": "new", "n": -1})
    cluster.wait_level(("shop", "items"))
    for node in nodes:
        assert len(ids(at(node))) == 300 + len(nodes)
        wait_until(lambda node=node: cleared(node), "the parts are cleared")
        assert sum(shard["documents"] for shard in shards(node)) == 300 + len(nodes)
    check_equal(cluster)
    assert sum(node.metric("bolide_shard_splits_total") for node in nodes) == 2
    status, answer = split(follower, 0)
    assert (status, "no partition key range '0'" in answer["error"]) == (404, True)
    for node in nodes:
        node.kill()
    for node in nodes:
        node.spawn()
    for node in nodes:
        node.wait_ready()
    cluster.wait_led()
    assert len(ids(at(nodes[1]))) == 300 + len(nodes)
    check_equal(cluster)


def test_clients_that_know_the_old_range_go_on(cluster):
    first, second, third = cluster.nodes.values()
    make(first)
    fill(at(first), 300)
    cluster.wait_level(("shop", "items"))
    readers = []
    for node in (first, second, third):
        container = at(node)
        query = container.query_items("SELECT c.id FROM c", enable_cross_partition_query=True, max_item_count=50)
        ordered = container.query_items("SELECT c.id FROM c ORDER BY c.n", enable_cross_partition_query=True, max_item_count=50)
        feed = container.query_items_change_feed(start_time="Beginning", max_item_count=50)
        readers += [pages.by_page() for pages in (query, ordered, feed)]
    seen = [[item["id"] for item in next(pages)] for pages in readers]
    written = at(second).upsert_item({"id": "item7", "pk": "key7", "n": 7, "text": "old token"})
    token = written.get_response_headers()["x-ms-session-token"]
    assert token.startswith("0:")
    status, answer = split(second)
    assert status == 200, answer
    split(second, answer["ranges"][1])
    for pages, found in zip(readers, seen):
        for page in pages:
            found += [item["id"] for item in page]
    everything = sorted(f"item{number}" for number in range(300))
    for found in seen[0::3] + seen[1::3]:
        assert sorted(found) == everything
    for found in seen[2::3]:
        assert sorted(set(found)) == everything, "the feed has what was there; what was written meanwhile comes again"
    for node in (first, second, third):
        # A token of the old range is honoured by its parts.
        answer = node.raw(
            "GET", f"/{NAME}/docs/item7", {"x-ms-documentdb-partitionkey": '["key7"]', "x-ms-session-token": token}
        )
        assert (answer.status, answer.json["text"]) == (200, "old token")


class Load:
    """Writers at all nodes, each of which reads its own writes; what was acknowledged must be there in the end."""

    def __init__(self, cluster, workers=6):
        self.cluster, self.stop = cluster, threading.Event()
        self.acknowledged, self.refused, self.wrong = {}, [], []
        self.threads = [threading.Thread(target=self.write, args=(worker,)) for worker in range(workers)]
        for thread in self.threads:
            thread.start()

    def write(self, worker):
        nodes = list(self.cluster.nodes.values())
        container = at(nodes[worker % len(nodes)])
        number = 0
        while not self.stop.is_set():
            item = {"id": f"w{worker}-{number}", "pk": f"key{number % 25}", "n": number}
            try:
                container.create_item(item)
                self.acknowledged[item["id"]] = item["pk"]
                read = container.read_item(item["id"], item["pk"])
                if read["n"] != number:
                    self.wrong.append((item, read))
            except exceptions.CosmosResourceNotFoundError as failure:
                self.wrong.append((item, repr(failure)[:300]))
            except Exception as failure:  # noqa: BLE001
                self.refused.append((item["id"], repr(failure)[:2000]))
                time.sleep(0.02)
            number += 1

    def end(self):
        self.stop.set()
        for thread in self.threads:
            thread.join()
        assert not self.wrong, self.wrong[:3]
        return self.acknowledged


def test_writes_and_reads_go_on_at_all_nodes_through_splits(cluster):
    nodes = list(cluster.nodes.values())
    make(nodes[0])
    load = Load(cluster)
    try:
        time.sleep(1)
        status, answer = split(nodes[1])
        assert status == 200, answer
        time.sleep(0.5)
        for node, part in zip(nodes[1:], answer["ranges"]):
            status, answer = split(node, part)
            assert status == 200, answer
        time.sleep(0.5)
    finally:
        acknowledged = load.end()
    # Leaders are balanced anew after a split; who writes while one hands over does not notice.
    assert not load.refused, load.refused[:3]
    assert len(acknowledged) > 100
    cluster.wait_level(("shop", "items"))
    for node in nodes:
        assert set(ids(at(node))) == set(acknowledged)
    check_equal(cluster)


def test_strong_reads_see_every_acknowledged_write_at_every_node_through_splits(new_node, tmp_path):
    def strong(arguments, **options):
        return new_node(arguments=[*arguments, "--set", "server.consistency=strong"], **options)

    cluster = Cluster(strong, tmp_path)
    nodes = list(cluster.nodes.values())
    make(nodes[0])
    wrong, counts, stop = [], [0] * len(nodes), threading.Event()

    def write_and_read(worker):
        path, number = f"/{NAME}/docs", 0
        connections = [node.connection() for node in nodes]
        while not stop.is_set() and not wrong:
            item = {"id": f"{worker}-{number % 30}", "pk": f"key{number % 30}", "n": number}
            key = {"x-ms-documentdb-partitionkey": json.dumps([item["pk"]])}
            writer, reader = (worker + number) % len(nodes), (worker + number * 2 + 1) % len(nodes)
            upsert = {**key, "x-ms-documentdb-is-upsert": "true"}
            written = nodes[writer].raw("POST", path, upsert, item, connection=connections[writer])
            # Without a session token: the level alone promises it.
            read = nodes[reader].raw("GET", f"{path}/{item['id']}", key, connection=connections[reader])
            number += 1
            if written.status not in (200, 201) or read.status != 200 or read.json["n"] != item["n"]:
                wrong.append((item, written, read))
        counts[worker] = number

    threads = [threading.Thread(target=write_and_read, args=(worker,)) for worker in range(len(nodes))]
    [thread.start() for thread in threads]
    try:
        time.sleep(0.5)
        ranges = [0]
        for node in (*nodes, nodes[0]):
            status, answer = split(node, ranges.pop(0))
            assert status == 200, answer
            ranges += answer["ranges"]
            time.sleep(0.3)
    finally:
        stop.set()
        [thread.join() for thread in threads]
    assert not wrong, wrong[:2]
    assert all(count > 50 for count in counts), counts
    check_equal(cluster)


@pytest.mark.parametrize("victim", ["the leader of the shard", "the leader of the catalog", "another"])
@pytest.mark.parametrize("pause", [0.0, 0.03, 0.1, 0.3])
def test_kill_9_of_a_node_during_a_split_loses_nothing(cluster, victim, pause):
    nodes = cluster.nodes
    make(nodes[1], default_ttl=-1)
    fill(at(nodes[1]), 200)
    at(nodes[1]).create_item({"id": "doomed", "pk": "key1", "ttl": 2})
    cluster.wait_level(("shop", "items"))
    led, catalog = cluster.leader_of(("shop", "items")), catalog_leader(cluster)
    others = [number for number in nodes if number not in (led, catalog)]
    number = {"the leader of the shard": led, "the leader of the catalog": catalog, "another": others[0]}[victim]
    survivor = next(other for other in nodes if other != number)
    load = Load(cluster, workers=3)
    try:
        time.sleep(0.5)
        asked = threading.Thread(target=quietly, args=(lambda: split(nodes[survivor]),))
        asked.start()
        time.sleep(pause)
        nodes[number].kill()
        time.sleep(1.5)
        nodes[number].start()
        asked.join()
        cluster.wait_led()

        # The split is carried out, unless it had not begun; then it can be asked for again.
        def halves():
            try:
                if [range_ids(node) for node in nodes.values()] == [[1, 2]] * len(nodes):
                    return True
                split(nodes[survivor], 0)
            except OSError:
                pass
            return False

        wait_until(halves, "the shard is split on all nodes", pause=0.3)
    finally:
        acknowledged = load.end()
    cluster.wait_level(("shop", "items"))
    for node in nodes.values():
        there = set(ids(at(node)))
        lost = [name for name in acknowledged if name not in there]
        assert not lost, f"{len(lost)} of {len(acknowledged)} lost at {node.endpoint}: {lost[:5]}"
        assert {f"item{each}" for each in range(200)} <= there
        assert "doomed" not in there
    check_equal(cluster)
    at(nodes[number]).create_item({"id": "after", "pk": "key1"})


def test_a_node_that_was_away_during_splits_is_filled(cluster):
    nodes = cluster.nodes
    make(nodes[1], default_ttl=-1)
    fill(at(nodes[1]), 200)
    at(nodes[1]).create_item({"id": "doomed", "pk": "key1", "ttl": 2})
    cluster.wait_level(("shop", "items"))
    nodes[3].kill()
    cluster.wait_led()
    status, answer = split(nodes[1])
    assert (status, answer) == (200, {"ranges": [1, 2]})
    for number in range(200, 300):
        at(nodes[2]).create_item({"id": f"item{number}", "pk": f"key{number % 40}", "n": number})
    assert split(nodes[2], 1) == (200, {"ranges": [3, 4]})
    nodes[3].start()
    cluster.wait_led()
    cluster.wait_level(("shop", "items"))
    assert [range_ids(node) for node in nodes.values()] == [[3, 4, 2]] * 3
    check_equal(cluster)
    # It counts again: without another node it takes part in everything.
    nodes[1].kill()
    cluster.wait_led()
    assert sorted(ids(at(nodes[3]))) == sorted(f"item{number}" for number in range(300))
    at(nodes[3]).create_item({"id": "new", "pk": "key1"})
    assert split(nodes[3], 2) == (200, {"ranges": [5, 6]})
    nodes[1].start()
    cluster.wait_led()
    cluster.wait_level(("shop", "items"))
    check_equal(cluster)


def test_shards_of_some_nodes_split_beyond_their_bound_and_for_more_throughput(new_node, tmp_path):
    def small(arguments, **options):
        limits = ["--set", "limits.shard_bytes_max=60000", "--set", "storage.journal_mb_max=8"]
        return new_node(arguments=[*arguments, *limits], **options)

    cluster = Cluster(small, tmp_path, count=5)
    nodes = list(cluster.nodes.values())
    container = make(nodes[0])
    fill(container, 400)

    def sizes():
        """The bytes of every shard, wherever it is; nothing while some are being cleared or nobody tells."""
        found = {}
        for node in nodes:
            for shard in shards(node):
                if shard.get("splitLeftovers"):
                    return {}
                if "bytes" in shard:
                    found[shard["range"]["id"]] = shard["bytes"]
        return found

    def small_enough():
        found = sizes()
        return len(found) >= 2 and set(found) == set(range_ids(nodes[0])) and all(each <= 60_000 for each in found.values())

    wait_until(small_enough, "all shards are small enough")
    before = len(range_ids(nodes[0]))
    container.replace_throughput(10_000 * before + 100)
    wait_until(lambda: all(len(range_ids(node)) == before + 1 for node in nodes), "more throughput brings a shard more")
    for node in nodes:
        wait_until(lambda node=node: len(ids(at(node))) == 400, "everything is there at every node")


def quietly(work):
    try:
        work()
    except OSError:
        pass
