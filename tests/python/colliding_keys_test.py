"""Different partition keys with one hash: they share a place in the key space, never an item."""

import json

import pytest
from azure.cosmos import PartitionKey, exceptions

# Two strings with one MurmurHash3, the hash of version 2; version 1 cuts strings at a hundred characters.
CRAFTED = ("collisionsarepo·kI4vvZ1Q\u075eeRʊ24bReDƬ", 'collisionsarepo"Xik\u0484h(pDfq(k(B24bR⑔/')
CUT = ("a" * 100, "a" * 101)


@pytest.fixture(params=[(2, CRAFTED), (1, CUT)], ids=["crafted", "cut"])
def colliding(request, new_container):
    version, keys = request.param
    return new_container(PartitionKey("/pk", version=version)), keys


def contents(items):
    return sorted((item["pk"], item["id"], item["n"]) for item in items)


def test_items_of_keys_with_one_hash_are_apart(colliding):
    container, (one, other) = colliding
    container.create_item({"id": "x", "pk": one, "n": 1})
    with pytest.raises(exceptions.CosmosResourceNotFoundError):
        container.read_item("x", other)
    with pytest.raises(exceptions.CosmosResourceNotFoundError):
        container.delete_item("x", other)
    container.create_item({"id": "x", "pk": other, "n": 2})
    container.upsert_item({"id": "x", "pk": other, "n": 3})
    container.patch_item("x", one, [{"op": "incr", "path": "/n", "value": 10}])
    assert container.read_item("x", one)["n"] == 11
    assert container.read_item("x", other)["n"] == 3
    container.delete_item("x", one)
    assert container.read_item("x", other)["n"] == 3


def test_reads_of_one_key_do_not_see_the_other(node, colliding):
    container, (one, other) = colliding
    for n, key in enumerate([one, other]):
        container.create_item({"id": "x", "pk": key, "n": n})
        container.create_item({"id": f"only {n}", "pk": key, "n": n})
    assert contents(container.query_items("SELECT * FROM c", partition_key=one)) == [(one, "only 0", 0), (one, "x", 0)]
    assert list(container.query_items("SELECT VALUE COUNT(1) FROM c", partition_key=other)) == [2]
    assert contents(container.read_items([("x", one), ("x", other)])) == sorted([(one, "x", 0), (other, "x", 1)])
    # This SDK asks for the change feed of a key by its hash, other clients by the key itself.
    headers = {"a-im": "Incremental Feed", "x-ms-documentdb-partitionkey": json.dumps([other])}
    changes = node.raw("GET", f"/{container.container_link}/docs", headers=headers).json["Documents"]
    assert contents(changes) == [(other, "only 1", 1), (other, "x", 1)]
    assert len(list(container.read_all_items())) == 4


def test_batches_and_deletes_of_one_key_do_not_touch_the_other(colliding):
    container, (one, other) = colliding
    container.create_item({"id": "x", "pk": one, "n": 0})
    container.execute_item_batch([("create", ({"id": "x", "pk": other, "n": 1},)), ("create", ({"id": "y", "pk": other, "n": 1},))], other)
    container.delete_all_items_by_partition_key(other)
    assert contents(container.read_all_items()) == [(one, "x", 0)]


@pytest.mark.parametrize("version, keys", [(2, CRAFTED), (1, CUT)], ids=["crafted", "cut"])
def test_unique_keys_are_unique_within_one_key_only(new_container, version, keys):
    policy = {"uniqueKeys": [{"paths": ["/mail"]}]}
    container = new_container(PartitionKey("/pk", version=version), unique_key_policy=policy)
    for key in keys:
        container.create_item({"id": key[:5] + str(len(key)), "pk": key, "mail": "a@b"})
    with pytest.raises(exceptions.CosmosResourceExistsError):
        container.create_item({"id": "another", "pk": keys[0], "mail": "a@b"})
