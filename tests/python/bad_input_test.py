"""Bad input, sent raw: the right status and sub-status, a message that names the value, and nothing left behind."""

import json

import pytest
from azure.cosmos.partition_key import NonePartitionKeyValue

KEY = {"x-ms-documentdb-partitionkey": '["p"]'}


def docs(container, item_id=None):
    path = f"/{container.container_link}/docs"
    return path if item_id is None else f"{path}/{item_id}"


def create(node, container, body, **headers):
    return node.raw("POST", docs(container), headers={**KEY, **headers}, body=body)


def nested(depth):
    return '{"id":"1","pk":"p","deep":' + "[" * depth + "]" * depth + "}"


def assert_error(answer, status, substatus=0, *fragments):
    """Status, sub-status, and the error object that SDKs read."""
    assert (answer.status, answer.substatus) == (status, substatus), answer
    assert set(answer.json) >= {"code", "message"}, answer
    assert answer.headers["content-type"].startswith("application/json")
    assert answer.charge >= 0
    for fragment in fragments:
        assert fragment in answer.message, (fragment, answer.message)


@pytest.mark.parametrize(
    "body, fragments",
    [
        ("", []),
        ('{"id":"1","pk":"p"', []),
        ('{"id":"1","pk":"p"} trailing', []),
        ('{"id":"1","pk":"p",}', []),
        ("{'id':'1','pk':'p'}", []),
        ('{"id":"1","pk":"p","n":NaN}', []),
        ('{"id":"1","pk":"p","n":01}', []),
        ('{"id":"1","pk":"p","twice":1,"twice":2}', ["twice"]),
        ('{"id":"1","pk":"p","in":{"twice":1,"other":2,"twice":2}}', ["twice"]),
        ('{"id":"1","id":"2","pk":"p"}', ["id"]),
        ('{"id":"1","pk":"p","n":1e999}', ["1e999"]),
        ('{"id":"1","pk":"p","n":-1e999}', ["1e999"]),
        (b'{"id":"1","pk":"p","text":"\xff\xfe"}', []),
        (b'{"id":"1","pk":"p","text":"\xc3"}', []),
        ('{"id":"1","pk":"p","text":"\\ud800"}', []),
        (nested(200), ["128"]),
        (nested(100_000), ["128"]),
        ("[]", []),
        ('"text"', []),
        ("5", []),
        ("null", []),
    ],
)
def test_what_is_no_json_object_is_400(node, container, body, fragments):
    assert_error(create(node, container, body), 400, 0, *fragments)
    assert list(container.read_all_items()) == []


def test_depth_up_to_the_limit_is_fine(node, container):
    assert create(node, container, nested(126)).status == 201


@pytest.mark.parametrize(
    "item_id, fragment",
    [
        ("a/b", "a/b"),
        ("a\\b", "a"),
        ("a?b", "a?b"),
        ("a#b", "a#b"),
        ("", "id"),
        ("x" * 1024, "1024"),
        ("ü" * 512, "1024"),
        (5, "5"),
        (None, "id"),
        (["1"], "id"),
    ],
)
def test_bad_ids_are_400(node, container, item_id, fragment):
    assert_error(create(node, container, {"id": item_id, "pk": "p"}), 400, 0, fragment)
    assert_error(create(node, container, {"id": item_id, "pk": "p"}, **{"x-ms-documentdb-is-upsert": "true"}), 400, 0)
    assert list(container.read_all_items()) == []


def test_missing_id_is_400(node, container):
    assert_error(create(node, container, {"pk": "p"}), 400, 0, "id")


def test_item_over_2_mb_is_413_and_under_it_is_fine(node, container):
    assert create(node, container, {"id": "1", "pk": "p", "text": "x" * 1_900_000}).status == 201
    assert_error(create(node, container, {"id": "2", "pk": "p", "text": "x" * 2_200_000}), 413)
    assert_error(
        node.raw("PUT", docs(container, "1"), headers=KEY, body={"id": "1", "pk": "p", "text": "x" * 2_200_000}), 413
    )
    assert [each["id"] for each in container.read_all_items()] == ["1"]


def test_item_that_a_patch_makes_too_large_is_413_and_stays(node, container):
    create(node, container, {"id": "1", "pk": "p", "text": "x" * 1_500_000})
    answer = node.raw(
        "PATCH", docs(container, "1"), headers=KEY,
        body={"operations": [{"op": "add", "path": "/more", "value": "y" * 900_000}]},
    )  # fmt: skip
    assert_error(answer, 413)
    assert "more" not in container.read_item("1", "p")


# partition keys


def test_missing_partition_key_header_is_400(node, container):
    container.create_item({"id": "1", "pk": "p"})
    for method, path, body in [
        ("POST", docs(container), {"id": "2", "pk": "p"}),
        ("GET", docs(container, "1"), None),
        ("PUT", docs(container, "1"), {"id": "1", "pk": "p"}),
        ("PATCH", docs(container, "1"), {"operations": [{"op": "add", "path": "/n", "value": 1}]}),
        ("DELETE", docs(container, "1"), None),
    ]:
        assert_error(node.raw(method, path, body=body), 400, 0)
    assert [each["id"] for each in container.read_all_items()] == ["1"]


@pytest.mark.parametrize(
    "header, body",
    [
        ('["q"]', {"id": "1", "pk": "p"}),
        ('["p"]', {"id": "1"}),
        ("[{}]", {"id": "1", "pk": "p"}),
        ("[null]", {"id": "1", "pk": "p"}),
        ('["5"]', {"id": "1", "pk": 5}),
    ],
)
def test_contradicting_partition_key_is_400_with_sub_status_1001(node, container, header, body):
    answer = node.raw("POST", docs(container), headers={"x-ms-documentdb-partitionkey": header}, body=body)
    assert_error(answer, 400, 1001, "Partition key provided either doesn't correspond to definition in the collection")
    assert list(container.read_all_items()) == []


def test_replace_cannot_move_an_item_to_another_partition(node, container):
    container.create_item({"id": "1", "pk": "p"})
    answer = node.raw("PUT", docs(container, "1"), headers=KEY, body={"id": "1", "pk": "q"})
    assert (answer.status, answer.substatus) == (400, 1001), answer
    assert container.read_item("1", "p")["pk"] == "p"


@pytest.mark.parametrize("header", ["p", '"p"', "[", '["p","q"]', "[[]]", '[{"a":1}]', "{}", '["p"'])
def test_malformed_partition_key_header_is_400(node, container, header):
    container.create_item({"id": "1", "pk": "p"})
    answer = node.raw("GET", docs(container, "1"), headers={"x-ms-documentdb-partitionkey": header})
    assert answer.status == 400, answer


@pytest.mark.parametrize("value", [{"a": 1}, [1]])
def test_object_or_array_as_partition_key_is_undefined(node, container, value):
    answer = create(node, container, {"id": "1", "pk": value})
    assert answer.status == 400, f"a header cannot hold it: {answer}"
    undefined = {"x-ms-documentdb-partitionkey": "[{}]"}
    assert create(node, container, {"id": "1", "pk": value}, **undefined).status == 201
    assert container.read_item("1", partition_key=NonePartitionKeyValue)["pk"] == value
    query = "SELECT VALUE c.id FROM c WHERE c.pk = @value"
    parameters = [{"name": "@value", "value": value}]
    assert list(container.query_items(query, parameters=parameters, enable_cross_partition_query=True)) == ["1"]


def test_partition_key_over_2048_bytes_is_400(node, container):
    fine, too_long = "x" * 2048, "x" * 2049
    for value, status in [(fine, 201), (too_long, 400)]:
        answer = node.raw(
            "POST", docs(container), headers={"x-ms-documentdb-partitionkey": json.dumps([value])},
            body={"id": "1", "pk": value},
        )  # fmt: skip
        assert answer.status == status, answer


# resources and methods


def test_unknown_resources_are_404(node, container):
    database = container.container_link.split("/")[1]
    assert_error(node.raw("GET", docs(container, "no-such-item"), headers=KEY), 404, 0, "no-such-item")
    assert_error(node.raw("GET", f"/dbs/{database}/colls/no-such-container"), 404, 0, "no-such-container")
    assert_error(node.raw("GET", "/dbs/no-such-database"), 404, 0, "no-such-database")
    assert_error(node.raw("GET", "/offers/AAAA"), 404)


def test_missing_owner_is_404_with_sub_status_1003(node, container):
    database = container.container_link.split("/")[1]
    item = {"id": "1", "pk": "p"}
    missing = f"/dbs/{database}/colls/no-such-container"
    assert_error(node.raw("GET", f"{missing}/docs/1", headers=KEY), 404, 1003, "no-such-container")
    assert_error(node.raw("POST", f"{missing}/docs", headers=KEY, body=item), 404, 1003, "no-such-container")
    assert_error(node.raw("GET", f"{missing}/pkranges"), 404, 1003, "no-such-container")
    assert_error(node.raw("GET", "/dbs/no-such-database/colls/c/docs/1", headers=KEY), 404, 1003, "no-such-database")


@pytest.mark.parametrize("path", ["/nonsense", "/dbs/d/nonsense", "/dbs/d/colls/c/docs/i/what/else", "//", "/dbs//colls"])
def test_unknown_paths_answer_json(node, path):
    answer = node.raw("GET", path)
    assert answer.status in (400, 401, 404), answer
    assert answer.json["code"]


@pytest.mark.parametrize("method, path", [("PUT", "/dbs"), ("PATCH", "/dbs"), ("DELETE", "/offers"), ("POST", "/")])
def test_method_that_a_path_does_not_take_is_405(node, method, path):
    assert_error(node.raw(method, path), 405)


# headers


@pytest.mark.parametrize("content_type", ["text/plain", "application/xml", "multipart/form-data; boundary=x"])
def test_wrong_content_type_is_400(node, container, content_type):
    answer = create(node, container, {"id": "1", "pk": "p"}, **{"content-type": content_type})
    assert_error(answer, 400, 0, content_type.split(";")[0])
    assert list(container.read_all_items()) == []


@pytest.mark.parametrize("version", ["1999-01-01", "2999-01-01", "newest"])
def test_unsupported_api_version_is_400(node, container, version):
    answer = create(node, container, {"id": "1", "pk": "p"}, **{"x-ms-version": version})
    assert_error(answer, 400, 0, version)


@pytest.mark.parametrize("version", ["2018-12-31", "2020-07-15"])
def test_supported_api_versions(node, container, version):
    assert create(node, container, {"id": "1", "pk": "p"}, **{"x-ms-version": version}).status == 201


def test_unknown_headers_and_odd_booleans_are_fine(node, container):
    for n, value in enumerate(["True", "true", "TRUE"]):
        headers = {"x-ms-documentdb-is-upsert": value, "x-ms-what-is-this": "?"}
        assert create(node, container, {"id": "1", "pk": "p", "n": n}, **headers).status in (200, 201)


def test_a_node_of_its_own_has_every_consistency_level(node, container):
    container.create_item({"id": "1", "pk": "p"})
    for level, status in [("Eventual", 200), ("Session", 200), ("Strong", 200), ("Sloppy", 400)]:
        answer = node.raw("GET", docs(container, "1"), headers={**KEY, "x-ms-consistency-level": level})
        assert answer.status == status, (level, answer)


def test_long_values_are_shortened_in_messages(node, container):
    answer = create(node, container, {"id": "x" * 50_000, "pk": "p"})
    assert answer.status == 400
    assert len(answer.body) < 2_000
