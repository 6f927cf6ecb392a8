"""The node's clock when the machine's is wrong: it never goes back, and a jump forward destroys nothing."""

import sys
import time

import pytest
from azure.cosmos import PartitionKey, exceptions

from node import wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="preloading a library works this way on Linux only")
# More than the 60 s that count as a jump, less than the 15 minutes within which signatures are valid.
JUMP_SECONDS = 600


@pytest.fixture
def node(faulty_node):
    node = faulty_node()
    node.client().create_database("d").create_container("c", PartitionKey("/pk"), default_ttl=-1)
    return node


def container(node):
    return node.client().get_database_client("d").get_container_client("c")


def set_ahead(node, seconds):
    """Sets the wall clock at once, so that the node never reads half of it."""
    following = node.folder / "wall-clock.next"
    following.write_text(str(seconds))
    following.rename(node.wall_clock)


def status(node):
    return node.health("/status").json


def stored_clock(node):
    path = node.data / "clock"
    return int(path.read_text()) if path.exists() else 0


def documents_stored(node):
    return sum(shard["documents"] for each in status(node)["containers"] for shard in each["shards"])


def test_timestamps_never_go_back_when_the_machine_does(node):
    items = container(node)
    before = items.create_item({"id": "before", "pk": "p"})
    set_ahead(node, -JUMP_SECONDS)
    after = items.create_item({"id": "after", "pk": "p"})
    assert after["_ts"] >= before["_ts"]


def test_timestamps_never_go_back_over_a_crash(node):
    set_ahead(node, 50)
    before = container(node).create_item({"id": "before", "pk": "p"})
    node.kill()
    set_ahead(node, 0)
    node.start()
    after = container(node).create_item({"id": "after", "pk": "p"})
    assert after["_ts"] >= before["_ts"]


def test_expired_item_does_not_come_back_when_the_clock_is_set_back(node):
    items = container(node)
    items.create_item({"id": "mortal", "pk": "p", "ttl": 40})
    set_ahead(node, 50)
    with pytest.raises(exceptions.CosmosResourceNotFoundError):
        items.read_item("mortal", "p")
    set_ahead(node, 0)
    with pytest.raises(exceptions.CosmosResourceNotFoundError):
        items.read_item("mortal", "p")
    issued = status(node)["now"]
    wait_until(lambda: stored_clock(node) >= issued, "the highest time is on disk")
    node.kill()
    node.start()
    with pytest.raises(exceptions.CosmosResourceNotFoundError):
        container(node).read_item("mortal", "p")


def test_small_step_forward_expires_and_purges(node):
    items = container(node)
    items.create_item({"id": "mortal", "pk": "p", "ttl": 40})
    items.create_item({"id": "stays", "pk": "p"})
    set_ahead(node, 50)
    assert [each["id"] for each in items.read_all_items()] == ["stays"]
    wait_until(lambda: documents_stored(node) == 1, "the expired item is purged")
    assert status(node)["purgingPaused"] is False


def test_jump_forward_pauses_purging_until_it_is_confirmed(node):
    items = container(node)
    for n in range(10):
        items.create_item({"id": f"mortal {n}", "pk": "p", "ttl": 300})
    set_ahead(node, JUMP_SECONDS)
    # other work goes on and must not set the purger off
    items.create_item({"id": "stays", "pk": "p"})
    assert [each["id"] for each in items.read_all_items()] == ["stays"]
    wait_until(lambda: status(node)["purgingPaused"], "the jump is noticed")
    assert "jumped" in node.log()
    items.create_item({"id": "stays too", "pk": "p"})
    assert documents_stored(node) == 12, "nothing was destroyed on the word of a broken clock"
    assert node.raw("GET", "/dbs").status == 200
    assert node.order("/clock/confirm").status == 200
    wait_until(lambda: documents_stored(node) == 2, "the purge goes on after the jump is confirmed")
    assert status(node)["purgingPaused"] is False



def jumped(node):
    """A node whose clock has jumped forward, over the deadline of ten items that are stored."""
    items = container(node)
    for n in range(10):
        items.create_item({"id": f"mortal {n}", "pk": "p", "ttl": 300})
    set_ahead(node, JUMP_SECONDS)
    items.create_item({"id": "stays", "pk": "p"})
    wait_until(lambda: status(node)["purgingPaused"], "the jump is noticed")
    return items


def test_jump_that_is_taken_back_under_a_running_node_destroys_nothing(node):
    jumped(node)
    set_ahead(node, 0)
    # Two ticks of the purger, in which it must not stir.
    time.sleep(1.5)
    assert status(node)["purgingPaused"], "the time already issued is still ahead"
    assert documents_stored(node) == 11


def test_clean_stop_during_a_jump_destroys_nothing(node):
    jumped(node)
    node.stop()
    set_ahead(node, 0)
    node.start()
    assert len(list(container(node).read_all_items())) == 11
    assert documents_stored(node) == 11
