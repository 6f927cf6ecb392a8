"""Queries through the SDK: one table of queries and rows, asked in every way over one shard and over several."""

import pytest
from azure.cosmos import PartitionKey
from azure.cosmos._execution_context import execution_dispatcher

ITEMS = [
    {"id": "a1", "pk": "a", "n": 1, "g": "x", "name": "Ann", "tags": ["red", "blue"], "v": 10.5},
    {"id": "a2", "pk": "a", "n": 2, "g": "y", "name": "bob", "tags": ["red"], "v": None},
    {"id": "a3", "pk": "a", "n": 3, "g": "x", "name": "Cid", "tags": []},
    {"id": "b1", "pk": "b", "n": 4, "g": "y", "name": "Dee", "tags": ["green", "red"], "v": "text"},
    {"id": "b2", "pk": "b", "n": 5, "g": "x", "name": "Eve", "v": True},
    {"id": "c1", "pk": "c", "n": 6, "g": "z", "name": "Fay", "tags": ["blue"], "v": -3},
    {"id": "c2", "pk": "c", "n": 7, "g": "z", "name": "Gus", "v": "a"},
    {"id": "d1", "pk": "d", "n": 8, "g": None, "name": "Hal", "v": 0},
    {"id": "e1", "pk": "e", "n": 9, "name": "Ivy", "v": False},
    {"id": "f1", "pk": "f", "n": 10, "g": "x", "name": "Jan", "v": 10.5},
]
ALL = [item["id"] for item in ITEMS]

# Rows in this order.
ORDERED = [
    ("SELECT VALUE c.id FROM c ORDER BY c.n", ALL),
    ("SELECT VALUE c.id FROM c ORDER BY c.n DESC", ALL[::-1]),
    ("SELECT VALUE c.id FROM c ORDER BY c.n OFFSET 3 LIMIT 4", ALL[3:7]),
    ("SELECT VALUE c.id FROM c ORDER BY c.n OFFSET 20 LIMIT 4", []),
    ("SELECT VALUE c.id FROM c ORDER BY c.n OFFSET 3 LIMIT 0", []),
    ("SELECT TOP 3 VALUE c.id FROM c ORDER BY c.n DESC", ["f1", "e1", "d1"]),
    ("SELECT VALUE c.id FROM c WHERE c.n > 2 AND c.g = 'x' ORDER BY c.n", ["a3", "b2", "f1"]),
    ("SELECT c.id, c.n * 2 AS twice FROM c WHERE c.n < 3 ORDER BY c.n DESC", [{"id": "a2", "twice": 4}, {"id": "a1", "twice": 2}]),
    ("SELECT VALUE c.name FROM c ORDER BY c.name", ["Ann", "Cid", "Dee", "Eve", "Fay", "Gus", "Hal", "Ivy", "Jan", "bob"]),
    # Types in their order: undefined, null, false, true, numbers, strings.
    ("SELECT VALUE c.v FROM c WHERE c.id != 'f1' ORDER BY c.v", [None, False, True, -3, 0, 10.5, "a", "text"]),
    ("SELECT c.v FROM c WHERE c.id != 'f1' ORDER BY c.v DESC", [{"v": "text"}, {"v": "a"}, {"v": 10.5}, {"v": 0}, {"v": -3}, {"v": True}, {"v": False}, {"v": None}, {}]),
    ("SELECT VALUE c.v FROM c WHERE IS_NUMBER(c.v) ORDER BY c.v", [-3, 0, 10.5, 10.5]),
    ("SELECT DISTINCT VALUE c.g FROM c ORDER BY c.g", [None, "x", "y", "z"]),
    ("SELECT DISTINCT VALUE c.g FROM c ORDER BY c.g DESC OFFSET 1 LIMIT 2", ["y", "x"]),
    ("SELECT VALUE t FROM c JOIN t IN c.tags ORDER BY c.n", ["red", "blue", "red", "green", "red", "blue"]),
    ("SELECT * FROM c WHERE c.n = 2 ORDER BY c.n", [ITEMS[1]]),
]  # fmt: skip

# Rows in any order.
UNORDERED = [
    ("SELECT * FROM c", ITEMS),
    ("SELECT VALUE c.id FROM c WHERE c.pk = 'a'", ["a1", "a2", "a3"]),
    ("SELECT VALUE c.id FROM c WHERE c.pk IN ('a', 'c', 'nowhere')", ["a1", "a2", "a3", "c1", "c2"]),
    ("SELECT VALUE c.id FROM c WHERE c.pk = 'a' AND c.pk = 'b'", []),
    ("SELECT VALUE c.id FROM c WHERE c.pk = 'a' OR c.n = 10", ["a1", "a2", "a3", "f1"]),
    ("SELECT VALUE c.id FROM c WHERE c.n BETWEEN 3 AND 5", ["a3", "b1", "b2"]),
    ("SELECT VALUE c.id FROM c WHERE c.name LIKE '%e%'", ["b1", "b2"]),
    ("SELECT VALUE c.id FROM c WHERE STARTSWITH(c.name, 'a', true)", ["a1"]),
    ("SELECT VALUE c.id FROM c WHERE ARRAY_CONTAINS(c.tags, 'red')", ["a1", "a2", "b1"]),
    ("SELECT VALUE c.id FROM c WHERE EXISTS(SELECT VALUE t FROM t IN c.tags WHERE t LIKE 'g%')", ["b1"]),
    ("SELECT VALUE c.id FROM c WHERE NOT IS_DEFINED(c.v)", ["a3"]),
    ("SELECT VALUE c.id FROM c WHERE c.v = null", ["a2"]),
    ("SELECT VALUE c.id FROM c WHERE RegexMatch(c.name, '^[A-C]')", ["a1", "a3"]),
    ("SELECT c.id, ARRAY(SELECT VALUE UPPER(t) FROM t IN c.tags) AS up FROM c WHERE c.pk = 'b'", [{"id": "b1", "up": ["GREEN", "RED"]}, {"id": "b2", "up": []}]),
    ("SELECT VALUE {'id': c.id, 'tag': t} FROM c JOIN t IN c.tags WHERE c.pk = 'a'", [{"id": "a1", "tag": "red"}, {"id": "a1", "tag": "blue"}, {"id": "a2", "tag": "red"}]),
    ("SELECT DISTINCT VALUE c.g FROM c", ["x", "y", "z", None]),
    ("SELECT DISTINCT c.g FROM c WHERE c.pk IN ('a', 'e')", [{"g": "x"}, {"g": "y"}, {}]),
    ("SELECT DISTINCT VALUE t FROM c JOIN t IN c.tags", ["red", "blue", "green"]),
    ("SELECT VALUE COUNT(1) FROM c", [10]),
    ("SELECT VALUE COUNT(c.v) FROM c", [9]),
    ("SELECT VALUE COUNT(1) FROM c WHERE c.n > 100", [0]),
    ("SELECT VALUE SUM(c.n) FROM c", [55]),
    ("SELECT VALUE AVG(c.n) FROM c WHERE c.n < 4", [2]),
    ("SELECT VALUE MIN(c.n) FROM c", [1]),
    ("SELECT VALUE MAX(c.name) FROM c", ["bob"]),
    ("SELECT VALUE MAX(c.n) FROM c WHERE c.n < 0", []),
    ("SELECT VALUE SUM(c.nothing) FROM c", [0]),
]  # fmt: skip

# Rows in any order that no plan for this SDK covers: it leaves them to the server.
WHOLE = [
    ("SELECT COUNT(1) AS n, SUM(c.n) AS s, MIN(c.n) AS l, MAX(c.n) AS g FROM c", [{"n": 10, "s": 55, "l": 1, "g": 10}]),
    ("SELECT c.g, COUNT(1) AS k FROM c GROUP BY c.g", [{"g": "x", "k": 4}, {"g": "y", "k": 2}, {"g": "z", "k": 2}, {"g": None, "k": 1}, {"k": 1}]),
    ("SELECT VALUE {'g': c.g, 'top': MAX(c.n)} FROM c WHERE c.g > 'x' GROUP BY c.g", [{"g": "y", "top": 4}, {"g": "z", "top": 7}]),
    ("SELECT IS_STRING(c.v) AS s, COUNT(1) AS k FROM c GROUP BY IS_STRING(c.v)", [{"s": True, "k": 2}, {"s": False, "k": 8}]),
    ("SELECT VALUE COUNT(1) FROM (SELECT DISTINCT VALUE c.g FROM c) AS d", [4]),
    ("SELECT VALUE MAX(c.n) - MIN(c.n) FROM c", [9]),
    ("SELECT VALUE 1 + 1", [2]),
    ("SELECT VALUE t FROM (SELECT VALUE c.n FROM c WHERE c.n > 8) AS t", [9, 10]),
]  # fmt: skip

CASES = [(query, rows, True) for query, rows in ORDERED] + [(query, rows, False) for query, rows in UNORDERED + WHOLE]
# What the SDK itself cannot merge: it orders no mixed types, drops a distinct null, and makes null of an aggregate over nothing.
BEYOND_THE_CLIENT = ("ORDER BY c.v", "DISTINCT VALUE c.g", "c.n < 0")
PLANNED = [
    (query, rows, ordered)
    for table, ordered in ((ORDERED, True), (UNORDERED, False))
    for query, rows in table
    if not any(part in query for part in BEYOND_THE_CLIENT)
]


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
