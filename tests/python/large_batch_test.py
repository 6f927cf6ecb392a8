"""Batches that mean far more bytes or work than their requests have: refused at once, and nobody else notices."""

import json

import pytest
from azure.cosmos import exceptions

from batch_test import item, raw_batch
from cluster_test import Cluster, make

LARGE = 1_900_000
ANSWER_BYTES_MAX = 4 * 1024 * 1024
SET = [{"op": "set", "path": "/z", "value": 1}]
# 800 * 800 pairs of numbers are looked at.
SLOW = (
    "FROM c WHERE NOT EXISTS(SELECT VALUE a FROM a IN ARRAY_SLICE(c.arr,0,800)"
    " JOIN b IN ARRAY_SLICE(c.arr,0,800) WHERE a+b=-1)"
)


@pytest.fixture
def unindexed(new_container):
    return new_container(indexing_policy={"indexingMode": "none", "automatic": False})


def fill(container, count):
    for number in range(count):
        container.create_item(item(number, text="x" * LARGE))


def patches(count):
    return [{"operationType": "Patch", "id": str(number), "resourceBody": {"operations": SET}} for number in range(count)]


def statuses(answer):
    return [each["statusCode"] for each in answer.json]


def bulk(node, container, operations):
    return raw_batch(node, container, [{"partitionKey": '["p"]', **each} for each in operations],
                     **{"x-ms-cosmos-batch-atomic": "False", "x-ms-cosmos-batch-continue-on-error": "True"})  # fmt: skip


def test_a_batch_is_bounded_after_its_patches(node, unindexed):
    fill(unindexed, 3)
    answer = raw_batch(node, unindexed, patches(3))
    assert answer.status == 207, answer
    assert statuses(answer) == [424, 413, 424]
    assert [unindexed.read_item(str(number), "p").get("z") for number in range(3)] == [None] * 3
    with pytest.raises(exceptions.CosmosBatchOperationError) as error:
        unindexed.execute_item_batch([("patch", (str(number), SET)) for number in range(3)], "p")
    assert error.value.status_code == 413
    assert error.value.error_index == 1
    for number in range(3):
        assert unindexed.patch_item(str(number), "p", SET)["z"] == 1


def test_a_batch_of_patches_does_not_stop_the_shard_of_a_cluster(new_node, tmp_path):
    cluster = Cluster(new_node, tmp_path)
    container = make(cluster.nodes[1], indexing_policy={"indexingMode": "none", "automatic": False})
    count = 20
    fill(container, count)
    for node in cluster.nodes.values():
        answer = raw_batch(node, container, patches(count))
        assert answer.status == 207, answer
        assert statuses(answer) == [424, 413] + [424] * (count - 2)
    for number, node in cluster.nodes.items():
        answer = raw_batch(node, container, [{"operationType": "Create", "resourceBody": item(f"later-{number}")}])
        assert answer.status == 200, answer
        answer = bulk(node, container, patches(count))
        assert statuses(answer) == [200] * count
        assert len(answer.body) < ANSWER_BYTES_MAX + 100_000
    assert container.read_item("0", "p")["z"] == 1
    for node in cluster.nodes.values():
        assert "too long" not in node.log()


def test_the_answer_of_a_batch_is_bounded(node, unindexed):
    fill(unindexed, 3)
    reads = [{"operationType": "Read", "id": "0"}] * 100
    answer = raw_batch(node, unindexed, reads)
    assert answer.status == 207, answer
    assert statuses(answer) == [424, 424, 413] + [424] * 97
    with pytest.raises(exceptions.CosmosBatchOperationError) as error:
        unindexed.execute_item_batch([("read", ("0",))] * 100, "p")
    assert error.value.status_code == 413
    results = unindexed.execute_item_batch([("read", ("0",)), ("read", ("1",))], "p")
    assert [len(each["resourceBody"]["text"]) for each in results] == [LARGE] * 2
    answer = raw_batch(node, unindexed, reads[:8], prefer="return=minimal")
    assert answer.status == 200, answer
    # What the answer has no room for is not all that is bounded: so is what is looked up.
    answer = raw_batch(node, unindexed, reads, prefer="return=minimal")
    assert answer.status == 207 and 413 in statuses(answer), answer
    # A batch that would write, too, writes nothing.
    write = {"operationType": "Create", "resourceBody": item("new")}
    assert raw_batch(node, unindexed, [write, *reads[:3]]).status == 207
    assert raw_batch(node, unindexed, [{"operationType": "Read", "id": "new"}]).json[0]["statusCode"] == 404


def test_the_answer_of_a_bulk_request_is_bounded_and_true(node, unindexed):
    fill(unindexed, 3)
    answer = bulk(node, unindexed, [{"operationType": "Read", "id": "0"}] * 100)
    assert answer.status == 207
    assert len(answer.body) < ANSWER_BYTES_MAX + 100_000
    assert sorted(statuses(answer)) == [200] * 2 + [413] * 98
    # Writes are carried out, and answered without their items when there is no room for those.
    answer = bulk(node, unindexed, patches(3))
    assert statuses(answer) == [200] * 3
    assert len([each for each in answer.json if "resourceBody" in each]) == 2
    for number, row in enumerate(answer.json):
        read = unindexed.read_item(str(number), "p")
        assert (read["z"], read["_etag"]) == (1, row["eTag"])


def test_conditions_of_patches_are_bounded(node, container):
    for number in range(60):
        container.create_item(item(number, arr=list(range(800))))
    operation = {"operationType": "Patch", "resourceBody": {"operations": SET, "condition": SLOW}}
    answer = raw_batch(node, container, [{**operation, "id": str(number)} for number in range(60)])
    assert answer.status == 207, answer
    assert statuses(answer) == [400] + [424] * 59
    assert "steps" in answer.json[0]["message"]
    with pytest.raises(exceptions.CosmosHttpResponseError) as error:
        container.patch_item("0", "p", SET, filter_predicate=SLOW)
    assert error.value.status_code == 400
    # 150 * 150 are within the bound.
    narrow = SLOW.replace("800", "150")
    assert container.patch_item("0", "p", SET, filter_predicate=narrow)["z"] == 1
    # In a batch they share one.
    operation["resourceBody"]["condition"] = narrow
    answer = raw_batch(node, container, [{**operation, "id": str(number)} for number in range(60)])
    assert statuses(answer).count(400) == 1, answer
    assert container.read_item("59", "p").get("z") is None
    assert statuses(raw_batch(node, container, [{**operation, "id": str(number)} for number in range(4)])) == [200] * 4


def test_conditions_of_patches_know_the_time(container):
    container.create_item(item(1, since="2020-01-01T00:00:00.0000000Z"))
    condition = "FROM c WHERE c.since < GetCurrentDateTime()"
    assert container.patch_item("1", "p", SET, filter_predicate=condition)["z"] == 1


def test_conditional_patches_of_one_item_by_many_clients_are_each_judged_by_the_newest_version(node, container):
    container.create_item(item(1, n=0))
    connection = node.connection()
    link = f"/{container.container_link}/docs/1"
    headers = {"x-ms-documentdb-partitionkey": '["p"]'}

    def attempt(expected):
        body = {"condition": f"FROM c WHERE c.n = {expected}",
                "operations": [{"op": "incr", "path": "/n", "value": 1}]}  # fmt: skip
        return node.raw("PATCH", link, headers=headers, body=json.dumps(body), connection=connection).status

    assert [attempt(expected) for expected in (0, 0, 1, 1, 2)] == [200, 412, 200, 412, 200]
    assert container.read_item("1", "p")["n"] == 3
    connection.close()
