"""The node's clock when the machine's is wrong: it never goes back, and a jump forward destroys nothing."""

import sys
import time
from email.utils import formatdate

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


def set_ahead(node, seconds, rate=1, since=0):
    """Sets the wall clock at once, so that the node never reads half of it. It goes at a rate since a second of the machine."""
    following = node.folder / "wall-clock.next"
    following.write_text(f"{seconds} {rate} {since}")
    following.rename(node.wall_clock)


def freeze(node):
    """Has the wall clock stand still from now on; the moment."""
    now = time.time()
    set_ahead(node, 0, rate=0, since=now)
    return now


def status(node):
    return node.health("/status").json


def stored_clock(node):
    """The second of a line like 'bolide-clock 1 1790000000 0123456789abcdef'."""
    path = node.data / "clock"
    return int(path.read_text().split()[2]) if path.exists() else 0


def is_suspect(node):
    return status(node)["purgingPaused"]


def create_mortal(node, count, ttl):
    items = container(node)
    for n in range(count):
        items.create_item({"id": f"mortal {n}", "pk": "p", "ttl": ttl})


def wait_two_purger_ticks():
    """In which a purger that is not paused would stir."""
    time.sleep(1.5)


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
    create_mortal(node, 10, ttl=300)
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
    create_mortal(node, 10, ttl=300)
    set_ahead(node, JUMP_SECONDS)
    items.create_item({"id": "stays", "pk": "p"})
    wait_until(lambda: status(node)["purgingPaused"], "the jump is noticed")
    return items


def test_jump_that_is_taken_back_under_a_running_node_destroys_nothing(node):
    jumped(node)
    set_ahead(node, 0)
    wait_two_purger_ticks()
    assert status(node)["purgingPaused"], "the time already issued is still ahead"
    assert documents_stored(node) == 11


def test_clean_stop_during_a_jump_destroys_nothing(node):
    jumped(node)
    node.stop()
    set_ahead(node, 0)
    node.start()
    assert len(list(container(node).read_all_items())) == 11
    assert documents_stored(node) == 11


# clocks that stand still or drift


def is_there(node, item_id):
    """Whether an item is seen, and the node's seconds before and after."""
    headers = {"x-ms-documentdb-partitionkey": '["p"]'}
    before = status(node)["now"]
    answer = node.raw("GET", f"/dbs/d/colls/c/docs/{item_id}", headers=headers)
    assert answer.status in (200, 404), answer
    return before, answer.status == 200, status(node)["now"]


def assert_exact(node, item_id, due):
    """Looks at an item until it has fallen due: it is there before that second of the node, and gone from then on."""
    while True:
        before, seen, after = is_there(node, item_id)
        assert seen or after >= due, "gone too early"
        assert not seen or before < due, "seen after its second"
        if before >= due:
            return


@pytest.mark.parametrize("then", ["it is set right", "it goes on from there"])
def test_nothing_expires_while_the_clock_stands_still_and_all_that_is_due_when_it_goes_on(node, then):
    items = container(node)
    before = items.create_item({"id": "before", "pk": "p"})
    frozen = freeze(node)
    second = status(node)["now"]
    mortal = items.create_item({"id": "mortal", "pk": "p", "ttl": 2})
    due = mortal["_ts"] + 2
    assert before["_ts"] <= mortal["_ts"] == second
    while time.time() < due + 1:
        assert is_there(node, "mortal") == (second, True, second)
    wait_two_purger_ticks()
    assert documents_stored(node) == 2, "nothing is purged early"
    during = items.create_item({"id": "during", "pk": "p"})
    assert during["_ts"] == second
    set_ahead(node, 0 if then == "it is set right" else frozen - time.time())
    assert_exact(node, "mortal", due)
    wait_until(lambda: documents_stored(node) == 2, "it is purged")
    assert not is_suspect(node)
    assert items.create_item({"id": "after", "pk": "p"})["_ts"] >= due


@pytest.mark.thorough
def test_clock_that_stood_still_for_longer_than_the_bound_has_jumped_when_it_goes_on(faulty_node):
    node = faulty_node(arguments=["--set", "ttl.clock_jump_bound_seconds=2"])
    node.client().create_database("d").create_container("c", PartitionKey("/pk"), default_ttl=-1)
    freeze(node)
    mortal = container(node).create_item({"id": "mortal", "pk": "p", "ttl": 1})
    # The guard follows a clock that falls behind; it has looked by then.
    while time.time() < mortal["_ts"] + 5:
        wait_two_purger_ticks()
    set_ahead(node, 0)
    assert not is_there(node, "mortal")[1]
    wait_until(lambda: is_suspect(node), "the jump is noticed")
    wait_two_purger_ticks()
    assert documents_stored(node) == 1, "nothing is destroyed on the word of a clock that has jumped"
    assert node.order("/clock/confirm").status == 200
    wait_until(lambda: documents_stored(node) == 0, "it is purged")


@pytest.mark.parametrize("rate", [0.5, 3])
def test_clock_that_drifts_is_followed_and_expiry_is_exact_by_it(node, rate):
    items = container(node)
    seconds = [items.create_item({"id": "before", "pk": "p"})["_ts"]]
    set_ahead(node, 0, rate=rate, since=time.time())
    mortal = items.create_item({"id": "mortal", "pk": "p", "ttl": 2 if rate < 1 else 9})
    due = mortal["_ts"] + mortal["ttl"]
    assert documents_stored(node) == 2
    assert_exact(node, "mortal", due)
    wait_until(lambda: documents_stored(node) == 1, "it is purged")
    assert not is_suspect(node)
    seconds += [mortal["_ts"], items.create_item({"id": "after", "pk": "p"})["_ts"]]
    set_ahead(node, 0)
    seconds.append(items.create_item({"id": "right again", "pk": "p"})["_ts"])
    assert seconds == sorted(seconds), "time never goes back"


# a start with a wrong clock


def test_start_a_day_ahead_destroys_nothing_and_the_right_clock_brings_everything_back(node):
    create_mortal(node, 20, ttl=3600)
    container(node).create_item({"id": "stays", "pk": "p"})
    wait_until(lambda: stored_clock(node) > 0, "the time is on disk")
    node.stop()
    stored = stored_clock(node)
    set_ahead(node, 86_400)
    node.start()
    assert "far ahead of the stored time" in node.log()
    assert "ahead" in status(node)["clock"]["suspect"]
    assert node.metric("bolide_expiry_paused") == 1
    assert documents_stored(node) == 21
    wait_two_purger_ticks()
    assert is_suspect(node)
    assert documents_stored(node) == 21, "nothing was destroyed on the word of a clock that is wrong at start"
    assert node.stop() == 0
    assert stored_clock(node) == stored, "a suspect time is not kept"
    set_ahead(node, 0)
    node.start()
    assert not is_suspect(node)
    assert len(list(container(node).read_all_items())) == 21, "requests are accepted, and everything is there"


def test_shard_that_was_written_to_under_a_clock_that_was_ahead_is_said(node):
    """Timestamps of a shard never go back, so its writes expire late until the clock has caught up: not in silence."""
    assert node.metric("bolide_clock_shard_ahead_seconds") == 0
    node.stop()
    set_ahead(node, JUMP_SECONDS)
    node.start()
    container(node).create_item({"id": "ahead", "pk": "p"})
    node.stop()
    set_ahead(node, 0)
    node.start()
    container(node).read_item("ahead", "p")
    [shard] = status(node)["containers"][0]["shards"]
    assert JUMP_SECONDS - 60 < shard["secondsAhead"] <= JUMP_SECONDS
    assert node.metric("bolide_clock_shard_ahead_seconds") > JUMP_SECONDS - 60
    assert "under a clock that was ahead" in node.log()


def test_start_a_day_ahead_goes_on_purging_when_the_time_is_confirmed(node):
    create_mortal(node, 5, ttl=3600)
    node.stop()
    set_ahead(node, 86_400)
    node.start()
    assert is_suspect(node)
    date = formatdate(time.time() + 86_400, usegmt=True)
    assert node.order("/clock/confirm", date=date).status == 200
    wait_until(lambda: documents_stored(node) == 0, "the purge goes on after the time is confirmed")
    assert not is_suspect(node)


def test_start_far_behind_the_stored_second_stands_still_and_destroys_nothing(node):
    before = container(node).create_item({"id": "before", "pk": "p", "ttl": 3600})
    node.stop()
    set_ahead(node, -700)
    node.start()
    assert is_suspect(node)
    assert "behind the time already issued" in node.log()
    date = formatdate(time.time() - 700, usegmt=True)
    path = "/dbs/d/colls/c/docs"
    headers = {"x-ms-documentdb-partitionkey": '["p"]'}
    answer = node.raw("POST", path, headers=headers, body={"id": "after", "pk": "p"}, date=date)
    assert answer.status == 201, answer
    assert answer.json["_ts"] >= before["_ts"]


def test_default_ttl_cannot_change_while_a_suspect_time_has_let_items_expire(node):
    create_mortal(node, 3, ttl=3600)
    node.stop()
    set_ahead(node, 86_400)
    node.start()
    date = formatdate(time.time() + 86_400, usegmt=True)
    definition = {"id": "c", "partitionKey": {"paths": ["/pk"], "kind": "Hash", "version": 2}, "defaultTtl": 7200}

    def change():
        return node.raw("PUT", "/dbs/d/colls/c", body=definition, date=date)

    refused = change()
    assert refused.status == 503, refused
    assert "bolide clock confirm" in refused.message
    assert "defaultTtl" in refused.message
    node.stop()
    set_ahead(node, 0)
    node.start()
    date = None
    assert change().status == 200
    assert len(list(container(node).read_all_items())) == 3, "no watermark was set by the wrong clock"


# signatures


def test_one_glitch_of_the_clock_locks_nobody_out(node):
    items = container(node)
    set_ahead(node, 3600)
    glitch = node.raw("GET", "/dbs", date=formatdate(time.time() + 3600, usegmt=True))
    assert glitch.status == 200, glitch
    set_ahead(node, 0)
    assert node.raw("GET", "/dbs").status == 200
    items.create_item({"id": "afterwards", "pk": "p"})


# the file


def test_no_damage_of_the_clock_file_keeps_the_node_from_starting(node):
    created = container(node).create_item({"id": "there", "pk": "p"})
    wait_until(lambda: stored_clock(node) >= created["_ts"], "the time is on disk")
    node.stop()
    path = node.data / "clock"
    whole = path.read_bytes()
    # Every bit is tried by a unit test; here some of each field, with the process.
    flips = [bytes(byte ^ (0x11 if at == place else 0) for at, byte in enumerate(whole)) for place in (0, 13, 18, 30)]
    for content in [b"", b"yesterday", whole[:-5], *flips, None]:
        if content is None:
            path.unlink()
        else:
            path.write_bytes(content)
        node.start()
        assert status(node)["clock"]["fileDamaged"], content
        assert is_suspect(node), content
        assert node.metric("bolide_clock_file_damaged") == 1
        assert "the stored time is lost" in node.log()
        assert status(node)["now"] >= created["_ts"]
        assert node.raw("GET", "/dbs/d/colls/c/docs/there", headers={"x-ms-documentdb-partitionkey": '["p"]'}).status == 200
        node.kill()
    path.write_bytes(whole)
    node.start()
    assert status(node)["clock"]["fileDamaged"] is None


def test_newest_write_is_the_floor_when_the_clock_file_is_lost(node):
    set_ahead(node, 50)
    before = container(node).create_item({"id": "before", "pk": "p"})
    node.kill()
    (node.data / "clock").write_text("")
    set_ahead(node, 0)
    node.start()
    assert status(node)["now"] >= before["_ts"], "time does not go back behind what was written"


def test_clock_file_of_an_earlier_version_is_read(node):
    node.stop()
    ahead = int(time.time()) + 30
    (node.data / "clock").write_text(str(ahead))
    node.start()
    assert status(node)["clock"]["fileDamaged"] is None
    assert status(node)["now"] >= ahead
