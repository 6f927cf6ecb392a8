"""Reading many items: the read feed page by page, readMany, simple queries."""

import pytest
from azure.cosmos import exceptions


@pytest.fixture
def filled(new_container):
    """50 items in 10 partitions over 3 shards."""
    container = new_container(offer_throughput=30_000)
    for n in range(50):
        container.create_item({"id": str(n), "pk": f"key {n % 10}", "n": n})
    return container


def numbers(items):
    return sorted(int(each["id"]) for each in items)


def test_read_all_items_reads_each_once(filled):
    assert numbers(filled.read_all_items()) == list(range(50))


def test_read_all_items_page_by_page(filled):
    pages = [list(page) for page in filled.read_all_items(max_item_count=7).by_page()]
    assert all(len(page) <= 7 for page in pages)
    assert len(pages) >= 8
    assert numbers(item for page in pages for item in page) == list(range(50))


def test_continuation_goes_on_where_the_page_ended_for_another_reader(filled, node):
    seen = []
    token = None
    while True:
        pager = filled.read_all_items(max_item_count=9).by_page(token)
        seen += list(next(pager))
        token = pager.continuation_token
        if not token:
            break
        assert len(token) <= 1024
    assert numbers(seen) == list(range(50))


def test_continuation_survives_inserts_and_deletes(filled):
    pager = filled.read_all_items(max_item_count=10).by_page()
    seen = list(next(pager))
    unseen = [n for n in range(50) if str(n) not in {each["id"] for each in seen}]
    filled.delete_item(str(unseen[0]), f"key {unseen[0] % 10}")
    filled.create_item({"id": "1000", "pk": "key 0"})
    seen += [item for page in pager for item in page]
    ids = [int(each["id"]) for each in seen]
    assert len(ids) == len(set(ids))
    assert set(range(50)) - {unseen[0]} <= set(ids) <= set(range(50)) - {unseen[0]} | {1000}


def test_bad_continuation_is_400(node, filled):
    answer = node.raw("GET", f"/{filled.container_link}/docs", headers={"x-ms-continuation": "nonsense"})
    assert answer.status == 400, answer
    assert "ontinuation" in answer.message


@pytest.mark.parametrize("count", ["0", "-5", "many"])
def test_bad_page_size_is_400(node, filled, count):
    answer = node.raw("GET", f"/{filled.container_link}/docs", headers={"x-ms-max-item-count": count})
    assert answer.status == 400, answer
    assert count in answer.message


def test_feed_envelope(node, filled):
    answer = node.raw("GET", f"/{filled.container_link}/docs", headers={"x-ms-max-item-count": "-1"})
    assert answer.status == 200
    assert answer.json["_rid"] == filled.read()["_rid"]
    assert answer.json["_count"] == len(answer.json["Documents"]) == 50
    assert answer.headers["x-ms-item-count"] == "50"


def test_empty_container_is_an_empty_feed(node, container):
    assert list(container.read_all_items()) == []
    answer = node.raw("GET", f"/{container.container_link}/docs")
    assert answer.json["Documents"] == []
    assert "x-ms-continuation" not in answer.headers


def test_page_of_large_items_stays_under_4_mb(container):
    for n in range(6):
        container.create_item({"id": str(n), "pk": "p", "text": "x" * 1_000_000})
    pages = [list(page) for page in container.read_all_items(max_item_count=100).by_page()]
    assert numbers(item for page in pages for item in page) == list(range(6))
    assert all(len(page) <= 4 for page in pages)


def test_read_items_finds_what_is_there(filled):
    wanted = [(str(n), f"key {n % 10}") for n in (1, 11, 21, 5, 49)] + [("missing", "key 1"), ("1", "key 2")]
    assert numbers(filled.read_items(wanted)) == [1, 5, 11, 21, 49]
    assert numbers(filled.read_items([("3", "key 3")])) == [3]
    assert filled.read_items([]) == []


def test_query_within_a_partition(filled):
    found = filled.query_items("SELECT * FROM c", partition_key="key 3")
    assert numbers(found) == [3, 13, 23, 33, 43]


def test_query_over_all_partitions(filled):
    assert numbers(filled.query_items("SELECT * FROM c", enable_cross_partition_query=True)) == list(range(50))
    found = filled.query_items(
        "SELECT * FROM c WHERE c.n = @n", parameters=[{"name": "@n", "value": 7}], enable_cross_partition_query=True
    )
    assert numbers(found) == [7]


def test_query_page_by_page(filled):
    pages = [
        list(page)
        for page in filled.query_items(
            "SELECT * FROM c", enable_cross_partition_query=True, max_item_count=8
        ).by_page()
    ]
    assert all(len(page) <= 8 for page in pages)
    assert numbers(item for page in pages for item in page) == list(range(50))


def test_query_over_partitions_must_be_asked_for(filled):
    with pytest.raises(exceptions.CosmosHttpResponseError) as error:
        list(filled.query_items("SELECT * FROM c"))
    assert error.value.status_code == 400
    assert "Cross partition query is required but disabled" in error.value.message


def test_query_that_is_no_sql_is_400(filled):
    with pytest.raises(exceptions.CosmosHttpResponseError) as error:
        list(filled.query_items("SELEKT * FROM c", partition_key="key 1"))
    assert error.value.status_code == 400
    assert "SELEKT" in error.value.message


def test_query_by_feed_range(filled):
    ranges = list(filled.read_feed_ranges())
    parts = [numbers(filled.query_items("SELECT * FROM c", feed_range=each)) for each in ranges]
    assert all(parts)
    assert sorted(n for part in parts for n in part) == list(range(50))


def test_session_token_names_every_range_that_answered(filled, node):
    path = f"/{filled.container_link}/docs"
    ranges = {each["id"] for each in node.raw("GET", f"/{filled.container_link}/pkranges").json["PartitionKeyRanges"]}
    assert len(ranges) == 3

    def named(answer):
        assert answer.status == 200, answer
        parts = dict(part.split(":") for part in answer.headers["x-ms-session-token"].split(","))
        assert len({part.split("#")[0] for part in parts.values()}) == 1, "one version: it is one container"
        return {range_id: int(part.split("#")[1]) for range_id, part in parts.items()}

    everywhere = named(node.raw("GET", path, headers={"x-ms-max-item-count": "-1"}))
    assert everywhere.keys() == ranges
    assert sum(everywhere.values()) == 50, "one transaction for each item"
    headers = {"content-type": "application/query+json", "x-ms-documentdb-isquery": "true", "x-ms-documentdb-query-enablecrosspartition": "true"}
    count = node.raw("POST", path, headers=headers, body={"query": "SELECT VALUE SUM(c.n) FROM c"})
    assert named(count) == everywhere
    assert len(named(node.raw("GET", f"{path}/0", headers={"x-ms-documentdb-partitionkey": '["key 0"]'}))) == 1
    assert node.raw("GET", path, headers={"x-ms-session-token": count.headers["x-ms-session-token"]}).status == 200
    ahead = count.headers["x-ms-session-token"].replace("#", "#999999")
    assert node.raw("GET", path, headers={"x-ms-session-token": ahead}).substatus == 1002
