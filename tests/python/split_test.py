"""A shard splits while it is used: nothing is lost, nothing comes twice, clients follow."""

import threading
import time

import pytest
from azure.cosmos import PartitionKey, exceptions

from node import wait_until

NAME = "dbs/shop/colls/carts"


def make(node, **options):
    database = node.client().create_database_if_not_exists("shop")
    options.setdefault("partition_key", PartitionKey(path="/pk"))
    return database.create_container("carts", **options)


def post(node, path):
    answer = node.order(path)
    return answer.status, answer.json


def split(node, range_id=None):
    suffix = "" if range_id is None else f"&range={range_id}"
    status, answer = post(node, f"/split?container={NAME}{suffix}")
    assert status == 200, answer
    return answer["ranges"]


def shards(node):
    containers = node.health("/status").json["containers"]
    return next(one["shards"] for one in containers if one["container"] == NAME)


def cleared(node):
    return not any(shard["splitLeftovers"] for shard in shards(node))


def fill(container, count, **more):
    for number in range(count):
        container.upsert_item({"id": f"item{number}", "pk": f"key{number % 40}", "n": number, "text": "x" * 200, **more})


def ids(container):
    found = [item["id"] for item in container.query_items("SELECT c.id FROM c", enable_cross_partition_query=True)]
    assert len(found) == len(set(found)), "an item came twice"
    return set(found)


def test_split_keeps_every_item_and_names_the_parts(new_node):
    node = new_node()
    container = make(node)
    fill(container, 400)
    before = {item["id"]: item for item in container.read_all_items()}
    assert split(node) == [1, 2]
    ranges = list(container.client_connection._ReadPartitionKeyRanges(container.container_link))
    assert [(each["id"], each["parents"]) for each in ranges] == [("1", ["0"]), ("2", ["0"])]
    assert ranges[0]["maxExclusive"] == ranges[1]["minInclusive"]
    after = {item["id"]: item for item in container.read_all_items()}
    assert after == before, "etag, _ts, _rid and contents go over unchanged"
    count = list(container.query_items("SELECT VALUE COUNT(1) FROM c", enable_cross_partition_query=True))
    assert count == [400], "counts do not wait for the clearing"
    wait_until(lambda: cleared(node), "the parts are cleared")
    assert sum(shard["documents"] for shard in shards(node)) == 400
    assert all(100 < shard["documents"] < 300 for shard in shards(node)), "about halves"
    assert list(container.query_items("SELECT VALUE COUNT(1) FROM c WHERE c.n >= 100", enable_cross_partition_query=True)) == [300]
    node.kill()
    node.start()
    assert {item["id"]: item for item in make_again(node).read_all_items()} == before


def make_again(node):
    return node.client().get_database_client("shop").get_container_client("carts")


def test_a_client_that_knows_the_old_range_goes_on(new_node):
    node = new_node()
    container = make(node)
    fill(container, 300)
    pages = container.query_items("SELECT c.id FROM c", enable_cross_partition_query=True, max_item_count=50).by_page()
    seen = [item["id"] for item in next(pages)]
    ordered = container.query_items(
        "SELECT c.id, c.n FROM c ORDER BY c.n", enable_cross_partition_query=True, max_item_count=50
    ).by_page()
    in_order = [item["n"] for item in next(ordered)]
    feed = container.query_items_change_feed(start_time="Beginning", max_item_count=50).by_page()
    changes = [item["id"] for item in next(feed)]
    left, right = split(node)
    split(node, right)
    for page in pages:
        seen += [item["id"] for item in page]
    for page in ordered:
        in_order += [item["n"] for item in page]
    for page in feed:
        changes += [item["id"] for item in page]
    assert sorted(seen) == sorted(f"item{number}" for number in range(300))
    assert in_order == list(range(300))
    assert sorted(changes) == sorted(f"item{number}" for number in range(300))
    gone = node.raw("GET", f"/{NAME}/docs", {"x-ms-documentdb-partitionkeyrangeid": "0"})
    assert (gone.status, gone.substatus) == (410, 1002)


@pytest.mark.parametrize(
    "text", ["SELECT c.id FROM c", "SELECT c.id FROM c WHERE c.n >= 0", "SELECT c.id FROM c WHERE STARTSWITH(c.text, 'x')"]
)
def test_tokens_of_a_range_that_was_split_go_on_in_its_parts(new_node, text):
    node = new_node()
    container = make(node)
    fill(container, 300)
    path = f"/{NAME}/docs"
    query = {
        "x-ms-documentdb-isquery": "true",
        "content-type": "application/query+json",
        "x-ms-documentdb-query-enablecrosspartition": "true",
        "x-ms-max-item-count": "40",
    }
    seen, token, pages = [], None, 0
    while True:
        more = {} if token is None else {"x-ms-continuation": token}
        answer = node.raw("POST", path, {**query, **more}, body={"query": text, "parameters": []})
        assert answer.status == 200, answer.body
        seen += [item["id"] for item in answer.json["Documents"]]
        token = answer.headers.get("x-ms-continuation")
        pages += 1
        if pages == 2:
            parts = split(node)
        if pages == 4:
            split(node, parts[0])
        if token is None:
            break
    assert sorted(seen) == sorted(f"item{number}" for number in range(300))


def test_writes_go_on_through_splits_and_none_is_lost(new_node):
    node = new_node()
    container = make(node, unique_key_policy={"uniqueKeys": [{"paths": ["/code"]}]})
    written, failures, stop = {}, [], threading.Event()

    def write(worker):
        own = make_again(node)
        number = 0
        while not stop.is_set():
            identity = f"w{worker}-{number % 150}"
            body = {"id": identity, "pk": f"key{number % 25}", "n": number, "code": f"c{worker}-{number % 150}"}
            try:
                written[identity] = own.upsert_item(body)["n"]
                read = own.read_item(identity, partition_key=body["pk"])
                assert read["n"] == number, (read, number)
            except Exception as failure:  # noqa: BLE001
                failures.append(failure)
                return
            number += 1

    # Ids are upserted under several keys: an item is known by both.
    threads = [threading.Thread(target=write, args=(worker,)) for worker in range(4)]
    [thread.start() for thread in threads]
    time.sleep(1)
    first = split(node)
    time.sleep(0.5)
    split(node, first[0])
    split(node, first[1])
    time.sleep(0.5)
    stop.set()
    [thread.join() for thread in threads]
    assert not failures, failures[:2]
    wait_until(lambda: cleared(node), "the parts are cleared")
    items = list(container.read_all_items())
    latest = {}
    for item in items:
        latest[item["id"]] = max(item["n"], latest.get(item["id"], -1))
    assert latest == written
    with pytest.raises(exceptions.CosmosResourceExistsError):
        container.create_item({**{key: items[0][key] for key in ("pk", "code")}, "id": "other"})
    counted = list(container.query_items("SELECT VALUE COUNT(1) FROM c", enable_cross_partition_query=True))
    assert counted == [len(items)] == [sum(shard["documents"] for shard in shards(node))]


def test_expiry_goes_on_through_a_split(new_node):
    node = new_node()
    container = make(node, default_ttl=4)
    fill(container, 100)
    for number in range(100):
        container.upsert_item({"id": f"stay{number}", "pk": f"key{number % 40}", "n": number, "ttl": -1})
    split(node)
    assert len(ids(container)) == 200
    time.sleep(5)
    assert ids(container) == {f"stay{number}" for number in range(100)}
    counted = list(container.query_items("SELECT VALUE COUNT(1) FROM c WHERE c.n >= 0", enable_cross_partition_query=True))
    assert counted == [100]
    definition = container.read()
    node.client().get_database_client("shop").replace_container(container, PartitionKey(path="/pk"), default_ttl=-1)
    assert len(ids(container)) == 100, "expiry is final in the parts, too"
    assert definition["defaultTtl"] == 4
    wait_until(lambda: sum(shard["documents"] for shard in shards(node)) == 100, "the expired are purged and nothing else")


def test_a_new_index_that_is_being_built_is_carried_over(new_node):
    node = new_node()
    container = make(node)
    fill(container, 3000)
    policy = {"indexingMode": "consistent", "includedPaths": [{"path": "/n/?"}], "excludedPaths": [{"path": "/*"}]}
    node.client().get_database_client("shop").replace_container(
        container, PartitionKey(path="/pk"), indexing_policy=policy
    )
    split(node)
    query = "SELECT VALUE COUNT(1) FROM c WHERE c.n >= 1000"
    assert list(container.query_items(query, enable_cross_partition_query=True)) == [2000]
    wait_until(lambda: all(shard["index"]["progress"] == 100 for shard in shards(node)), "the index is complete")
    wait_until(lambda: cleared(node), "the parts are cleared")
    assert list(container.query_items(query, enable_cross_partition_query=True)) == [2000]


def test_hierarchical_keys_are_never_cut(new_node):
    node = new_node()
    container = make(node, partition_key=PartitionKey(path=["/tenant", "/user"], kind="MultiHash"))
    for number in range(200):
        container.create_item({"id": str(number), "tenant": f"t{number % 5}", "user": f"u{number % 20}"})
    split(node)
    for tenant in range(5):
        found = container.query_items("SELECT VALUE c.id FROM c WHERE c.tenant = @t", parameters=[{"name": "@t", "value": f"t{tenant}"}], enable_cross_partition_query=True)
        assert len(list(found)) == 40
    assert container.read_item("7", partition_key=["t2", "u7"])["id"] == "7"


def test_what_cannot_be_split_is_refused(new_node):
    node = new_node()
    container = make(node)
    for number in range(20):
        container.create_item({"id": str(number), "pk": "same"})
    status, answer = post(node, f"/split?container={NAME}")
    assert (status, "single partition key" in answer["error"]) == (400, True)
    assert post(node, f"/split?container={NAME}&range=7")[0] == 404
    assert post(node, "/split?container=carts")[0] == 400
    assert len(list(container.read_all_items())) == 20
    container.create_item({"id": "still writable", "pk": "same"})


def test_shards_split_beyond_their_bound_and_for_more_throughput(new_node):
    node = new_node(arguments=["--set", "limits.shard_bytes_max=100000"])
    container = make(node)
    fill(container, 600)
    wait_until(lambda: len(shards(node)) >= 2 and cleared(node), "the shard is split by its size")
    wait_until(
        lambda: cleared(node) and all(shard["bytes"] <= 100_000 for shard in shards(node)), "all are small enough"
    )
    before = len(shards(node))
    container.replace_throughput(10_000 * before + 100)
    wait_until(lambda: len(shards(node)) == before + 1, "more throughput brings a shard more")
    assert len(ids(container)) == 600


@pytest.mark.parametrize("pause", [0.0, 0.005, 0.01, 0.02, 0.03, 0.05, 0.08, 0.15, 0.4])
def test_kill_at_any_moment_of_a_split_loses_nothing(new_node, pause):
    node = new_node()
    container = make(node)
    fill(container, 300)
    asked = threading.Thread(target=lambda: quietly(lambda: post(node, f"/split?container={NAME}")))
    asked.start()
    time.sleep(pause)
    node.kill()
    asked.join()
    node.start()
    container = make_again(node)
    assert ids(container) == {f"item{number}" for number in range(300)}
    assert len(shards(node)) in (1, 2)
    wait_until(lambda: cleared(node), "the parts are cleared")
    assert sum(shard["documents"] for shard in shards(node)) == 300
    container.create_item({"id": "new", "pk": "key1"})


def quietly(work):
    try:
        work()
    except OSError:
        pass
