"""Hierarchical partition keys."""

import pytest
from azure.cosmos import PartitionKey, exceptions


@pytest.fixture
def tenants(new_container):
    return new_container(PartitionKey(["/tenant", "/user", "/session"], kind="MultiHash"), offer_throughput=20_100)


def item(n, tenant="t", user="u", session="s"):
    return {"id": str(n), "tenant": tenant, "user": user, "session": session}


def test_definition_comes_back(tenants):
    definition = tenants.read()["partitionKey"]
    assert definition == {"paths": ["/tenant", "/user", "/session"], "kind": "MultiHash", "version": 2}


def test_all_point_operations(tenants):
    key = ["t", "u", "s"]
    tenants.create_item(item(1))
    assert tenants.read_item("1", key)["user"] == "u"
    tenants.replace_item("1", {**item(1), "n": 1})
    tenants.upsert_item({**item(1), "n": 2})
    assert tenants.patch_item("1", key, [{"op": "incr", "path": "/n", "value": 1}])["n"] == 3
    tenants.execute_item_batch([("create", (item(2),)), ("read", ("1",))], key)
    tenants.delete_item("1", key)
    assert [each["id"] for each in tenants.read_all_items()] == ["2"]


def test_same_id_lives_in_every_partition(tenants):
    for session in "abc":
        tenants.create_item(item(1, session=session))
    with pytest.raises(exceptions.CosmosResourceExistsError):
        tenants.create_item(item(1, session="a"))
    assert tenants.read_item("1", ["t", "u", "b"])["session"] == "b"


def test_prefix_is_too_little_for_a_point_operation(node, tenants):
    tenants.create_item(item(1))
    answer = node.raw(
        "GET", f"/{tenants.container_link}/docs/1", headers={"x-ms-documentdb-partitionkey": '["t","u"]'}
    )
    assert answer.status == 400, answer
    answer = node.raw(
        "POST", f"/{tenants.container_link}/docs", headers={"x-ms-documentdb-partitionkey": '["t","u"]'}, body=item(2)
    )
    assert (answer.status, answer.substatus) == (400, 1001), answer


def test_values_of_every_kind_in_every_level(tenants):
    made = {"id": "1", "tenant": 5, "user": None, "session": True}
    tenants.create_item(made)
    assert tenants.read_item("1", [5, None, True])["id"] == "1"


def test_prefix_query_finds_exactly_its_items(tenants):
    for n in range(6):
        tenants.create_item(item(n, tenant="even" if n % 2 == 0 else "odd", user=f"user {n}"))
    found = tenants.query_items("SELECT * FROM c", partition_key=["even"])
    assert sorted(each["id"] for each in found) == ["0", "2", "4"]
    found = tenants.query_items("SELECT * FROM c", partition_key=["even", "user 2"])
    assert [each["id"] for each in found] == ["2"]


def test_change_feed_of_a_prefix(tenants):
    for n in range(4):
        tenants.create_item(item(n, tenant="mine" if n < 2 else "other"))
    changes = tenants.query_items_change_feed(partition_key=["mine"], start_time="Beginning")
    assert [each["id"] for each in changes] == ["0", "1"]
