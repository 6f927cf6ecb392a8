"""Queries through the SDK: one table of queries and rows, asked in every way over one shard and over several."""

import json
from pathlib import Path

import pytest
from azure.cosmos import PartitionKey, exceptions
from azure.cosmos._execution_context import execution_dispatcher

TABLE = json.loads((Path(__file__).parent.parent / "queries" / "cases.json").read_text())
ITEMS = TABLE["items"]
ALL = [item["id"] for item in ITEMS]
CASES = [(case["query"], case["rows"], case["ordered"]) for case in TABLE["cases"]]
# What the SDK itself cannot merge: it groups nothing, takes one aggregate at most, orders no mixed types, drops a distinct
# null, and makes null of an aggregate over nothing.
BEYOND_THE_CLIENT = (
    "GROUP BY", "COUNT(1) AS", "(SELECT DISTINCT", "MAX(c.n) -", "ORDER BY c.v", "DISTINCT VALUE c.g", "c.n < 0",
)  # fmt: skip
PLANNED = [case for case in CASES if not any(part in case[0] for part in BEYOND_THE_CLIENT)]


def user_part(row):
    """A row without what the system adds to items."""
    if isinstance(row, dict):
        return {name: value for name, value in row.items() if not name.startswith("_")}
    return row


def sortable(row):
    return repr(sorted(row.items())) if isinstance(row, dict) else f"{type(row).__name__} {row}"


def assert_rows(found, expected, ordered, why):
    found = [user_part(row) for row in found]
    if not ordered:
        found, expected = sorted(found, key=sortable), sorted(expected, key=sortable)
    assert found == expected, why


@pytest.fixture(scope="module", params=[400, 30_000], ids=["one-shard", "three-shards"])
def filled(request, shared_database):
    container = shared_database.create_container(f"queried-{request.param}", PartitionKey("/pk"), offer_throughput=request.param)
    for item in ITEMS:
        container.create_item(item)
    yield container
    shared_database.delete_container(container.id)


@pytest.fixture
def planned(monkeypatch):
    """Makes the SDK ask for a plan and merge the rows of the ranges itself."""
    proxy = execution_dispatcher._ProxyQueryExecutionContext
    begin = proxy.__init__

    def with_plan(self, *arguments, **options):
        begin(self, *arguments, **options)
        self._create_execution_context_with_query_plan()

    monkeypatch.setattr(proxy, "__init__", with_plan)


def pages_of(container, query, size, **options):
    """All pages, each asked for anew with nothing but the token of the one before."""
    pages, token = [], None
    while True:
        pager = container.query_items(query, max_item_count=size, **options).by_page(token)
        pages.append(list(next(pager, [])))
        token = pager.continuation_token
        if not token:
            return pages
        assert len(token) <= 1024
        assert len(pages) < 100, query


def test_the_ranges_all_hold_items(filled):
    counts = [
        list(filled.query_items("SELECT VALUE COUNT(1) FROM c", feed_range=feed_range))[0]
        for feed_range in filled.read_feed_ranges()
    ]
    assert sum(counts) == len(ITEMS)
    assert all(counts), counts


@pytest.mark.parametrize(("query", "expected", "ordered"), CASES)
def test_whole_container(filled, query, expected, ordered):
    found = list(filled.query_items(query, enable_cross_partition_query=True))
    assert_rows(found, expected, ordered, query)


@pytest.mark.parametrize(("query", "expected", "ordered"), CASES)
def test_page_by_page(filled, query, expected, ordered):
    for size in (1, 3):
        pages = pages_of(filled, query, size, enable_cross_partition_query=True)
        assert all(len(page) <= size for page in pages)
        assert_rows([row for page in pages for row in page], expected, ordered, (query, size))


@pytest.mark.parametrize(("query", "expected", "ordered"), PLANNED)
def test_merged_by_the_client(filled, planned, query, expected, ordered):
    found = list(filled.query_items(query, enable_cross_partition_query=True, max_item_count=2))
    assert_rows(found, expected, ordered, query)


@pytest.mark.parametrize(
    ("query", "expected", "ordered"),
    [
        ("SELECT VALUE c.id FROM c", ["a1", "a2", "a3"], False),
        ("SELECT VALUE c.id FROM c ORDER BY c.n DESC", ["a3", "a2", "a1"], True),
        ("SELECT VALUE c.id FROM c ORDER BY c.n OFFSET 1 LIMIT 1", ["a2"], True),
        ("SELECT VALUE COUNT(1) FROM c", [3], False),
        ("SELECT VALUE SUM(c.n) FROM c", [6], False),
        ("SELECT DISTINCT VALUE c.g FROM c", ["x", "y"], False),
        ("SELECT c.g, COUNT(1) AS k FROM c GROUP BY c.g", [{"g": "x", "k": 2}, {"g": "y", "k": 1}], False),
        ("SELECT VALUE c.id FROM c WHERE c.pk = 'b'", [], False),
    ],
)
def test_one_partition_key(filled, query, expected, ordered):
    assert_rows(list(filled.query_items(query, partition_key="a")), expected, ordered, query)
    rows = [row for page in pages_of(filled, query, 1, partition_key="a") for row in page]
    assert_rows(rows, expected, ordered, query)


@pytest.mark.parametrize("query", ["SELECT VALUE c.id FROM c", "SELECT VALUE c.id FROM c ORDER BY c.n"])
def test_feed_ranges_cut_the_container_without_overlap(filled, query):
    found = [row for feed_range in filled.read_feed_ranges() for row in filled.query_items(query, feed_range=feed_range)]
    assert sorted(found) == ALL


def test_parameters_of_every_kind(filled):
    for condition, value, expected in [
        ("c.name = @p", "Ann", ["a1"]),
        ("c.n = @p", 4, ["b1"]),
        ("c.v = @p", None, ["a2"]),
        ("c.v = @p", False, ["e1"]),
        ("ARRAY_CONTAINS(@p, c.id)", ["a1", "f1", "none"], ["a1", "f1"]),
        ("c.pk = @p", "c", ["c1", "c2"]),
        ("c.tags = @p", ["red"], ["a2"]),
    ]:
        query = f"SELECT VALUE c.id FROM c WHERE {condition}"
        found = filled.query_items(query, parameters=[{"name": "@p", "value": value}], enable_cross_partition_query=True)
        assert sorted(found) == expected, condition


def test_a_filter_on_the_partition_key_needs_no_leave_to_cross(filled):
    query = "SELECT VALUE c.pk FROM c WHERE c.pk = @pk"
    for pk in ["nowhere", filled_key(filled)]:
        found = list(filled.query_items(query, parameters=[{"name": "@pk", "value": pk}]))
        assert set(found) <= {pk}
    with pytest.raises(exceptions.CosmosHttpResponseError) as refused:
        list(filled.query_items("SELECT * FROM c"))
    assert refused.value.status_code == 400


def filled_key(container):
    return next(iter(container.query_items("SELECT VALUE c.pk FROM c", enable_cross_partition_query=True)))


def test_a_count_in_one_partition_reads_no_item(container):
    for number in range(5):
        container.create_item({"id": str(number), "pk": "p"})
    pages = container.query_items(
        "SELECT VALUE COUNT(1) FROM c", partition_key="p", populate_query_metrics=True, populate_index_metrics=True
    )
    assert list(pages) == [5]
    headers = pages.get_response_headers()
    assert "retrievedDocumentCount=0;" in headers["x-ms-documentdb-query-metrics"]
    assert "indexUtilizationRatio=1.00" in headers["x-ms-documentdb-query-metrics"]
    used = headers["x-ms-cosmos-index-utilization"]["UtilizedSingleIndexes"]
    assert "/pk/?" in [each["IndexSpec"] for each in used]
