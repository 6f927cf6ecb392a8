"""Bad luck: kill -9 under load, power cuts, torn and damaged logs, failing and full disks."""

import random
import shutil
import sys
import time

import pytest
from azure.cosmos import PartitionKey

from crash_load import Writer, compare, read_feed
from node import Refused, wait_until

WRITERS = 4
LOAD_SECONDS = (0.05, 0.5)
POWER_CUT_ROUNDS = 20
PATH = "/dbs/crash/colls/crash/docs"
KEY = {"x-ms-documentdb-partitionkey": '["p"]'}
linux_only = pytest.mark.skipif(sys.platform != "linux", reason="preloading a library works this way on Linux only")


@pytest.fixture
def seeded(request):
    seed = request.config.getoption("--seed") or random.randrange(2**32)
    print(f"--seed={seed}")
    return random.Random(seed)


def create_crash_container(node):
    database = node.client().create_database("crash")
    database.create_container("crash", PartitionKey("/pk"), default_ttl=-1, offer_throughput=30_000)


def load_and_kill(node, writers, seconds):
    """Lets all writers write for a while and kills the node in the middle of it."""
    for writer in writers:
        writer.start()
    time.sleep(seconds)
    node.kill()
    for writer in writers:
        writer.join(30)
        assert not writer.is_alive()
    assert [complaint for writer in writers for complaint in writer.complaints] == []


def next_writers(node, writers, seeds):
    """New threads with the models of the old ones."""
    following = []
    for n in range(WRITERS):
        writer = Writer(node, PATH, f"writer{n}", seeds.random())
        if writers:
            writer.model, writer.doubt = writers[n].model, writers[n].doubt
            writer.ts_max, writer.lsn_max = writers[n].ts_max, writers[n].lsn_max
        following.append(writer)
    return following


def assert_all_there(node, writers):
    assert compare(writers, *read_feed(node, PATH)) == []
    acknowledged = {}
    for writer in writers:
        for range_id, lsn in writer.lsn_max.items():
            acknowledged[range_id] = max(acknowledged.get(range_id, 0), lsn)
    for range_id, lsn in acknowledged.items():
        answer = node.raw("GET", PATH, headers={"x-ms-documentdb-partitionkeyrangeid": range_id, "x-ms-max-item-count": "1"})
        assert int(answer.headers["lsn"]) >= lsn, f"the log of range {range_id} went back below {lsn}"


def change_feed_ids(node):
    """The ids in the change feed of each range, in one list."""
    ids = []
    for each in node.raw("GET", "/dbs/crash/colls/crash/pkranges").json["PartitionKeyRanges"]:
        etag = None
        while True:
            headers = {"a-im": "Incremental Feed", "x-ms-documentdb-partitionkeyrangeid": each["id"], "if-none-match": etag}
            answer = node.raw("GET", PATH, headers=headers)
            etag = answer.headers["etag"]
            if answer.status == 304:
                break
            assert answer.status == 200, answer
            ids += [item["id"] for item in answer.json["Documents"]]
    return ids


def test_kill_9_under_load_loses_nothing_and_halves_nothing(new_node, request, seeded):
    rounds = request.config.getoption("--crash-rounds")
    node = new_node()
    create_crash_container(node)
    writers = next_writers(node, None, seeded)
    written = 0
    for round_ in range(rounds):
        load_and_kill(node, writers, seeded.uniform(*LOAD_SECONDS))
        written += sum(writer.written for writer in writers)
        if seeded.random() < 0.1:  # killed again, while it recovers
            node.spawn()
            time.sleep(seeded.uniform(0, 0.1))
            node.kill()
        node.start()
        assert_all_there(node, writers)
        if round_ % 10 == 9:
            changed = change_feed_ids(node)
            assert len(changed) == len(set(changed))
            kept = {item_id for writer in writers for item_id, body in writer.model.items() if "ttl" not in body}
            assert kept <= set(changed)
        writers = next_writers(node, writers, seeded)
    assert "panicked" not in node.log()
    print(f"{rounds} rounds, {written} acknowledged writes")
    assert written > rounds * WRITERS


def test_catalog_changes_survive_kill_9(new_node, seeded):
    node = new_node()
    client = node.client()
    client.create_database("kept")
    for round_ in range(5):
        database = node.client().get_database_client("kept")
        made = database.create_container(f"c{round_}", PartitionKey("/pk"), default_ttl=round_ + 100, offer_throughput=500)
        made.create_item({"id": "1", "pk": "p", "round": round_})
        if round_:
            database.replace_container(f"c{round_ - 1}", PartitionKey("/pk"), default_ttl=round_ + 1000)
        if round_ >= 2:
            database.delete_container(f"c{round_ - 2}")
        node.kill()
        node.start()
        database = node.client().get_database_client("kept")
        ttls = {each["id"]: each["defaultTtl"] for each in database.list_containers()}
        expected = {f"c{round_}": round_ + 100}
        if round_:
            expected[f"c{round_ - 1}"] = round_ + 1000
        assert ttls == expected
        container = database.get_container_client(f"c{round_}")
        assert container.read_item("1", "p")["round"] == round_
        assert container.get_throughput().offer_throughput == 500


@linux_only
def test_power_cut_loses_nothing_acknowledged(faulty_node, seeded):
    """After the kill, every file is cut back to what had been synced, or to a random length beyond it."""
    node = faulty_node()
    known = {}  # what was on the disk when the node started
    create_crash_container(node)
    writers = next_writers(node, None, seeded)
    for _ in range(POWER_CUT_ROUNDS):
        load_and_kill(node, writers, seeded.uniform(*LOAD_SECONDS))
        durable = {}
        for line in node.syncs.read_text().splitlines():
            inode, size = map(int, line.split())
            durable[inode] = size
        node.syncs.unlink()
        for path in files_below(node.data):
            about = path.stat()
            kept = durable.get(about.st_ino, known.get(about.st_ino, 0))
            if kept < about.st_size:
                with open(path, "r+b") as file:
                    file.truncate(seeded.choice([kept, seeded.randint(kept, about.st_size)]))
        known = {path.stat().st_ino: path.stat().st_size for path in files_below(node.data)}
        node.start()
        assert_all_there(node, writers)
        writers = next_writers(node, writers, seeded)


def files_below(folder):
    """The files that must be durable: all but the engine's own diaries."""
    return [path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("LOG")]


# damage


def logs(folder):
    """Write-ahead logs below a folder."""
    return [path for path in folder.rglob("*.log") if path.is_file()]


class Shelf:
    """A node with two containers of one shard each, whose write-ahead logs the test tells apart by what they hold."""

    def __init__(self, node):
        self.node = node
        database = node.client().create_database("d")
        for name in ["hurt", "healthy"]:
            database.create_container(name, PartitionKey("/pk"))

    def create(self, name, item_id, **more):
        body = {"id": item_id, "pk": "p", "marker": f"marker of {name}", **more}
        return self.node.raw("POST", f"/dbs/d/colls/{name}/docs", headers=KEY, body=body)

    def read(self, name, item_id):
        return self.node.raw("GET", f"/dbs/d/colls/{name}/docs/{item_id}", headers=KEY)

    def log_of(self, name):
        """The newest write-ahead log that holds items of this container."""
        holding = [path for path in logs(self.node.data) if f"marker of {name}".encode() in path.read_bytes()]
        assert holding, f"no write-ahead log holds an item of '{name}': {logs(self.node.data)}"
        return max(holding, key=lambda path: path.stat().st_mtime_ns)


@pytest.fixture
def shelf(new_node):
    return Shelf(new_node())


def test_torn_last_record_is_dropped_and_reported(shelf):
    node = shelf.node
    for n in range(20):
        assert shelf.create("hurt", str(n), text="x" * 500).status == 201
        assert shelf.create("healthy", str(n)).status == 201
    path = shelf.log_of("hurt")
    node.kill()
    with open(path, "r+b") as file:
        file.truncate(path.stat().st_size - 7)
    node.start()
    assert [shelf.read("hurt", str(n)).status for n in range(20)] == [200] * 19 + [404]
    assert [shelf.read("healthy", str(n)).status for n in range(20)] == [200] * 20
    assert "torn" in node.log()
    assert shelf.create("hurt", "19").status == 201
    node.kill()
    node.start()
    assert shelf.read("hurt", "19").status == 200


def test_damage_in_the_middle_stops_that_shard_and_no_other(shelf):
    node = shelf.node
    for n in range(50):
        assert shelf.create("hurt", str(n), text="x" * 2000).status == 201
        assert shelf.create("healthy", str(n)).status == 201
    path = shelf.log_of("hurt")
    node.kill()
    with open(path, "r+b") as file:
        file.seek(path.stat().st_size // 4)
        file.write(b"\xde\xad\xbe\xef" * 16)
    node.start()
    for answer in [shelf.read("hurt", "1"), shelf.read("hurt", "49"), shelf.create("hurt", "new")]:
        assert answer.status == 503, answer
        assert "damaged" in answer.message or "corrupt" in answer.message.lower()
    assert [shelf.read("healthy", str(n)).status for n in range(50)] == [200] * 50
    assert shelf.create("healthy", "new").status == 201
    log = node.log().lower()
    assert "damaged" in log or "corrupt" in log
    assert node.stop() == 0


def test_damaged_catalog_ends_with_exit_code_4(shelf):
    node = shelf.node
    catalog = node.data / "catalog"
    node.stop()
    content = bytearray(catalog.read_bytes())
    content[len(content) // 2] ^= 0x10
    catalog.write_bytes(content)
    with pytest.raises(Refused) as refused:
        node.start()
    assert refused.value.code == 4
    assert str(catalog) in refused.value.output


def test_lost_catalog_ends_with_exit_code_4_and_touches_no_shard(shelf):
    node = shelf.node
    assert shelf.create("healthy", "1").status == 201
    node.stop()
    catalog = (node.data / "catalog").read_bytes()
    (node.data / "catalog").unlink()
    with pytest.raises(Refused) as refused:
        node.start()
    assert refused.value.code == 4
    (node.data / "catalog").write_bytes(catalog)
    node.start()
    assert shelf.read("healthy", "1").status == 200


# failing disks


@linux_only
def test_failed_fsync_is_never_acknowledged_and_stops_the_shard_until_it_is_reopened(faulty_node):
    node = faulty_node()
    shelf = Shelf(node)
    for name in ["hurt", "healthy"]:
        assert shelf.create(name, "before").status == 201
    node.trigger.write_text(f"sync {shelf.log_of('hurt').parent}/")
    failed = shelf.create("hurt", "during")
    assert failed.status == 503, failed
    assert shelf.create("healthy", "during").status == 201
    node.trigger.unlink()
    for n in range(5):
        assert shelf.create("hurt", f"after-{n}").status == 503, "a poisoned shard acknowledges nothing"
    assert shelf.read("healthy", "before").status == 200
    assert shelf.create("healthy", "after").status == 201
    node.kill()
    node.start()
    assert shelf.read("hurt", "before").status == 200
    assert [shelf.read("hurt", f"after-{n}").status for n in range(5)] == [404] * 5
    assert shelf.create("hurt", "reopened").status == 201
    assert shelf.read("healthy", "after").status == 200


@linux_only
def test_full_disk_is_507_for_writes_while_reads_and_expiry_go_on_and_it_heals(faulty_node):
    node = faulty_node()
    container = node.client().create_database("d").create_container("c", PartitionKey("/pk"), default_ttl=-1)
    container.create_item({"id": "there", "pk": "p"})
    mortal = container.create_item({"id": "mortal", "pk": "p", "ttl": 2})
    path = "/dbs/d/colls/c/docs"

    def create(item_id):
        return node.raw("POST", path, headers=KEY, body={"id": item_id, "pk": "p"})

    node.trigger.write_text("full")
    for n in range(3):
        answer = create(f"refused {n}")
        assert answer.status == 507, answer
        assert node.raw("GET", f"{path}/there", headers=KEY).status == 200
    while time.time() < mortal["_ts"] + 2:
        time.sleep(0.05)
    assert node.raw("GET", f"{path}/mortal", headers=KEY).status == 404
    assert [each["id"] for each in node.raw("GET", path).json["Documents"]] == ["there"]
    node.trigger.unlink()
    wait_until(lambda: create("healed").status in (201, 409), "writes work again when there is room")
    ids = [each["id"] for each in node.raw("GET", path).json["Documents"]]
    assert sorted(ids) == ["healed", "there"], "what was refused is not there"
    node.kill()
    node.start()
    assert sorted(each["id"] for each in node.raw("GET", path).json["Documents"]) == ["healed", "there"]


@linux_only
def test_full_disk_while_the_catalog_is_written_is_507_and_the_old_catalog_stays_in_force(faulty_node):
    node = faulty_node()
    database = node.client().create_database("d")
    container = database.create_container("kept", PartitionKey("/pk"), default_ttl=-1)
    container.create_item({"id": "there", "pk": "p", "ttl": 3600})
    shards = sorted((node.data / "shards").iterdir())
    definition = {"id": "kept", "partitionKey": {"paths": ["/pk"], "kind": "Hash", "version": 2}, "defaultTtl": 1}
    changes = [
        ("POST", "/dbs", {"id": "refused"}),
        ("POST", "/dbs/d/colls", {**definition, "id": "refused"}),
        ("PUT", "/dbs/d/colls/kept", definition),
        ("DELETE", "/dbs/d/colls/kept", None),
        ("DELETE", "/dbs/d", None),
    ]

    def assert_as_before():
        assert [each["id"] for each in node.raw("GET", "/dbs").json["Databases"]] == ["d"]
        containers = node.raw("GET", "/dbs/d/colls").json["DocumentCollections"]
        assert [(each["id"], each["defaultTtl"]) for each in containers] == [("kept", -1)]
        assert sorted((node.data / "shards").iterdir()) == shards, "the shards of a container that was not made are gone"
        assert node.raw("GET", "/dbs/d/colls/kept/docs/there", headers=KEY).status == 200

    node.trigger.write_text("full catalog")
    for method, path, body in changes:
        answer = node.raw(method, path, body=body)
        assert answer.status == 507, (method, path, answer)
        assert "catalog" in answer.message
    assert_as_before()
    assert container.create_item({"id": "written", "pk": "p"})["id"] == "written", "items have nothing to do with it"
    node.kill()
    node.start()
    assert_as_before()
    node.trigger.unlink()
    for method, path, body in changes[:3]:
        assert node.raw(method, path, body=body).status in (200, 201), (method, path)
    assert node.raw("GET", "/dbs/d/colls/kept").json["defaultTtl"] == 1


@linux_only
@pytest.mark.parametrize("then", ["the node dies", "the disk heals"])
def test_default_that_one_shard_could_not_write_down_comes_into_force_when_it_can(faulty_node, then):
    node = faulty_node()
    database = node.client().create_database("d")
    container = database.create_container("c", PartitionKey("/pk"), default_ttl=-1, offer_throughput=20_000)
    keys = [f"key {n}" for n in range(8)]
    for key in keys:
        container.create_item({"id": "mortal", "pk": key})
    behind, other = sorted((node.data / "shards").iterdir())

    # The catalog and the other shard have the new default.
    node.trigger.write_text(f"full {behind}/")
    definition = {"id": "c", "partitionKey": {"paths": ["/pk"], "kind": "Hash", "version": 2}, "defaultTtl": 1}
    for attempt in range(2):
        answer = node.raw("PUT", "/dbs/d/colls/c", body=definition)
        assert answer.status == 507, (attempt, answer)
    if then == "the node dies":
        node.kill()
        node.trigger.unlink()
        node.start()
        assert "caught up with the catalog" in node.log()
    else:
        node.trigger.unlink()
    assert node.raw("GET", "/dbs/d/colls/c").json["defaultTtl"] == 1

    def is_gone(key):
        header = {"x-ms-documentdb-partitionkey": f'["{key}"]'}
        return node.raw("GET", "/dbs/d/colls/c/docs/mortal", headers=header).status == 404

    for key in keys:
        wait_until(lambda: is_gone(key), f"the item of {key} expires by the new default")


def test_data_folder_that_cannot_be_made_is_said(new_node, tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(Refused) as refused:
        new_node(data=tmp_path / "file" / "data")
    assert refused.value.code != 0
    assert str(tmp_path / "file") in refused.value.output


def test_data_folder_can_be_moved(new_node, tmp_path):
    node = new_node()
    node.client().create_database("d").create_container("c", PartitionKey("/pk")).create_item({"id": "1", "pk": "p"})
    node.stop()
    shutil.move(node.data, tmp_path / "moved")
    moved = new_node(data=tmp_path / "moved")
    assert moved.raw("GET", "/dbs/d/colls/c/docs/1", headers=KEY).status == 200
