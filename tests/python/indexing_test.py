"""Indexes through the SDK: modes, progress, restarts in the middle of a build, places, computed properties, metrics."""

import json
import threading

import pytest
from azure.cosmos import PartitionKey, exceptions

from node import wait_until

PROGRESS = "x-ms-documentdb-collection-index-transformation-progress"
LAZY_PROGRESS = "x-ms-documentdb-collection-lazy-indexing-progress"
NO_INDEX = {"indexingMode": "none", "automatic": False}
LAZY = {"indexingMode": "lazy"}


def progress(container):
    """Percent of a new index, and of a lazy one."""
    container.read(populate_quota_info=True)
    headers = container.client_connection.last_response_headers
    lazy = headers.get(LAZY_PROGRESS)
    return int(headers[PROGRESS]), None if lazy is None else int(lazy)


def found(container, query, **options):
    return list(container.query_items(query, enable_cross_partition_query=True, **options))


def count(container, condition="true"):
    return found(container, f"SELECT VALUE COUNT(1) FROM c WHERE {condition}")[0]


def metrics(container, query, **options):
    """The rows of a query, and the paths in its index metrics as the SDK has decoded them."""
    hooked = {}
    rows = found(container, query, populate_index_metrics=True, response_hook=lambda headers, _: hooked.update(headers), **options)
    kinds = hooked["x-ms-cosmos-index-utilization"].items()
    return rows, {kind: [one.get("IndexSpec") or one.get("IndexSpecs") for one in entries] for kind, entries in kinds}


def load(node, container, numbers, threads=8, batch=100):
    """Creates items fast: batches over plain connections."""
    numbers = list(numbers)
    chunks = [numbers[at : at + batch] for at in range(0, len(numbers), batch)]
    lock = threading.Lock()
    failures = []

    def work():
        connection = node.connection()
        while True:
            with lock:
                if not chunks:
                    break
                chunk = chunks.pop()
            body = [
                {"operationType": "Create", "resourceBody": {"id": str(n), "pk": "p", "n": n, "g": n % 10, "text": "x" * 200}}
                for n in chunk
            ]
            answer = node.raw(
                "POST", f"/{container.container_link}/docs", body=body, connection=connection,
                headers={
                    "x-ms-cosmos-is-batch-request": "True", "x-ms-cosmos-batch-atomic": "True",
                    "x-ms-documentdb-partitionkey": '["p"]',
                },
            )  # fmt: skip
            if answer.status != 200:
                failures.append(answer)
        connection.close()

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not failures, failures[0]


# none


def test_without_an_index_queries_need_leave_to_scan(new_container):
    container = new_container(indexing_policy=NO_INDEX, offer_throughput=30_000)
    for n in range(5):
        container.create_item({"id": str(n), "pk": f"p{n}", "n": n})
    assert container.read_item("3", "p3")["n"] == 3
    assert len(list(container.read_all_items())) == 5
    for options in [{"enable_cross_partition_query": True}, {"partition_key": "p3"}]:
        for query in ["SELECT * FROM c WHERE c.n > 0", "SELECT * FROM c", "SELECT VALUE COUNT(1) FROM c"]:
            with pytest.raises(exceptions.CosmosHttpResponseError) as error:
                list(container.query_items(query, **options))
            assert error.value.status_code == 400
            assert "allow scan" in error.value.message
    assert sorted(found(container, "SELECT VALUE c.n FROM c WHERE c.n > 2", enable_scan_in_query=True)) == [3, 4]
    assert found(container, "SELECT VALUE c.n FROM c ORDER BY c.n DESC", enable_scan_in_query=True) == [4, 3, 2, 1, 0]
    one = container.query_items("SELECT VALUE c.n FROM c", partition_key="p3", enable_scan_in_query=True)
    assert list(one) == [3]
    assert progress(container) == (100, None)


def test_what_a_policy_leaves_out_is_found_all_the_same(new_container):
    policies = [
        {"includedPaths": [{"path": "/*"}], "excludedPaths": [{"path": "/n/?"}]},
        {"includedPaths": [{"path": "/g/?"}], "excludedPaths": [{"path": "/*"}]},
        {"includedPaths": [], "excludedPaths": [{"path": "/*"}]},
    ]
    for policy in policies:
        container = new_container(indexing_policy=policy)
        for n in range(20):
            container.create_item({"id": str(n), "pk": "p", "n": n, "g": n % 3, "tags": [n % 4]})
        assert sorted(found(container, "SELECT VALUE c.n FROM c WHERE c.n >= 15")) == [15, 16, 17, 18, 19]
        assert found(container, "SELECT TOP 2 VALUE c.n FROM c WHERE c.g = 1 ORDER BY c.n DESC") == [19, 16]
        assert count(container, "ARRAY_CONTAINS(c.tags, 3)") == 5


# lazy


def test_a_lazy_index_lags_and_catches_up_when_users_pause(new_container):
    container = new_container(indexing_policy=LAZY, default_ttl=1000)
    for n in range(50):
        container.create_item({"id": str(n), "pk": "p", "n": n})
    assert container.read_item("49", "p")["n"] == 49
    wait_until(lambda: progress(container) == (100, 100), "the lazy index catches up")
    assert count(container, "c.n >= 0") == 50
    container.delete_item("7", "p")
    assert count(container, "c.n >= 0") == 49, "what is gone is gone at once"


def test_a_change_of_time_to_live_rebuilds_a_lazy_index_from_nothing(new_node):
    node = new_node()
    database = node.client().create_database("d")
    container = database.create_container("c", PartitionKey("/pk"), indexing_policy=LAZY, default_ttl=1000)
    load(node, container, range(4_000))
    wait_until(lambda: progress(container) == (100, 100), "the lazy index catches up")
    assert count(container, "c.n >= 0") == 4_000
    database.replace_container(container, PartitionKey("/pk"), indexing_policy=LAZY, default_ttl=2000)
    seen = []

    def look():
        seen.append((progress(container), count(container, "c.n >= 0")))
        return seen[-1] == ((100, 100), 4_000)

    wait_until(look, "the lazy index is built again")
    assert any(rows < 4_000 for _, rows in seen), f"answers are incomplete meanwhile: {seen[:5]}"
    assert any(at[1] < 100 for at, _ in seen), seen[:5]
    assert "index changes on every shard" in node.log() and "rebuild=true" in node.log()


def test_a_lazy_index_keeps_up_under_load(new_node):
    """Writers never pause; the index may be behind, but not without bound."""
    node = new_node()
    container = node.client().create_database("d").create_container("c", PartitionKey("/pk"), indexing_policy=LAZY)
    # One transaction for each item: a lag of more than 10,000 of them is not waited with.
    load(node, container, range(14_000), threads=16, batch=1)
    reached = count(container, "c.n >= 0")
    assert reached > 0, "the index has begun while users were at work"
    wait_until(lambda: count(container, "c.n >= 0") == 14_000, "the lazy index catches up")


# consistent


def test_a_new_policy_is_built_beside_the_old_one_with_progress(new_node):
    node = new_node()
    database = node.client().create_database("d")
    narrow = {"includedPaths": [{"path": "/g/?"}], "excludedPaths": [{"path": "/*"}]}
    container = database.create_container("c", PartitionKey("/pk"), indexing_policy=narrow)
    load(node, container, range(20_000))
    _, used = metrics(container, "SELECT VALUE c.n FROM c WHERE c.n = 77")
    assert used["UtilizedSingleIndexes"] == [] and used["PotentialSingleIndexes"] == ["/n/?"]
    wide = {"includedPaths": [{"path": "/*"}]}
    database.replace_container(container, PartitionKey("/pk"), indexing_policy=wide)
    percents = []

    def look():
        percents.append(progress(container)[0])
        assert found(container, "SELECT VALUE c.n FROM c WHERE c.n = 77") == [77]
        assert count(container, "c.g = 3") == 2_000, "right answers all along"
        return percents[-1] == 100

    wait_until(look, "the new index is complete")
    assert percents == sorted(percents) and percents[0] < 100, percents
    _, used = metrics(container, "SELECT VALUE c.n FROM c WHERE c.n = 77")
    assert used["UtilizedSingleIndexes"] == ["/n/?"]
    index = node.health("/status").json["containers"][0]["shards"][0]["index"]
    assert index == {"mode": "consistent", "progress": 100, "lazyProgress": None}
    wait_until(lambda: "the index is complete on every shard" in node.log(), "the log tells")
    assert "the index is being built" in node.log()


@pytest.mark.parametrize("mode", ["consistent", "lazy"])
def test_a_build_goes_on_where_it_was_after_kill_9(new_node, mode):
    node = new_node()
    database = node.client().create_database("d")
    narrow = {"includedPaths": [{"path": "/g/?"}], "excludedPaths": [{"path": "/*"}]}
    container = database.create_container("c", PartitionKey("/pk"), indexing_policy=narrow)
    load(node, container, range(30_000))
    wide = {"includedPaths": [{"path": "/*"}], "indexingMode": mode}
    database.replace_container(container, PartitionKey("/pk"), indexing_policy=wide)
    reached = []
    for at_least in (15, 50):
        def halfway():
            shard = node.health("/status").json["containers"][0]["shards"][0]
            return shard["index"]["progress"] >= at_least and shard["index"]["progress"]

        reached.append(wait_until(halfway, "the build is under way", pause=0.001))
        node.kill()
        node.start()
        after = node.health("/status").json["containers"][0]["shards"][0]["index"]["progress"]
        # The last slices may not have been on disk; they are a small part.
        assert after >= reached[-1] - 5, (reached, after)
        if mode == "consistent":
            assert count(container, "c.n < 100") == 100, "right answers all along"
    wait_until(lambda: progress(container)[0] == 100, "the new index is complete")
    wait_until(lambda: count(container, "c.n < 100") == 100, "the index has everything")
    assert count(container, "c.g = 3") == 3_000
    rows, used = metrics(container, "SELECT VALUE c.n FROM c WHERE c.n = 77")
    assert rows == [77] and used["UtilizedSingleIndexes"] == ["/n/?"]


# places


def point(longitude, latitude):
    return {"type": "Point", "coordinates": [longitude, latitude]}


def test_places_are_found_by_their_index(new_container):
    spatial = {"spatialIndexes": [{"path": "/place/*", "types": ["Point", "Polygon", "LineString", "MultiPolygon"]}]}
    indexed = new_container(indexing_policy={"includedPaths": [{"path": "/*"}], **spatial})
    plain = new_container()
    for n in range(200):
        item = {"id": str(n), "pk": f"p{n % 5}", "n": n, "place": point(n % 20, n // 20)}
        indexed.create_item(item)
        plain.create_item(item)
    here = json.dumps(point(5, 5))
    ring = [[4.8, 4.8], [6.2, 4.8], [6.2, 5.2], [4.8, 5.2], [4.8, 4.8]]
    square = json.dumps({"type": "Polygon", "coordinates": [ring]})
    for condition, expected in [
        (f"ST_DISTANCE(c.place, {here}) < 60000", [105]),
        (f"ST_WITHIN(c.place, {square})", [105, 106]),
        (f"ST_INTERSECTS({square}, c.place)", [105, 106]),
    ]:
        query = f"SELECT VALUE c.n FROM c WHERE {condition}"
        rows, used = metrics(indexed, query)
        assert sorted(rows) == expected, condition
        assert used["UtilizedSingleIndexes"] == ["/place/*"]
        rows, used = metrics(plain, query)
        assert sorted(rows) == expected, condition
        assert used["PotentialSingleIndexes"] == ["/place/*"]


# index metrics


def test_index_metrics_tell_what_was_used_and_what_would_help(new_container):
    policy = {
        "includedPaths": [{"path": "/*"}], "excludedPaths": [{"path": "/hidden/?"}],
        "compositeIndexes": [[{"path": "/g", "order": "ascending"}, {"path": "/n", "order": "ascending"}]],
    }  # fmt: skip
    container = new_container(indexing_policy=policy)
    for n in range(300):
        container.create_item({"id": str(n), "pk": "p", "n": n, "g": n % 30, "h": n % 7, "hidden": n, "tags": [f"t{n}"]})
    single, composite = "UtilizedSingleIndexes", "UtilizedCompositeIndexes"
    maybe_single, maybe_composite = "PotentialSingleIndexes", "PotentialCompositeIndexes"
    for query, expected in [
        ("SELECT * FROM c WHERE c.n = 3", {single: ["/n/?"]}),
        ("SELECT * FROM c WHERE c.n IN (3, 4)", {single: ["/n/?"]}),
        ("SELECT * FROM c WHERE STARTSWITH(c.id, '29')", {single: ["/id/?"]}),
        ("SELECT * FROM c WHERE ARRAY_CONTAINS(c.tags, 't3')", {single: ["/tags/[]/?"]}),
        ("SELECT * FROM c WHERE c.n = 3 OR c.id = '5'", {single: ["/n/?", "/id/?"]}),
        ("SELECT TOP 3 * FROM c ORDER BY c.n", {single: ["/n/?"]}),
        ("SELECT VALUE COUNT(1) FROM c WHERE c.n > 3", {single: ["/n/?"]}),
        ("SELECT VALUE COUNT(1) FROM c WHERE c.h = 3 AND c.n > 3", {single: ["/h/?", "/n/?"]}),
        ("SELECT VALUE MAX(c.n) FROM c", {single: ["/n/?"]}),
        ("SELECT * FROM c WHERE c.hidden = 3", {maybe_single: ["/hidden/?"]}),
        ("SELECT TOP 3 * FROM c ORDER BY c.hidden", {maybe_single: ["/hidden/?"]}),
        ("SELECT * FROM c ORDER BY c.g, c.n", {composite: [["/g ASC", "/n ASC"]]}),
        ("SELECT * FROM c WHERE c.g = 3 AND c.n > 200", {composite: [["/g ASC", "/n ASC"]]}),
        ("SELECT * FROM c WHERE c.g = 3 ORDER BY c.n DESC", {composite: [["/g ASC", "/n ASC"]]}),
        ("SELECT * FROM c WHERE c.h = 3 AND c.n > 290", {single: ["/n/?"], maybe_composite: [["/h ASC", "/n ASC"]]}),
    ]:
        _, used = metrics(container, query)
        used = {kind: sorted(specs) for kind, specs in used.items() if specs}
        assert used == {kind: sorted(specs) for kind, specs in expected.items()}, query
    with pytest.raises(exceptions.CosmosHttpResponseError) as error:
        found(container, "SELECT * FROM c ORDER BY c.h, c.n")
    assert error.value.status_code == 400
    assert "composite index" in error.value.message


# computed properties


COMPUTED = [
    {"name": "lower", "query": "SELECT VALUE LOWER(c.name) FROM c"},
    {"name": "discount", "query": "SELECT VALUE c.price * 0.8 FROM c"},
]


def test_computed_properties_read_like_properties(shared_database, new_container):
    container = new_container(computed_properties=COMPUTED, offer_throughput=30_000)
    assert container.read()["computedProperties"] == COMPUTED
    names = ["Zoe", "ada", "Bob", "carl"]
    for n, name in enumerate(names):
        container.create_item({"id": str(n), "pk": f"p{n}", "name": name, "price": 10 * (n + 1)})
    for query, expected in [
        ("SELECT VALUE c.id FROM c WHERE c.lower = 'zoe'", ["0"]),
        ("SELECT VALUE c.lower FROM c ORDER BY c.lower", ["ada", "bob", "carl", "zoe"]),
        ("SELECT VALUE c.id FROM c WHERE c.discount > 20 ORDER BY c.discount DESC", ["3", "2"]),
        ("SELECT c.lower, c.discount FROM c WHERE c.id = '1'", [{"lower": "ada", "discount": 16}]),
        ("SELECT VALUE MAX(c.discount) FROM c", [32]),
    ]:
        assert found(container, query) == expected, query
    everything = found(container, "SELECT * FROM c")
    assert all("lower" not in item and "discount" not in item for item in everything)
    assert "lower" not in container.read_item("0", "p0")
    changed = [{"name": "upper", "query": "SELECT VALUE UPPER(c.name) FROM c"}]
    shared_database.replace_container(container, PartitionKey("/pk"), computed_properties=changed)
    assert found(container, "SELECT VALUE c.id FROM c WHERE c.upper = 'ZOE'") == ["0"]
    assert found(container, "SELECT VALUE c.id FROM c WHERE c.lower = 'zoe'") == []


def test_bad_computed_properties_are_refused(new_container):
    for query in ["SELECT c.name FROM c", "SELECT VALUE RAND() FROM c", "SELECT VALUE LOWER( FROM c"]:
        with pytest.raises(exceptions.CosmosHttpResponseError) as error:
            new_container(computed_properties=[{"name": "x", "query": query}])
        assert error.value.status_code == 400
