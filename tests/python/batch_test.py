"""Transactional batches: all or nothing; and bulk requests, where each operation stands alone."""

import json

import pytest
from azure.cosmos import exceptions


def item(n, **more):
    return {"id": str(n), "pk": "p", **more}


def raw_batch(node, container, operations, **headers):
    every = {"x-ms-documentdb-partitionkey": '["p"]', "x-ms-cosmos-is-batch-request": "True",
             "x-ms-cosmos-batch-atomic": "True", **headers}  # fmt: skip
    return node.raw("POST", f"/{container.container_link}/docs", headers=every, body=operations)


def test_every_operation_in_one_batch(container):
    for n in "rudt":
        container.create_item(item(n, n=1))
    results = container.execute_item_batch(
        [
            ("create", (item("c"),)),
            ("upsert", (item("u", n=2),)),
            ("upsert", (item("new"),)),
            ("replace", ("r", item("r", n=2))),
            ("read", ("r",)),
            ("patch", ("t", [{"op": "incr", "path": "/n", "value": 1}])),
            ("delete", ("d",)),
        ],
        "p",
    )
    assert [each["statusCode"] for each in results] == [201, 200, 201, 200, 200, 200, 204]
    assert results[4]["resourceBody"]["n"] == 2, "a read sees what the batch wrote before it"
    assert results[5]["resourceBody"]["n"] == 2
    assert "resourceBody" not in results[6]
    assert results[0]["eTag"] == results[0]["resourceBody"]["_etag"]
    assert all(each["requestCharge"] >= 0 for each in results)
    assert sorted(each["id"] for each in container.read_all_items()) == ["c", "new", "r", "t", "u"]


@pytest.mark.parametrize(
    "bad, status",
    [
        (("create", (item("there"),)), 409),
        (("replace", ("missing", item("missing"))), 404),
        (("read", ("missing",)), 404),
        (("delete", ("missing",)), 404),
        (("patch", ("there", [{"op": "remove", "path": "/missing"}])), 400),
        (("patch", ("there", [{"op": "add", "path": "/n", "value": 1}]), {"filter_predicate": "from c where c.n = 77"}), 412),
        (("replace", ("there", item("there")), {"if_match_etag": '"stale"'}), 412),
        (("create", (item("bad", ttl=0),)), 400),
    ],
)  # fmt: skip
def test_one_failure_rolls_everything_back(new_container, bad, status):
    container = new_container(default_ttl=-1)
    before = container.create_item(item("there", n=1))
    with pytest.raises(exceptions.CosmosBatchOperationError) as error:
        container.execute_item_batch(
            [("create", (item("new"),)), ("upsert", (item("there", n=5),)), bad, ("create", (item("after"),))], "p"
        )
    assert error.value.error_index == 2
    assert [each["statusCode"] for each in error.value.operation_responses] == [424, 424, status, 424]
    assert list(container.read_all_items()) == [before]


def test_all_operations_share_one_lsn(container):
    before = int(container.create_item(item("first")).get_response_headers()["lsn"])
    results = container.execute_item_batch([("create", (item(n),)) for n in range(5)], "p")
    assert int(results.get_response_headers()["lsn"]) == before + 1


def test_overall_status_is_207_when_one_fails(node, container):
    operations = [{"operationType": "Create", "resourceBody": item(1)}, {"operationType": "Read", "id": "missing"}]
    answer = raw_batch(node, container, operations)
    assert answer.status == 207, answer
    assert [each["statusCode"] for each in answer.json] == [424, 404]


def test_minimal_answers_leave_the_bodies_out(node, container):
    answer = raw_batch(node, container, [{"operationType": "Create", "resourceBody": item(1)}], prefer="return=minimal")
    assert answer.status == 200
    assert answer.json[0]["statusCode"] == 201
    assert "resourceBody" not in answer.json[0]


def test_conditions_in_a_batch(node, container):
    etag = container.create_item(item(1))["_etag"]
    answer = raw_batch(node, container, [{"operationType": "Read", "id": "1", "ifNoneMatch": etag}])
    assert answer.json[0]["statusCode"] == 304
    answer = raw_batch(
        node, container, [{"operationType": "Upsert", "resourceBody": item(1, n=1), "ifNoneMatch": "*"}]
    )
    assert answer.json[0]["statusCode"] == 412
    container.execute_item_batch([("replace", ("1", item(1, n=2)), {"if_match_etag": etag})], "p")
    assert container.read_item("1", "p")["n"] == 2


def test_zero_and_101_operations_are_400(node, container):
    answer = raw_batch(node, container, [])
    assert answer.status == 400
    assert "Batch request has no operations." in answer.message
    operations = [{"operationType": "Create", "resourceBody": item(n)} for n in range(101)]
    answer = raw_batch(node, container, operations)
    assert answer.status == 400
    assert "Batch request has more operations than what is supported." in answer.message
    assert list(container.read_all_items()) == []
    assert raw_batch(node, container, operations[:100]).status == 200
    assert len(list(container.read_all_items())) == 100


def test_body_with_another_partition_key_fails_its_operation(node, container):
    operations = [{"operationType": "Create", "resourceBody": item(1)},
                  {"operationType": "Create", "resourceBody": {"id": "2", "pk": "other"}}]  # fmt: skip
    answer = raw_batch(node, container, operations)
    assert answer.status == 207, answer
    assert [each["statusCode"] for each in answer.json] == [424, 400]
    assert list(container.read_all_items()) == []


@pytest.mark.parametrize(
    "operations",
    [
        {"operationType": "Create"},
        [5],
        [{"operationType": "Explode", "id": "1"}],
        [{"operationType": "Create"}],
        [{"operationType": "Read"}],
    ],
)
def test_malformed_batches_are_400(node, container, operations):
    answer = raw_batch(node, container, operations)
    assert answer.status == 400 or [each["statusCode"] for each in answer.json] == [400], answer


def test_batch_without_its_partition_key_is_400(node, container):
    answer = raw_batch(node, container, [{"operationType": "Create", "resourceBody": item(1)}],
                       **{"x-ms-documentdb-partitionkey": None})  # fmt: skip
    assert answer.status == 400, answer


def test_bulk_operations_stand_alone(node, container):
    container.create_item(item("there"))
    operations = [
        {"operationType": "Create", "partitionKey": json.dumps(["a"]), "resourceBody": {"id": "1", "pk": "a"}},
        {"operationType": "Create", "partitionKey": json.dumps(["p"]), "resourceBody": item("there")},
        {"operationType": "Upsert", "partitionKey": json.dumps(["b"]), "resourceBody": {"id": "2", "pk": "b"}},
        {"operationType": "Read", "partitionKey": json.dumps(["p"]), "id": "missing"},
        {"operationType": "Delete", "partitionKey": json.dumps(["p"]), "id": "there"},
        {"operationType": "Create", "partitionKey": json.dumps([{}]), "resourceBody": {"id": "keyless"}},
    ]
    answer = node.raw(
        "POST", f"/{container.container_link}/docs", body=operations,
        headers={"x-ms-cosmos-is-batch-request": "true", "x-ms-cosmos-batch-atomic": "false",
                 "x-ms-cosmos-batch-continue-on-error": "true", "x-ms-documentdb-partitionkeyrangeid": "0"},
    )  # fmt: skip
    assert answer.status in (200, 207), answer
    assert [each["statusCode"] for each in answer.json] == [201, 409, 201, 404, 204, 201]
    assert sorted(each["id"] for each in container.read_all_items()) == ["1", "2", "keyless"]
