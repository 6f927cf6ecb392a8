"""Pages of queries: tokens that survive what happens in between, bounds on size and work, and what clients may resume with."""

import itertools
import json
import socket
import threading
import time

import pytest
from azure.cosmos import PartitionKey

from node import signed_headers, wait_until

serial = itertools.count(1)
ASK = {
    "content-type": "application/query+json",
    "x-ms-documentdb-isquery": "True",
    "x-ms-documentdb-query-enablecrosspartition": "True",
}


def ask(node, container, query, token=None, connection=None, parameters=(), resume=None, **headers):
    """One page of a query; headers with underscores for hyphens."""
    body = {"query": query, "parameters": list(parameters)}
    if resume is not None:
        body["resumeFilter"] = resume
    every = {**ASK, "x-ms-continuation": token, **{name.replace("_", "-"): value for name, value in headers.items()}}
    return node.raw("POST", f"/{link(container)}/docs", headers=every, body=body, connection=connection)


def link(container):
    return container if isinstance(container, str) else container.container_link


def rows_of(answer):
    assert answer.status == 200, answer
    return answer.json["Documents"]


def token_of(answer):
    token = answer.headers.get("x-ms-continuation")
    assert token is None or len(token) <= 1024
    return token


def drain(node, container, query, size, between=lambda: None, **headers):
    """All rows, in pages of a size; `between` is called after each page that is not the last."""
    rows, token = [], None
    for _ in range(10_000):
        answer = ask(node, container, query, token, x_ms_max_item_count=str(size), **headers)
        page = rows_of(answer)
        assert len(page) <= size
        rows += page
        token = token_of(answer)
        if token is None:
            return rows
        between()
    raise AssertionError(f"{query} does not end")


@pytest.fixture(params=[400, 30_000], ids=["one-shard", "three-shards"])
def container(request, new_container):
    return new_container(offer_throughput=request.param, default_ttl=-1)


def fill(container, count, **more):
    for n in range(count):
        container.create_item({"id": f"{n:03}", "pk": f"p{n % 11}", "n": n, "g": n % 7, **more})


QUERIES = [
    "SELECT VALUE c.n FROM c",
    "SELECT VALUE c.n FROM c ORDER BY c.n",
    "SELECT VALUE c.n FROM c ORDER BY c.n DESC",
    "SELECT VALUE c.n FROM c ORDER BY c.g",
    "SELECT VALUE c.n FROM c ORDER BY c.g DESC",
    "SELECT DISTINCT VALUE c.n FROM c",
    "SELECT VALUE c.n FROM c GROUP BY c.n",
]


@pytest.mark.parametrize("query", QUERIES)
def test_what_stays_is_found_once_whatever_comes_and_goes(node, container, query):
    fill(container, 40)
    steps = iter(range(1_000))

    def disturb():
        step = next(steps)
        # One leaves at the far end, others come before, behind and in the middle.
        if step < 10:
            container.delete_item(f"{3 * step:03}", f"p{3 * step % 11}")
            container.create_item({"id": f"before {step}", "pk": f"p{step}", "n": -1 - step, "g": -1})
            container.create_item({"id": f"behind {step}", "pk": f"p{step}", "n": 1_000 + step, "g": 99})
            container.create_item({"id": f"amid {step}", "pk": f"q{step}", "n": 20.5 + step / 100, "g": 3})

    found = drain(node, container, query, 5, disturb)
    stayed = set(range(40)) - {3 * step for step in range(10)}
    assert len(found) == len(set(found)), "no row comes twice"
    assert stayed <= set(found)


@pytest.mark.parametrize("query", QUERIES)
def test_expiry_between_pages_moves_nothing(node, container, query):
    fill(container, 20)
    for n in range(20, 40):
        container.create_item({"id": f"{n:03}", "pk": f"p{n % 11}", "n": n - 20.5, "g": n % 7, "ttl": 2})
    deadline = time.time() + 2.1
    waited = []

    def wait():
        if not waited:
            waited.append(time.sleep(max(0, deadline - time.time())))

    found = drain(node, container, query, 7, wait)
    assert sorted(n for n in found if n == int(n)) == list(range(20))
    assert len(found) - 20 <= 7, "only the first page may hold what expires after it"


def test_tokens_survive_a_restart(new_node):
    node = new_node()
    database = node.client().create_database("d")
    container = database.create_container("c", PartitionKey("/pk"), offer_throughput=30_000)
    fill(container, 25)
    for query in QUERIES:
        first = ask(node, container, query, x_ms_max_item_count="10")
        node.restart()
        second = ask(node, container, query, token_of(first), x_ms_max_item_count="100")
        assert sorted(rows_of(first) + rows_of(second)) == list(range(25)), query
        assert token_of(second) is None


def test_windows_reach_over_pages(node, container):
    fill(container, 30)
    for query, expected in [
        ("SELECT VALUE c.n FROM c ORDER BY c.n OFFSET 7 LIMIT 15", list(range(7, 22))),
        ("SELECT TOP 15 VALUE c.n FROM c ORDER BY c.n DESC", list(range(29, 14, -1))),
        ("SELECT DISTINCT VALUE c.g FROM c ORDER BY c.g OFFSET 2 LIMIT 4", [2, 3, 4, 5]),
    ]:
        for size in (1, 4, 100):
            assert drain(node, container, query, size) == expected, (query, size)
    for query, count in [
        ("SELECT VALUE c.n FROM c OFFSET 7 LIMIT 15", 15),
        ("SELECT TOP 15 VALUE c.n FROM c", 15),
        ("SELECT VALUE c.n FROM c OFFSET 25 LIMIT 15", 5),
        ("SELECT DISTINCT TOP 4 VALUE c.g FROM c", 4),
        ("SELECT DISTINCT VALUE c.g FROM c OFFSET 2 LIMIT 4", 4),
        ("SELECT VALUE c.g FROM c GROUP BY c.g OFFSET 5 LIMIT 4", 2),
    ]:
        for size in (1, 4, 100):
            found = drain(node, container, query, size)
            assert len(found) == len(set(found)) == count, (query, size)


def test_long_keys_and_ids_resume_exactly(node, container):
    texts = ["", "x", "x" * 600, "x" * 600 + "a", "x" * 600 + "b", "é" * 500, "é" * 500 + "z"] * 2
    for n, text in enumerate(texts):
        container.create_item({"id": "i" * 900 + f"{n:03}", "pk": "same", "n": n, "text": text, "list": [text]})
    for query, expected in [
        ("SELECT VALUE c.n FROM c", None),
        ("SELECT VALUE c.n FROM c ORDER BY c.text", sorted(texts)),
        ("SELECT VALUE c.n FROM c ORDER BY c.text DESC", sorted(texts, reverse=True)),
        ("SELECT VALUE c.n FROM c ORDER BY c.list", None),
        ("SELECT DISTINCT VALUE c.n FROM c ORDER BY c.text", sorted(texts)),
    ]:
        for size in (1, 3):
            found = drain(node, container, query, size)
            assert sorted(found) == list(range(len(texts))), (query, size)
            assert expected is None or [texts[n] for n in found] == expected, (query, size)


def test_rows_of_one_item_may_be_split_over_pages(node, container):
    for n in range(3):
        container.create_item({"id": str(n), "pk": str(n), "n": n, "list": [n * 10 + i for i in range(5)]})
    for query in ("SELECT VALUE l FROM c JOIN l IN c.list", "SELECT VALUE l FROM c JOIN l IN c.list ORDER BY c.n"):
        for size in (1, 2, 4):
            found = drain(node, container, query, size)
            assert sorted(found) == [0, 1, 2, 3, 4, 10, 11, 12, 13, 14, 20, 21, 22, 23, 24], (query, size)


def test_a_page_holds_at_most_4_mb(node, container):
    for n in range(12):
        container.create_item({"id": str(n), "pk": str(n), "n": n, "text": "t" * 1_000_000})
    for query in (
        "SELECT * FROM c", "SELECT c.n, c.text FROM c", "SELECT * FROM c ORDER BY c.n", "SELECT DISTINCT c.n, c.text FROM c",
        "SELECT c.n, MAX(c.text) AS text FROM c GROUP BY c.n", "SELECT TOP 12 c.n, c.text FROM c ORDER BY c.n DESC",
    ):  # fmt: skip
        numbers, token = [], None
        while True:
            answer = ask(node, container, query, token, x_ms_max_item_count="-1")
            assert len(answer.body) <= 4 * 1024 * 1024
            numbers += [row["n"] for row in rows_of(answer)]
            token = token_of(answer)
            if token is None:
                break
        assert sorted(numbers) == list(range(12)), query


def test_one_large_row_is_a_page(node, container):
    container.create_item({"id": "1", "pk": "1", "text": "t" * 1_500_000})
    query = "SELECT VALUE CONCAT(c.text, c.text, c.text) FROM c"
    assert [len(row) for row in rows_of(ask(node, container, query))] == [4_500_000]


@pytest.mark.parametrize("token", ["", "nonsense", "0.0.0.", "AAAA", "%", "a" * 5_000])
def test_a_token_that_is_none_is_refused(node, container, token):
    for query in QUERIES:
        answer = ask(node, container, query, token)
        assert answer.status == 400, (query, answer)
        assert "Invalid Continuation Token" in answer.message


def test_a_token_of_another_query_is_refused(node, container):
    fill(container, 10)
    tokens = [token_of(ask(node, container, query, x_ms_max_item_count="2")) for query in QUERIES]
    for (query, own), other in itertools.product(zip(QUERIES, tokens), tokens):
        if other == own:
            continue
        answer = ask(node, container, query, other)
        assert answer.status == 400, (query, answer)
        assert "Invalid Continuation Token" in answer.message


def test_resume_filter(node, new_container):
    container = new_container()
    rids = [container.create_item({"id": str(n), "pk": "a", "n": n // 2, "m": n})["_rid"] for n in range(8)]
    container.create_item({"id": "without", "pk": "a", "m": 100})
    ascending, descending = "SELECT VALUE c.m FROM c ORDER BY c.n", "SELECT VALUE c.m FROM c ORDER BY c.n DESC"
    for query, resume, expected in [
        (ascending, {"value": [2], "exclude": False}, [4, 5, 6, 7]),
        (ascending, {"value": [2], "exclude": True}, [6, 7]),
        (ascending, {"value": [2], "rid": rids[4], "exclude": False}, [4, 5, 6, 7]),
        (ascending, {"value": [2], "rid": rids[4], "exclude": True}, [5, 6, 7]),
        (ascending, {"value": [2], "rid": rids[5], "exclude": True}, [6, 7]),
        (ascending, {"value": [[]], "exclude": True}, [0, 1, 2, 3, 4, 5, 6, 7]),
        (ascending, {"value": ["text"]}, []),
        (descending, {"value": [1], "rid": rids[3], "exclude": False}, [3, 2, 1, 0, 100]),
        (descending, {"value": [1], "rid": rids[3], "exclude": True}, [2, 1, 0, 100]),
    ]:
        assert rows_of(ask(node, container, query, resume=resume)) == expected, (query, resume)
        pages = []
        token = None
        while True:
            answer = ask(node, container, query, token, resume=resume, x_ms_max_item_count="2")
            pages += rows_of(answer)
            token = token_of(answer)
            if token is None:
                break
        assert pages == expected, (query, resume)
    for query, resume in [
        ("SELECT * FROM c", {"value": [1]}),
        (ascending, {"value": [1, 2]}),
        (ascending, {"value": [1], "rid": "nonsense"}),
        (ascending, {"value": [{"a": 1}]}),
        (ascending, {"value": 1}),
    ]:
        assert ask(node, container, query, resume=resume).status == 400, (query, resume)


def test_scopes(node, new_container):
    container = new_container(offer_throughput=30_000)
    fill(container, 33)
    everything = sorted(drain(node, container, QUERIES[0], 100))
    assert everything == list(range(33))
    no_scope = {"x_ms_documentdb_query_enablecrosspartition": "False"}
    answer = ask(node, container, QUERIES[0], **no_scope)
    assert answer.status == 400
    assert "Cross partition query is required but disabled" in answer.message
    found = []
    for range_id in "012":
        found += rows_of(ask(node, container, QUERIES[1], x_ms_documentdb_partitionkeyrangeid=range_id, **no_scope))
    assert sorted(found) == everything
    answer = ask(node, container, QUERIES[0], x_ms_documentdb_partitionkeyrangeid="7")
    assert (answer.status, answer.substatus) == (410, 1002)
    halves = []
    for begin, end in (("", "20"), ("20", "FF")):
        epk = {"x_ms_start_epk": begin, "x_ms_end_epk": end, "x_ms_read_key_type": "EffectivePartitionKeyRange"}
        halves += rows_of(ask(node, container, QUERIES[1], **epk, **no_scope))
    assert sorted(halves) == everything
    answer = ask(node, container, QUERIES[0], x_ms_start_epk="", x_ms_end_epk="20", x_ms_read_key_type="Other")
    assert answer.status == 400


def test_partition_keys_in_the_filter_spare_the_other_partitions(node, new_container):
    container = new_container(offer_throughput=30_000)
    fill(container, 110)

    def examined(query):
        answer = ask(node, container, query, x_ms_documentdb_populatequerymetrics="True")
        metrics = dict(pair.split("=") for pair in answer.headers["x-ms-documentdb-query-metrics"].split(";"))
        return len(rows_of(answer)), int(metrics["retrievedDocumentCount"])

    assert examined("SELECT * FROM c WHERE c.pk = 'p3'") == (10, 10)
    assert examined("SELECT * FROM c WHERE c.pk IN ('p3', 'p4', 'none')") == (20, 20)
    assert examined("SELECT * FROM c WHERE c.pk = 'p3' AND c.pk = 'p4'") == (0, 0)
    assert examined("SELECT VALUE COUNT(1) FROM c WHERE c.pk = 'p3' AND c.pk = 'p4'") == (1, 0)


def test_prefixes_in_the_filter_of_a_hierarchical_key(node, new_container):
    container = new_container(PartitionKey(["/a", "/b", "/c"], kind="MultiHash"), offer_throughput=30_000)
    for n in range(27):
        container.create_item({"id": str(n), "a": n // 9, "b": n // 3 % 3, "c": n % 3, "n": n})
    for condition, expected in [
        ("c.a = 1", list(range(9, 18))),
        ("c.a = 1 AND c.b = 2", [15, 16, 17]),
        ("c.a = 1 AND c.b = 2 AND c.c = 0", [15]),
        ("c.a IN (0, 2) AND c.b = 1", [3, 4, 5, 21, 22, 23]),
        ("c.b = 1 AND c.c = 1", [4, 13, 22]),
    ]:
        answer = ask(node, container, f"SELECT VALUE c.n FROM c WHERE {condition}", x_ms_documentdb_populatequerymetrics="True")
        assert sorted(rows_of(answer)) == expected, condition
        if condition.startswith("c.a"):
            assert f"retrievedDocumentCount={len(expected)};" in answer.headers["x-ms-documentdb-query-metrics"]


# Work.

# About three million rows of one item: a good part of what one item may cause, and of a second.
HEAVY = "SELECT VALUE COUNT(1) FROM c JOIN a IN c.list JOIN b IN c.list JOIN d IN c.list WHERE a + b + d = -1"


def heavy_items(container, count):
    for n in range(count):
        container.create_item({"id": str(n), "pk": str(n), "n": n, "list": list(range(140))})


def test_too_much_work_for_one_item_is_refused(node, container):
    container.create_item({"id": "1", "pk": "1", "list": list(range(1_000))})
    answer = ask(node, container, HEAVY)
    assert answer.status == 400, answer
    assert "steps" in answer.message


def test_too_much_memory_is_refused(node, container):
    fill(container, 100, text="t" * 40_000, list=list(range(40)))
    answer = ask(node, container, "SELECT DISTINCT VALUE CONCAT(c.id, c.text, ToString(t)) FROM c JOIN t IN c.list")
    assert answer.status == 400, answer
    assert "narrow it" in answer.message


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (HEAVY, [0]),
        (
            "SELECT VALUE c.n FROM c WHERE NOT EXISTS(SELECT VALUE 1 FROM a IN c.list JOIN b IN c.list JOIN d IN c.list"
            " WHERE a + b + d = -1) ORDER BY c.n DESC",
            list(range(14, -1, -1)),
        ),
        (
            "SELECT VALUE c.n FROM c WHERE NOT EXISTS(SELECT VALUE 1 FROM a IN c.list JOIN b IN c.list JOIN d IN c.list"
            " WHERE a + b + d = -1)",
            None,
        ),
    ],
    ids=["carried count", "kept order", "stream"],
)
def test_long_work_goes_on_over_pages(node, new_container, query, expected):
    container = new_container(offer_throughput=30_000)
    heavy_items(container, 15)
    rows, token, pages, longest = [], None, 0, 0
    while True:
        begun = time.monotonic()
        answer = ask(node, container, query, token)
        longest = max(longest, time.monotonic() - begun)
        rows += rows_of(answer)
        pages += 1
        token = token_of(answer)
        if token is None:
            break
    assert (sorted(rows) if expected is None else rows) == (expected or list(range(15)))
    assert pages > 1, f"the work took {longest} s on one page"
    assert longest < 20


def test_long_queries_do_not_stall_their_neighbours(node, new_container):
    container = new_container(offer_throughput=30_000)
    heavy_items(container, 10)
    done = threading.Event()

    def hog():
        connection = node.connection(120)
        while not done.is_set():
            assert ask(node, container, HEAVY, connection=connection).status == 200
        connection.close()

    hogs = [threading.Thread(target=hog) for _ in range(6)]
    for each in hogs:
        each.start()
    try:
        connection = node.connection()
        times = []
        for n in range(60):
            begun = time.monotonic()
            if n % 2:
                found = ask(node, container, "SELECT * FROM c WHERE c.pk = '3'", connection=connection)
            else:
                headers = {"x-ms-documentdb-partitionkey": '["3"]'}
                found = node.raw("GET", f"/{link(container)}/docs/3", headers=headers, connection=connection)
            assert found.status == 200
            times.append(time.monotonic() - begun)
    finally:
        done.set()
        for each in hogs:
            each.join()
    # The machine is busy; what matters is that nobody waits for a long query to end, which takes seconds.
    assert sorted(times)[len(times) // 2] < 0.2, times
    assert max(times) < 2, times


def test_a_client_that_goes_away_stops_its_query(new_node):
    node = new_node()
    container = node.client().create_database("d").create_container("c", PartitionKey("/pk"))
    heavy_items(container, 40)
    path = f"/{link(container)}/docs"
    body = json.dumps({"query": HEAVY}).encode()
    headers = {**signed_headers("POST", path), **ASK, "content-length": str(len(body)), "host": "localhost"}
    head = f"POST {path} HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in headers.items()) + "\r\n"

    def busy():
        fields = open(f"/proc/{node.process.pid}/stat").read().rsplit(")", 1)[1].split()
        return int(fields[11]) + int(fields[12])

    with socket.create_connection(("127.0.0.1", node.port)) as client:
        client.sendall(head.encode() + body)
        time.sleep(0.5)

    def quiet():
        before = busy()
        time.sleep(0.5)
        return busy() - before < 5

    # At most the slice under way is finished; the whole query would take minutes.
    wait_until(quiet, "the query of a client that has gone away ends", seconds_max=10)


# Plans, metrics and errors.


def plan(node, container, query, features=None, parameters=()):
    headers = {
        "x-ms-cosmos-is-query-plan-request": "True",
        "x-ms-cosmos-query-version": "1.0",
        "x-ms-cosmos-supported-query-features": features,
    }
    body = {"query": query, "parameters": list(parameters)}
    return node.raw("POST", f"/{link(container)}/docs", headers=headers, body=body)


def test_plan_has_all_its_fields(node, new_container):
    container = new_container(offer_throughput=30_000)
    found = plan(node, container, "SELECT * FROM c ORDER BY c.n DESC", "OrderBy,MultipleOrderBy").json
    assert found == {
        "partitionedQueryExecutionInfoVersion": 2,
        "queryInfo": {
            "distinctType": "None", "top": None, "offset": None, "limit": None, "orderBy": ["Descending"],
            "orderByExpressions": ["c.n"], "groupByExpressions": [], "groupByAliases": [], "aggregates": [],
            "groupByAliasToAggregateType": {}, "hasSelectValue": False, "dCountInfo": None, "hasNonStreamingOrderBy": False,
            "rewrittenQuery": found["queryInfo"]["rewrittenQuery"],
        },
        "queryRanges": [{"min": "", "max": "FF", "isMinInclusive": True, "isMaxInclusive": False}],
    }  # fmt: skip
    assert "{documentdb-formattableorderbyquery-filter}" in found["queryInfo"]["rewrittenQuery"]


def test_plan_ranges_follow_from_the_partition_keys(node, new_container):
    container = new_container(offer_throughput=30_000)
    p1, redmond = "062B23DEC15212F01B9A85F4E93A940C", "22E342F38A486A088463DFF7838A5963"
    for condition, points in [
        ("c.pk = 'p1'", [p1]),
        ("c.pk = @p", [redmond]),
        ("c.pk IN ('redmond', 'p1')", [p1, redmond]),
        ("c.pk = 'p1' OR c.pk = 'redmond'", [p1, redmond]),
    ]:
        found = plan(node, container, f"SELECT * FROM c WHERE {condition}", parameters=[{"name": "@p", "value": "redmond"}])
        expected = [{"min": p, "max": p, "isMinInclusive": True, "isMaxInclusive": True} for p in points]
        assert found.json["queryRanges"] == expected, condition
    for condition in ("c.pk > 'p1'", "c.pk = 'p1' OR c.n = 1", "c.n = 1"):
        found = plan(node, container, f"SELECT * FROM c WHERE {condition}")
        assert [(each["min"], each["max"]) for each in found.json["queryRanges"]] == [("", "FF")], condition


def test_plan_that_the_client_cannot_follow_is_refused(node, new_container):
    several, one = new_container(offer_throughput=30_000), new_container()
    for query, features in [
        ("SELECT VALUE COUNT(1) FROM c", "OrderBy"),
        ("SELECT c.g, COUNT(1) FROM c GROUP BY c.g", "Aggregate, OrderBy"),
        ("SELECT * FROM c ORDER BY c.n", "Aggregate"),
        ("SELECT VALUE MAX(c.n) - 1 FROM c", "Aggregate,GroupBy"),
    ]:
        answer = plan(node, several, query, features)
        assert answer.status == 400, (query, answer)
        # One range merges nothing and answers the query as it is.
        answer = plan(node, one, query, features)
        assert answer.json["queryInfo"]["rewrittenQuery"] == "", (query, answer)
    assert plan(node, one, "SELEC", "").status == 400


def test_query_metrics(node, container):
    fill(container, 12)
    answer = ask(node, container, "SELECT * FROM c WHERE c.n < 4", x_ms_documentdb_populatequerymetrics="true")
    metrics = {name: float(value) for name, value in (pair.split("=") for pair in answer.headers["x-ms-documentdb-query-metrics"].split(";"))}
    assert len(metrics) == 16
    assert metrics["outputDocumentCount"] == 4
    assert 4 <= metrics["retrievedDocumentCount"] <= 12
    assert metrics["totalExecutionTimeInMs"] > 0
    assert "x-ms-documentdb-query-metrics" not in ask(node, container, "SELECT * FROM c").headers


def test_index_metrics(node, container):
    fill(container, 3)
    hooked = {}
    found = container.query_items(
        "SELECT * FROM c WHERE c.n = 1", enable_cross_partition_query=True, populate_index_metrics=True,
        response_hook=lambda headers, _: hooked.update(headers),
    )  # fmt: skip
    assert len(list(found)) == 1
    metrics = hooked["x-ms-cosmos-index-utilization"]
    assert set(metrics) == {"UtilizedSingleIndexes", "PotentialSingleIndexes", "UtilizedCompositeIndexes", "PotentialCompositeIndexes"}


def test_charge_grows_with_what_is_looked_at(node, container):
    fill(container, 50)
    few = ask(node, container, "SELECT * FROM c WHERE c.pk = 'p1'").charge
    many = ask(node, container, "SELECT * FROM c").charge
    assert 2 < few < many


@pytest.mark.parametrize(
    ("query", "code", "start", "end"),
    [
        ("SELEC * FROM c", "SC1001", 0, 5),
        ("SELECT * FROM c WHERE", "SC1001", 21, 21),
        ("SELECT 'é', NOPE(1)", "SC2005", 12, 16),
        ("SELECT * FROM c WHERE c.n = @n", "SC2007", 28, 30),
        ("SELECT * FROM c GROUP BY c.n", "SC2041", None, None),
        ("SELECT c.m FROM c GROUP BY c.n", "SC2102", None, None),
        ("SELECT ABS() FROM c", "SC2050", None, None),
        ("SELECT SUM(COUNT(1)) FROM c", "SC2101", None, None),
        ("SELECT * FROM c ORDER BY c.n + 1", "2206", None, None),
        ("SELECT * FROM c" + "".join(f" JOIN j{n} IN c.l" for n in range(6)), None, None, None),
        ("SELECT " + "(" * 200 + "1" + ")" * 200, None, None, None),
    ],
)
def test_faults_name_code_and_place(node, container, query, code, start, end):
    answer = ask(node, container, query)
    assert answer.status == 400, answer
    message = answer.message
    assert message.startswith("Message: {"), message
    (fault,) = json.loads(message.removeprefix("Message: ").split("\r\n")[0])["errors"]
    assert fault["severity"] == "Error"
    assert code is None or fault["code"] == code
    assert start is None or fault["location"] == {"start": start, "end": end}, fault
    assert code != "SC1001" or "Expected" in fault["message"], fault


def test_limits_of_the_text(node, container):
    assert ask(node, container, "SELECT " + " " * 600_000 + "1").status == 400
    assert ask(node, container, f"SELECT VALUE 1 WHERE 1 IN ({','.join(map(str, range(20_000)))})").status == 400
    for body in (b"", b"[]", b"{}", b'{"query": 5}', b'{"query": "SELECT 1", "parameters": 5}', b"not json"):
        answer = node.raw("POST", f"/{link(container)}/docs", headers=ASK, body=body)
        assert answer.status == 400, (body, answer)


def test_computed_properties(node, new_container):
    container = new_container(computed_properties=[{"name": "lower", "query": "SELECT VALUE LOWER(c.name) FROM c"}])
    for name in ("Ann", "BOB"):
        container.create_item({"id": name, "pk": name, "name": name})
    found = container.query_items("SELECT VALUE c.lower FROM c WHERE c.lower > 'b'", enable_cross_partition_query=True)
    assert list(found) == ["bob"]
    with pytest.raises(Exception, match="SC1001"):
        new_container(computed_properties=[{"name": "x", "query": "SELECT VALUE LOWER( FROM c"}])


# Feeds of the catalog.


def test_feeds_of_the_catalog_in_pages(client, node):
    names = [f"feed-{next(serial)}-{n}" for n in range(5)]
    try:
        for name in names:
            client.create_database(name, offer_throughput=500)
        query = "SELECT * FROM r WHERE STARTSWITH(r.id, 'feed-')"
        assert [each["id"] for each in client.query_databases(query)] == sorted(names)
        pages = [list(page) for page in client.query_databases(query, max_item_count=2).by_page()]
        assert [len(page) for page in pages] == [2, 2, 1]
        assert [each["id"] for page in pages for each in page] == sorted(names)
        database = client.get_database_client(names[0])
        for n in range(4):
            database.create_container(f"c{n}", PartitionKey("/pk"))
        pages = [list(page) for page in database.query_containers("SELECT VALUE r.id FROM r ORDER BY r.id DESC", max_item_count=3).by_page()]
        assert pages == [["c3", "c2", "c1"], ["c0"]]
        count = {"query": "SELECT VALUE COUNT(1) FROM r WHERE r.content.offerThroughput = 500"}
        answer = node.raw("POST", "/offers", headers=ASK, body=count)
        assert answer.json["Offers"] == [5]
        page = node.raw("POST", "/offers", headers={**ASK, "x-ms-max-item-count": "1"}, body={"query": "SELECT * FROM r"})
        assert len(page.json["Offers"]) == 1
        assert page.headers["x-ms-continuation"]
        assert node.raw("POST", "/dbs", headers={**ASK, "x-ms-continuation": "x"}, body={"query": query}).status == 400
    finally:
        for name in names:
            client.delete_database(name)
