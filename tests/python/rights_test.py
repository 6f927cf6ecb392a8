"""What a read-only key can do: nothing that changes anything, whatever the headers call it."""

import http.client
import itertools

import pytest

from authentication_test import a_key, write_keys

HEADERS = [
    ("x-ms-documentdb-isquery", "True"),
    ("x-ms-documentdb-query", "True"),
    ("content-type", "application/query+json"),
    ("x-ms-cosmos-is-batch-request", "True"),
    ("x-ms-cosmos-batch-atomic", "True"),
    ("x-ms-documentdb-is-upsert", "True"),
    ("x-ms-cosmos-is-query-plan-request", "True"),
    ("a-im", "Incremental feed"),
]
VERBS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "BREW"]
DOCS = "/dbs/d/colls/c/docs"
ITEM = {"id": "new", "pk": "x"}
BATCH = [
    {"operationType": "Create", "resourceBody": ITEM},
    {"operationType": "Upsert", "resourceBody": {"id": "1", "pk": "x", "changed": True}},
    {"operationType": "Delete", "id": "2"},
]
QUERY = {"query": "SELECT * FROM c"}


@pytest.fixture
def keyed_node(new_node, tmp_path):
    """A node with a full and a read-only key, a database, a container with throughput and three items."""
    keys = tmp_path / "keys.toml"
    write_keys(keys, primary=a_key("a"), primary_readonly=a_key("r"))
    node = new_node(arguments=["--key-file", str(keys)], key=a_key("a"))
    assert node.raw("POST", "/dbs", body={"id": "d"}).status == 201
    container = {"id": "c", "partitionKey": {"paths": ["/pk"], "kind": "Hash", "version": 2}}
    throughput = {"x-ms-offer-throughput": "400"}
    assert node.raw("POST", "/dbs/d/colls", throughput, container).status == 201
    for number in range(3):
        answer = node.raw("POST", DOCS, {"x-ms-documentdb-partitionkey": '["x"]'}, {"id": str(number), "pk": "x"})
        assert answer.status == 201, answer
    return node


def everything(node):
    """The catalog and all items, with their ETags."""
    paths = ["/dbs", "/dbs/d/colls", "/offers", DOCS]
    answers = [node.raw("GET", path) for path in paths]
    assert all(answer.status == 200 for answer in answers), answers
    return [answer.json for answer in answers]


def bodies(offer):
    """Paths, each with bodies that change something where the operation is carried out."""
    definition = {"id": "c", "partitionKey": {"paths": ["/pk"], "kind": "Hash", "version": 2}, "defaultTtl": 1}
    raised = {**offer, "content": {"offerThroughput": 1000}}
    return {
        "/": [{}],
        "/dbs": [{"id": "other"}],
        "/dbs/d": [{"id": "d"}],
        "/dbs/d/colls": [{**definition, "id": "other"}],
        "/dbs/d/colls/c": [definition],
        DOCS: [ITEM, BATCH, QUERY],
        f"{DOCS}/1": [{"id": "1", "pk": "x", "changed": True}, {"operations": [{"op": "add", "path": "/n", "value": 1}]}],
        "/dbs/d/colls/c/pkranges": [{}],
        "/dbs/d/colls/c/operations/partitionkeydelete": [{}],
        "/dbs/d/colls/c/conflicts": [QUERY],
        "/dbs/d/colls/c/conflicts/i": [{}],
        "/dbs/d/colls/c/sprocs": [{"id": "s", "body": "function () {}"}],
        "/dbs/d/colls/c/sprocs/s": [[]],
        "/dbs/d/colls/c/triggers/t": [{}],
        "/dbs/d/users": [{"id": "u"}],
        "/dbs/d/users/u/permissions": [{"id": "p"}],
        "/offers": [raised, QUERY],
        f"/offers/{offer['id']}": [raised],
        "/nowhere": [{}],
    }


def header_sets(path, verb):
    """Every combination where headers decide most; no header, one, two and all of them elsewhere."""
    sizes = range(len(HEADERS) + 1) if (path, verb) == (DOCS, "POST") else (0, 1, 2, len(HEADERS))
    return [dict(chosen) for size in sizes for chosen in itertools.combinations(HEADERS, size)]


def send(node, connection, verb, path, headers, body):
    """One request; the node may close the connection after it has refused one."""
    headers = {"x-ms-documentdb-partitionkey": '["x"]', **headers}
    try:
        return node.raw(verb, path, headers, body, key=a_key("r"), connection=connection)
    except (http.client.HTTPException, ConnectionError):
        connection.close()
        return node.raw(verb, path, headers, body, key=a_key("r"), connection=connection)


def test_a_read_only_key_changes_nothing_by_any_route_verb_and_header(keyed_node):
    node = keyed_node
    before = everything(node)
    connection = node.connection()
    seen = {}
    for path, texts in bodies(before[2]["Offers"][0]).items():
        for verb in VERBS:
            for headers in header_sets(path, verb):
                for body in texts if verb not in ("GET", "HEAD", "OPTIONS") else [None]:
                    answer = send(node, connection, verb, path, headers, body)
                    seen[answer.status] = seen.get(answer.status, 0) + 1
                    assert answer.status < 500 or answer.status == 501, (verb, path, headers, answer)
                    assert answer.status not in (201, 202, 204, 207), (verb, path, headers, answer)
        assert everything(node) == before, path
    connection.close()
    # All of it was asked for: reads were answered, writes refused, and signatures were right.
    assert seen[200] > 100 and seen[403] > 500 and 401 not in seen, seen


@pytest.mark.parametrize("atomic", [True, False])
@pytest.mark.parametrize("name, value", HEADERS[:3])
def test_a_batch_that_says_it_is_a_query_is_403_for_a_read_only_key(keyed_node, name, value, atomic):
    headers = {
        "x-ms-documentdb-partitionkey": '["x"]', "x-ms-cosmos-is-batch-request": "True",
        "x-ms-cosmos-batch-atomic": str(atomic), name: value,
    }  # fmt: skip
    before = everything(keyed_node)
    assert keyed_node.raw("POST", DOCS, headers, BATCH, key=a_key("r")).status == 403
    assert everything(keyed_node) == before
    if name == "content-type":
        assert keyed_node.raw("POST", DOCS, headers, BATCH).status == 400, "a batch is JSON"
        return
    assert keyed_node.raw("POST", DOCS, headers, BATCH).status in (200, 207), "the full key may"
    assert everything(keyed_node) != before


def test_a_read_only_key_reads_what_queries_ask_for(keyed_node):
    query = {"x-ms-documentdb-isquery": "True", "content-type": "application/query+json"}
    partition = {"x-ms-documentdb-partitionkey": '["x"]'}
    for path, feed in [("/dbs", "Databases"), ("/dbs/d/colls", "DocumentCollections"), ("/offers", "Offers")]:
        assert len(keyed_node.raw("POST", path, query, QUERY, key=a_key("r")).json[feed]) == 1
    answer = keyed_node.raw("POST", DOCS, {**query, **partition}, QUERY, key=a_key("r"))
    assert len(answer.json["Documents"]) == 3
