"""Disks that are full and descriptors that run out: refused while it lasts, purged meanwhile, healed without a restart."""

import http.client
import os
import resource
import subprocess
import sys

import pytest
from azure.cosmos import PartitionKey

from node import wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits and mounts are set this way on Linux only")
PATH = "/dbs/d/colls/c/docs"
KEY = {"x-ms-documentdb-partitionkey": '["p"]'}
# Small memtables and WALs, so that a few hundred kilobytes make the engine open files.
SMALL_BUFFERS = ["--set", "storage.write_buffer_mb=1", "--set", "storage.journal_mb_max=1"]


def create_container(node, **options):
    return node.client().create_database("d").create_container("c", PartitionKey("/pk"), **options)


def create(node, item_id, connection=None, **more):
    return node.raw("POST", PATH, headers=KEY, body={"id": item_id, "pk": "p", **more}, connection=connection)


def read(node, item_id, connection=None):
    return node.raw("GET", f"{PATH}/{item_id}", headers=KEY, connection=connection)


def documents_stored(node):
    containers = node.health("/status").json["containers"]
    return sum(shard.get("documents", 0) for each in containers for shard in each["shards"])


# descriptors


def set_descriptors_max(node, soft):
    _, hard = resource.prlimit(node.process.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(node.process.pid, resource.RLIMIT_NOFILE, (soft, hard))


def test_soft_limit_of_descriptors_is_raised_to_the_hard_one(new_node):
    node = new_node()
    soft, hard = resource.prlimit(node.process.pid, resource.RLIMIT_NOFILE)
    assert soft == hard
    assert "file descriptors" in node.log()


def test_writes_go_on_without_a_restart_after_descriptors_ran_out(new_node):
    node = new_node(arguments=SMALL_BUFFERS)
    create_container(node)
    before, _ = resource.prlimit(node.process.pid, resource.RLIMIT_NOFILE)
    connection = node.connection()
    acknowledged = [f"{n}" for n in range(3)]
    assert [create(node, each, connection).status for each in acknowledged] == [201] * 3
    # Every number below this is taken already, or will be by what is tried first.
    set_descriptors_max(node, max(int(each) for each in os.listdir(f"/proc/{node.process.pid}/fd")) + 1)
    refused = None
    for n in range(2_000):
        answer = create(node, f"during-{n}", connection, text="x" * 10_000)
        if answer.status != 201:
            refused = answer
            break
        acknowledged.append(f"during-{n}")
    assert refused is not None, "2,000 items of 10 KB open no file"
    assert refused.status == 503, refused
    assert "descriptor" in refused.message
    assert create(node, "while", connection).status == 503
    set_descriptors_max(node, before)

    def is_taken():
        # The connection of before may be idle by now.
        return create(node, "afterwards").status in (201, 409)

    wait_until(is_taken, "writes are taken again when there are descriptors")
    assert "until the node is restarted" not in node.log(), "nothing was poisoned"
    assert [each for each in acknowledged if read(node, each).status != 200] == []
    assert node.stop() == 0
    node.start()
    assert [each for each in acknowledged if read(node, each).status != 200] == []


# full disks


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 64 MB in memory; needs root."""
    if os.geteuid() != 0:
        pytest.skip("mounting a file system needs root")
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", tmp_path], capture_output=True, text=True)
    if mounted.returncode != 0:
        pytest.skip(f"a file system cannot be mounted here: {mounted.stderr.strip()}")
    yield tmp_path
    subprocess.run(["umount", "--lazy", tmp_path], check=True)


def fill(disk):
    """Takes all that is free on a disk; the file that takes it."""
    filler = disk / "filler"
    with open(filler, "wb", buffering=0) as file:
        for size in (1 << 20, 4096, 1):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                pass
    return filler


def exhaust(node, disk):
    """Fills the disk and writes until that is noticed."""
    filler = fill(disk)
    for n in range(5_000):
        answer = create(node, f"exhausting-{n}", text="x" * 50_000)
        if answer.status == 507:
            return filler
        assert answer.status == 201, answer
    raise AssertionError("5,000 items of 50 KB fit on a full disk")


def test_expired_items_are_purged_from_a_full_disk(new_node, small_disk):
    node = new_node(data=small_disk / "data", arguments=SMALL_BUFFERS)
    create_container(node, default_ttl=-1)
    assert create(node, "there").status == 201
    mortal = [f"mortal-{n}" for n in range(100)]
    assert [create(node, each, ttl=5, text="x" * 20_000).status for each in mortal] == [201] * 100
    filler = exhaust(node, small_disk)
    stored = documents_stored(node)
    wait_until(lambda: documents_stored(node) <= stored - 100, "what has expired is purged although the disk is full")
    # A compaction that met the full disk has its shard reopened for a moment.
    wait_until(lambda: create(node, "refused").status == 507, "the space that is set aside is not for users")
    wait_until(lambda: read(node, "there").status == 200, "reads go on")
    assert "the reserve is released" in node.log()
    filler.unlink()
    wait_until(lambda: create(node, "afterwards").status in (201, 409), "writes are taken when there is room")
    assert "the reserve is restored" in node.log()
    assert node.stop() == 0


@pytest.mark.parametrize("reserve_mb", [0, 32])
def test_node_that_is_started_on_a_full_disk_heals(new_node, small_disk, reserve_mb):
    arguments = [*SMALL_BUFFERS, "--set", f"storage.reserve_mb={reserve_mb}"]
    node = new_node(data=small_disk / "data", arguments=arguments)
    create_container(node, default_ttl=-1)
    assert create(node, "there").status == 201
    # Filled by somebody else, who takes what the node gives back as well.
    filler = exhaust(node, small_disk)
    node.kill()
    more = small_disk / "more"
    fill(small_disk).rename(more)
    fill(small_disk)
    node.spawn()
    wait_until(lambda: is_alive(node), "the node starts on a full disk")
    assert create(node, "refused").status in (503, 507)
    for each in (filler, more):
        each.unlink(missing_ok=True)
    wait_until(lambda: read(node, "there").status == 200, "the shard that could not be opened answers")
    wait_until(lambda: create(node, "afterwards").status in (201, 409), "writes are taken when there is room")
    assert node.stop() == 0


def is_alive(node):
    assert node.process.poll() is None, node.log()[-2000:]
    try:
        return node.health("/alive").status == 200
    except (OSError, http.client.HTTPException):
        return False


class Spread:
    """Items with a partition key each, so that their shard can be split."""

    def __init__(self, node):
        self.node = node
        self.ids = []

    def create(self, item_id):
        header = {"x-ms-documentdb-partitionkey": f'["{item_id}"]'}
        body = {"id": item_id, "pk": item_id, "text": "x" * 5_000}
        answer = self.node.raw("POST", PATH, headers=header, body=body)
        if answer.status == 201:
            self.ids.append(item_id)
        return answer.status

    def missing(self):
        def status(item_id):
            header = {"x-ms-documentdb-partitionkey": f'["{item_id}"]'}
            return self.node.raw("GET", f"{PATH}/{item_id}", headers=header).status

        return [each for each in self.ids if status(each) != 200]

    def ranges(self):
        return [each["id"] for each in self.node.raw("GET", "/dbs/d/colls/c/pkranges").json["PartitionKeyRanges"]]

    def split(self):
        return self.node.order("/split?container=dbs/d/colls/c")


def test_full_disk_while_a_shard_is_split_or_compacted_loses_nothing(faulty_node):
    node = faulty_node(arguments=SMALL_BUFFERS)
    create_container(node, default_ttl=-1)
    spread = Spread(node)
    assert [spread.create(str(n)) for n in range(200)] == [201] * 200
    before = spread.ranges()
    [folder] = (node.data / "shards").iterdir()
    # Only the parts meet a full disk: the shard itself is healthy.
    node.trigger.write_text(f"full {str(folder).removesuffix('0')}1")
    spread.split()
    wait_until(lambda: "No space left" in node.log(), "the split meets the full disk")
    assert spread.missing() == []
    assert spread.ranges() == before, "no half of a split is in force"
    # New files meet a full disk, while the journal is written: flushes and compactions fail.
    node.trigger.write_text("full .sst")
    statuses = {spread.create(f"during-{n}") for n in range(300)}
    assert statuses <= {201, 503, 507}, statuses
    node.trigger.unlink()
    wait_until(lambda: spread.create("afterwards") in (201, 409), "writes are taken when there is room")
    assert spread.missing() == []

    def is_split():
        spread.split()
        return spread.ranges() != before

    wait_until(is_split, "the split succeeds when there is room", pause=0.5)
    node.kill()
    node.start()
    assert spread.missing() == []
