"""A node with many containers is light: little disk, few descriptors, a quick restart, expiry on time in all of them."""

import os
import re
import resource
import time
from pathlib import Path

import pytest
from node import wait_until

COUNT = 200
# Enough for some to be still unopened when the first request comes.
FEWER = 60
DISK_BYTES_MAX = 1024 * 1024
DESCRIPTORS_MAX = 7
# What a node has open without any container.
DESCRIPTORS_BASE = 100
TTL_SECONDS = 3600
# Wake-ups of all threads of a node at rest, a second. If 200 shards looked at the clock each on its own there would be 400 more.
WAKE_UPS_MAX = 200
KEY = {"x-ms-documentdb-partitionkey": '["p"]'}


def container(name):
    return {"id": name, "partitionKey": {"paths": ["/pk"], "kind": "Hash", "version": 2}, "defaultTtl": TTL_SECONDS}


def fill(node, count):
    """Containers with one item each."""
    connection = node.connection()
    assert node.raw("POST", "/dbs", body={"id": "d"}, connection=connection).status == 201
    for number in range(count):
        made = node.raw("POST", "/dbs/d/colls", body=container(f"c{number}"), connection=connection)
        assert made.status == 201, made
        put(node, number, {"id": "1", "pk": "p"}, connection)
    connection.close()


def put(node, number, item, connection):
    headers = {**KEY, "x-ms-documentdb-is-upsert": "true"}
    answer = node.raw("POST", f"/dbs/d/colls/c{number}/docs", body=item, headers=headers, connection=connection)
    assert answer.status in (200, 201), answer
    return answer.json


def read(node, number, connection=None):
    return node.raw("GET", f"/dbs/d/colls/c{number}/docs/1", headers=KEY, connection=connection)


def disk_bytes(folder):
    """What the files take on the disk, preallocated space included."""
    paths = [path for path in folder.rglob("*")] + [folder]
    return sum(path.lstat().st_blocks * 512 for path in paths)


def largest(node):
    return max(disk_bytes(folder) for folder in (node.data / "shards").iterdir())


def descriptors(node):
    return len(os.listdir(f"/proc/{node.process.pid}/fd"))


def check_light(node, count):
    assert largest(node) <= DISK_BYTES_MAX
    assert descriptors(node) <= DESCRIPTORS_BASE + DESCRIPTORS_MAX * count


def first_read_while_opening(node, number):
    """Spawns the node and reads one item as soon as that is answered; how many shards were still to be opened then."""
    node.spawn()

    def answered():
        try:
            return read(node, number)
        except OSError:
            return None

    first = wait_until(answered, "an answer after the restart", pause=0.001)
    assert first.status == 200, first
    ready = wait_until(lambda: node.health("/ready"), "the health port answers")
    if ready.json["state"] == "starting":
        return None
    return ready.json["opening"]


def left_to_open(node):
    try:
        return node.health("/ready").json.get("opening")
    except OSError:
        return None


def check(node, count):
    fill(node, count)
    check_light(node, count)
    assert node.stop() == 0
    assert largest(node) <= DISK_BYTES_MAX
    # The last one in line is opened first when it is asked for.
    opening = first_read_while_opening(node, count - 1)
    assert opening is None or opening > 0, "all shards were opened before the first read was answered"
    status = node.health("/status")
    if status.status == 200:
        shards = [shard for one in status.json["containers"] for shard in one["shards"]]
        assert not any(shard["error"] for shard in shards)
    node.wait_ready()
    assert node.health("/status").json["opening"] == 0
    check_light(node, count)


def documents(node):
    containers = node.health("/status").json["containers"]
    return sum(shard["documents"] for one in containers for shard in one["shards"])


def check_expiry(node, count):
    """All items expire at their second, whether their shards were open at the start or not."""
    connection = node.connection()
    for number in range(count):
        put(node, number, {"id": "1", "pk": "p", "ttl": 1}, connection)
    last = node.health("/status").json["now"]
    wait_until(lambda: node.health("/status").json["now"] > last + 1, "the last item falls due")
    for number in range(count):
        assert read(node, number, connection).status == 404, number
    connection.close()
    wait_until(lambda: documents(node) == 0, "all shards are purged")


def wake_ups(node):
    """How often the threads of the node have waited for something so far."""
    statuses = Path(f"/proc/{node.process.pid}/task").glob("*/status")
    return sum(int(re.search(r"^voluntary_ctxt_switches:\s+(\d+)", one.read_text(), re.M)[1]) for one in statuses)


def check_rest(node):
    """Shards that have nothing to do look at the clock together."""

    def rests():
        before = wake_ups(node)
        time.sleep(2)
        return (wake_ups(node) - before) / 2 <= WAKE_UPS_MAX

    # Flushes and the like may still be under way.
    wait_until(rests, "the node comes to rest")


def read_until_gone(node, count, ttl, written):
    """Reads all items in turn until none is left: each must be there before its second, and gone from then on."""
    connection = node.connection()
    alive, gone = set(), set()
    while len(gone) < count:
        for number in range(count):
            due = written[number] + ttl
            begun = time.time()
            status = read(node, number, connection).status
            if time.time() < due:
                assert status == 200, (number, due - begun)
                alive.add(number)
            elif begun >= due:
                assert status == 404, (number, begun - due)
                gone.add(number)
    assert len(alive) == count
    connection.close()


def test_many_containers_are_light_and_a_restart_answers_before_all_are_open(new_node):
    node = new_node()
    check(node, COUNT)
    check_expiry(node, COUNT)
    check_rest(node)
    assert node.stop() == 0


def test_a_stop_while_shards_are_being_opened_is_clean_and_loses_nothing(new_node):
    node = new_node()
    fill(node, FEWER)
    assert node.stop() == 0
    first_read_while_opening(node, 0)
    assert node.stop() == 0
    node.start()
    connection = node.connection()
    for number in range(FEWER):
        assert read(node, number, connection).status == 200, number
    connection.close()
    assert "panicked" not in node.log() and "cannot be opened" not in node.log()


def test_items_that_fell_due_while_the_node_was_down_are_gone_for_the_first_reader(new_node):
    node = new_node()
    fill(node, FEWER)
    connection = node.connection()
    put(node, FEWER - 1, {"id": "1", "pk": "p", "ttl": 1}, connection)
    connection.close()
    second = node.health("/status").json["now"]
    wait_until(lambda: node.health("/status").json["now"] > second + 1, "the item falls due")
    node.kill()
    node.spawn()

    def answered():
        try:
            return read(node, FEWER - 1)
        except OSError:
            return None

    assert wait_until(answered, "an answer after the restart", pause=0.001).status == 404
    node.wait_ready()


def test_a_damaged_shard_is_listed_and_the_others_are_opened(new_node):
    node = new_node()
    fill(node, 10)
    assert node.stop() == 0
    folders = sorted((node.data / "shards").iterdir())
    (folders[3] / "CURRENT").write_text("nonsense")
    node.start()
    ready = node.health("/ready")
    assert ready.status == 200 and len(ready.json["broken"]) == 1, ready
    statuses = sorted(read(node, number).status for number in range(10))
    assert statuses == [200] * 9 + [503]


def test_containers_that_are_not_open_yet_are_deleted_and_changed(new_node):
    node = new_node()
    fill(node, FEWER)
    assert node.stop() == 0
    first_read_while_opening(node, 0)
    assert node.raw("DELETE", f"/dbs/d/colls/c{FEWER - 1}").status == 204
    changed = node.raw("PUT", f"/dbs/d/colls/c{FEWER - 2}", body={**container(f"c{FEWER - 2}"), "defaultTtl": 1})
    assert changed.status == 200, changed
    wait_until(lambda: read(node, FEWER - 2).status == 404, "the item is gone by the new default")
    node.wait_ready()
    assert read(node, FEWER - 1).status == 404
    assert node.restart() == 0
    assert len(list((node.data / "shards").iterdir())) == FEWER - 1


def test_a_point_read_waits_for_its_own_shard_only(new_node):
    node = new_node(environment={"BOLIDE_LIMITS__SHARDS_PER_CONTAINER": "4"})
    assert node.raw("POST", "/dbs", body={"id": "d"}).status == 201
    assert node.raw("POST", "/dbs/d/colls", body=container("c")).status == 201

    def key(number):
        return {"x-ms-documentdb-partitionkey": f'["{number}"]'}

    ranges = {}
    for number in range(40):
        made = node.raw("POST", "/dbs/d/colls/c/docs", body={"id": "1", "pk": str(number)}, headers=key(number))
        ranges[number] = made.headers["x-ms-session-token"].split(":")[0]
    assert len(set(ranges.values())) == 4
    node.kill()
    # Whoever opens a pipe waits until somebody else does: this shard is being opened for as long as the node runs.
    (held,) = (node.data / "shards").glob("*-0")
    (held / "CURRENT").unlink()
    os.mkfifo(held / "CURRENT")
    node.spawn()
    wait_until(lambda: left_to_open(node) == 1, "all shards but one are open")
    others = [number for number, one in ranges.items() if one != "0"]
    begun = time.monotonic()
    for number in others:
        assert node.raw("GET", "/dbs/d/colls/c/docs/1", headers=key(number)).status == 200, number
    replaced = node.raw("PUT", "/dbs/d/colls/c/docs/1", body={"id": "1", "pk": str(others[0])}, headers=key(others[0]))
    assert replaced.status == 200, replaced
    # A request that waits for the shard is refused after 10 s.
    assert time.monotonic() - begun < 5


@pytest.mark.thorough
def test_items_of_many_containers_are_gone_at_their_second_by_the_default(new_node):
    node = new_node()
    count, ttl = 300, 40
    connection = node.connection()
    assert node.raw("POST", "/dbs", body={"id": "d"}, connection=connection).status == 201
    for number in range(count):
        definition = {**container(f"c{number}"), "defaultTtl": ttl}
        assert node.raw("POST", "/dbs/d/colls", body=definition, connection=connection).status == 201
    written = [put(node, number, {"id": "1", "pk": "p"}, connection)["_ts"] for number in range(count)]
    connection.close()
    read_until_gone(node, count, ttl, written)
    wait_until(lambda: documents(node) == 0, "all shards are purged")
    check_rest(node)


@pytest.mark.thorough
def test_a_thousand_containers_are_light_and_a_restart_answers_before_all_are_open(new_node):
    if resource.getrlimit(resource.RLIMIT_NOFILE)[1] < 16_384:
        pytest.skip("needs a hard limit of 16,384 file descriptors")
    node = new_node()
    check(node, 1_000)
    check_expiry(node, 1_000)
    assert node.stop() == 0
