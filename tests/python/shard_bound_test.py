"""Shards are bounded by file descriptors: what does not fit is refused, and what is there goes on."""

import pytest
from azure.cosmos import PartitionKey, exceptions

LIMIT = 400


def limited(node):
    """The same node with few descriptors, which it cannot raise."""
    command = node.command()
    node.command = lambda: ["sh", "-c", f'ulimit -n {LIMIT} && exec "$@"', "sh", *command]
    return node.start()


def test_a_container_that_needs_too_many_descriptors_is_refused_and_others_go_on(new_node):
    node = limited(new_node(start=False))
    database = node.client().create_database("d")
    small = database.create_container("small", PartitionKey("/pk"))
    with pytest.raises(exceptions.CosmosHttpResponseError) as refused:
        database.create_container("large", PartitionKey("/pk"), offer_throughput=1_000_000)
    assert refused.value.status_code == 403
    assert "file descriptors" in str(refused.value) and f"of {LIMIT} open" in str(refused.value)
    small.create_item({"id": "1", "pk": "p"})
    database.create_container("another", PartitionKey("/pk")).create_item({"id": "1", "pk": "p"})
    assert node.restart() == 0
    assert small.read_item("1", "p")["id"] == "1"
    assert "Too many open files" not in node.log()
