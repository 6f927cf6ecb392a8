"""A restart with a backlog: what fell due while the node was away is gone for the first reader, and purged afterwards."""

import sys

import pytest
from azure.cosmos import PartitionKey

from node import wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="preloading a library works this way on Linux only")
PARTITIONS = 40
ITEMS_PER_PARTITION = 100
# Less than the 60 s that would be a jump of the clock.
AWAY_SECONDS = 50
PATH = "/dbs/d/colls/c/docs"


def key_header(partition):
    return {"x-ms-documentdb-partitionkey": f'["{partition}"]'}


def create_batch(node, partition):
    """One that stays, the others mortal."""
    bodies = [{"id": f"{partition}-{n}", "pk": str(partition), "ttl": -1 if n == 0 else 40} for n in range(ITEMS_PER_PARTITION)]
    headers = {
        **key_header(partition), "x-ms-cosmos-is-batch-request": "True", "x-ms-cosmos-batch-atomic": "True",
        "x-ms-cosmos-batch-ordered": "True",
    }  # fmt: skip
    body = [{"operationType": "Create", "resourceBody": each} for each in bodies]
    answer = node.raw("POST", PATH, headers=headers, body=body)
    assert answer.status == 200, answer


def documents_stored(node):
    return sum(shard["documents"] for each in node.health("/status").json["containers"] for shard in each["shards"])


def count(node):
    container = node.client().get_database_client("d").get_container_client("c")
    return next(iter(container.query_items("SELECT VALUE COUNT(1) FROM c", enable_cross_partition_query=True)))


def test_what_fell_due_while_the_node_was_away_is_gone_at_once_and_purged_afterwards(faulty_node):
    node = faulty_node()
    node.client().create_database("d").create_container("c", PartitionKey("/pk"), default_ttl=-1, offer_throughput=20_000)
    for partition in range(PARTITIONS):
        create_batch(node, partition)
    total = PARTITIONS * ITEMS_PER_PARTITION
    assert count(node) == total
    node.kill()
    node.wall_clock.write_text(str(AWAY_SECONDS))
    node.start()
    # The first answers, while nearly everything is still stored.
    assert count(node) == PARTITIONS
    for partition in range(0, PARTITIONS, 7):
        mortal = node.raw("GET", f"{PATH}/{partition}-1", headers=key_header(partition))
        assert mortal.status == 404, mortal
        kept = node.raw("GET", f"{PATH}/{partition}-0", headers=key_header(partition))
        assert kept.status == 200, kept
        # Its id is free again.
        again = node.raw("POST", PATH, headers=key_header(partition), body={"id": f"{partition}-1", "pk": str(partition), "ttl": -1})
        assert again.status == 201, again
    created = len(range(0, PARTITIONS, 7))
    wait_until(lambda: documents_stored(node) == PARTITIONS + created, "the backlog is purged")
    assert count(node) == PARTITIONS + created
    assert node.metric("bolide_expiry_paused") == 0
