"""Property names that an unkeyed hash cannot tell apart: the index counts each of them by itself."""

import json

from azure.cosmos import PartitionKey

from node import wait_until
from split_test import make, shards, split

# Without a key both have the same path number; a search of some minutes found them.
ONE, OTHER = "icdkmkegliikmaml", "aifboigojfbpilff"
CONDITIONS = ("c.{} = 7", "IS_DEFINED(c.{})", "c.{} > 5", "c.{} IN (6, 7)")


def counts(container, name):
    queries = (f"SELECT VALUE COUNT(1) FROM c WHERE {condition.format(name)}" for condition in CONDITIONS)
    return [list(container.query_items(query, enable_cross_partition_query=True))[0] for query in queries]


def check(container):
    assert counts(container, ONE) == [3] * len(CONDITIONS)
    assert counts(container, OTHER) == [0] * len(CONDITIONS)
    lacking = f"SELECT VALUE COUNT(1) FROM c WHERE NOT IS_DEFINED(c.{OTHER})"
    assert list(container.query_items(lacking, enable_cross_partition_query=True)) == [3]


def test_names_that_collide_without_a_key_are_counted_apart(new_node):
    node = new_node()
    container = make(node)
    for number in range(3):
        container.create_item({"id": str(number), "pk": str(number), ONE: 7})
    check(container)
    node.restart()
    check(container)
    split(node)
    check(container)
    # A new index keeps the key of the container.
    policy = {"includedPaths": [{"path": "/*"}], "excludedPaths": [{"path": "/pk/?"}]}
    database = node.client().get_database_client("shop")
    database.replace_container(container.id, PartitionKey("/pk"), indexing_policy=policy)
    wait_until(lambda: all(shard["index"]["progress"] == 100 for shard in shards(node)), "the new index is whole")
    check(container)


def test_composite_and_computed_columns_of_colliding_names_are_told_apart(new_node):
    node = new_node()
    database = node.client().create_database("d")
    policy = {"compositeIndexes": [[{"path": f"/{name}"}, {"path": "/n"}] for name in (ONE, OTHER)]}
    container = database.create_container("c", PartitionKey("/pk"), indexing_policy=policy)
    for number in range(3):
        container.create_item({"id": str(number), "pk": "p", ONE: 7, "n": number})
        container.create_item({"id": f"other-{number}", "pk": "p", OTHER: 9, "n": number})
    for name, value in ((ONE, 7), (OTHER, 9)):
        for wanted, expected in ((value, [2, 1]), (16 - value, [])):
            query = f"SELECT VALUE c.n FROM c WHERE c.{name} = {wanted} AND c.n > 0 ORDER BY c.{name} DESC, c.n DESC"
            assert list(container.query_items(query, partition_key="p")) == expected


def test_the_key_of_the_paths_is_not_shown(node, new_container):
    container = new_container()
    link = f"/{container.container_link}"
    shown = [node.raw("GET", link), node.raw("GET", link.rsplit("/", 1)[0]), node.health("/status"), node.health("/metrics")]
    for answer in shown:
        text = answer.body.decode().lower().replace("_", "")
        assert "pathkey" not in text, answer
    properties = json.loads(shown[0].body)["indexingPolicy"]
    assert set(properties) == {"indexingMode", "automatic", "includedPaths", "excludedPaths"}
