"""Disks that cannot be read and disks that are slow: an error or the right answer, nothing in between, and no shard but that one."""

import itertools
import json
import random
import sys
import threading

import pytest
from azure.cosmos import PartitionKey

from cluster_test import Cluster, at, ids, make
from node import Refused, wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="preloading a library works this way on Linux only")
ITEMS = 60
KEY = {"x-ms-documentdb-partitionkey": '["p"]'}
QUERY = {**KEY, "x-ms-documentdb-isquery": "True", "content-type": "application/query+json"}
EVERYTHING = {"x-ms-max-item-count": "1000"}
CONTAINERS = ("hurt", "healthy")
EIO = "Input/output error"
# Small write buffers and WALs, so that a few hundred kilobytes make the engine flush and compact.
SMALL_BUFFERS = ["--set", "storage.write_buffer_mb=1", "--set", "storage.journal_mb_max=1"]


class Shelf:
    """A node with two containers of one shard each, filled and restarted: what they hold is in SST files and in no cache."""

    def __init__(self, node, items=ITEMS):
        self.node = node
        database = node.client().create_database("d")
        self.bodies = {}
        for name in CONTAINERS:
            database.create_container(name, PartitionKey("/pk"), default_ttl=-1)
            for number in range(items):
                # Text that does not compress, so that the items are in many blocks.
                item = {"id": str(number), "pk": "p", "number": number, "text": random.randbytes(500).hex()}
                self.bodies[name, item["id"]] = item
                assert self.send(name, "POST", body=item).status == 201
        assert node.restart() == 0

    def send(self, name, method, item_id=None, headers=None, **options):
        path = f"/dbs/d/colls/{name}/docs" + (f"/{item_id}" if item_id else "")
        return self.node.raw(method, path, headers={**KEY, **(headers or {})}, **options)

    def query(self, name, text):
        return self.send(name, "POST", headers={**QUERY, **EVERYTHING}, body=json.dumps({"query": text, "parameters": []}))

    def folder(self, name):
        rid = self.node.raw("GET", f"/dbs/d/colls/{name}").json["_rid"].rstrip("=")
        return self.node.data / "shards" / f"{rid}-0"

    def status(self, name):
        containers = self.node.health("/status").json["containers"]
        [shard] = next(one["shards"] for one in containers if one["container"] == f"dbs/d/colls/{name}")
        return shard

    def ids(self, name):
        return sorted((item_id for container, item_id in self.bodies if container == name), key=int)

    def answers(self, name):
        """Answers of every kind of reading, each with what it should hold and what it holds."""
        numbers = [int(item_id) for item_id in self.ids(name)]
        for item_id in self.ids(name):
            yield item_id, self.send(name, "GET", item_id), lambda body: [body["number"]], [int(item_id)]
        changes = {"a-im": "Incremental Feed", **EVERYTHING}

        def feed(body):
            return sorted(item["number"] for item in body["Documents"])

        yield "feed", self.send(name, "GET", headers=EVERYTHING), feed, numbers
        yield "change feed", self.send(name, "GET", headers=changes), feed, numbers
        count = len(numbers)
        for text, expected in [
            ("SELECT * FROM c", None),
            ("SELECT VALUE COUNT(1) FROM c", [count]),
            ("SELECT VALUE SUM(c.number) FROM c", [sum(numbers)]),
            ("SELECT VALUE c.number FROM c WHERE c.number >= 10 AND c.number < 20", list(range(10, 20))),
            ("SELECT VALUE c.number FROM c ORDER BY c.number DESC", numbers[::-1]),
            ("SELECT DISTINCT VALUE c.pk FROM c", ["p"]),
        ]:
            found = feed if expected is None else lambda body: body["Documents"]
            yield text, self.query(name, text), found, numbers if expected is None else expected

    def failures(self, name):
        """What was answered with 503; all else must be right."""
        failed = []
        for what, answer, found, expected in self.answers(name):
            if answer.status == 503:
                assert EIO in answer.message, (what, answer)
                failed.append(what)
            else:
                assert answer.status == 200, (what, answer)
                assert found(answer.json) == expected, (what, answer)
        return failed


@pytest.fixture
def shelf(faulty_node):
    return Shelf(faulty_node())


# reads that fail


def test_a_read_that_the_disk_fails_is_an_error_and_never_a_wrong_answer(shelf):
    node, folder = shelf.node, shelf.folder("hurt")
    node.trigger.write_text(f"read {folder}/")
    failed = shelf.failures("hurt")
    assert "change feed" in failed and "feed" in failed and "SELECT * FROM c" in failed, failed
    assert len(failed) > ITEMS // 2, "blocks are read from the disk"
    answer = shelf.send("hurt", "GET", headers=EVERYTHING)
    assert str(folder) in answer.message, "it is said which file cannot be read"
    assert shelf.failures("healthy") == []
    assert shelf.send("healthy", "POST", body={"id": "1000", "pk": "p", "number": 1000}).status == 201
    assert "the disk has failed a read" in node.log()
    assert node.metric("bolide_storage_disk_failures_total") >= len(failed)
    assert shelf.status("hurt")["diskFailures"]["count"] >= len(failed)
    assert EIO in shelf.status("hurt")["diskFailures"]["first"]
    assert shelf.status("healthy")["diskFailures"] is None
    assert node.metric("bolide_storage_damage_total") == 0, "no file is damaged"
    node.trigger.unlink()
    assert shelf.failures("hurt") == [], "it answers again without a restart"
    assert shelf.send("hurt", "POST", body={"id": "1000", "pk": "p", "number": 1000}).status == 201
    assert "panicked" not in node.log()


def test_a_write_that_cannot_read_what_it_changes_changes_nothing(shelf):
    node = shelf.node
    node.trigger.write_text(f"read {shelf.folder('hurt')}/")
    other = {"id": "7", "pk": "p", "number": -1}
    patch = {"operations": [{"op": "set", "path": "/number", "value": -1}]}
    guarded = {"condition": "FROM c WHERE c.number = 7", **patch}
    batch = [{"operationType": "Upsert", "resourceBody": other}, {"operationType": "Delete", "id": "8"}]
    batching = {
        "x-ms-cosmos-is-batch-request": "True", "x-ms-cosmos-batch-atomic": "True",
        "x-ms-cosmos-batch-ordered": "True",
    }  # fmt: skip
    refused = [
        shelf.send("hurt", "POST", body=other),
        shelf.send("hurt", "POST", body=other, headers={"x-ms-documentdb-is-upsert": "True"}),
        shelf.send("hurt", "PUT", "7", body=other),
        shelf.send("hurt", "PATCH", "7", body=patch),
        shelf.send("hurt", "PATCH", "7", body=guarded),
        shelf.send("hurt", "DELETE", "7"),
    ]
    for answer in refused:
        assert answer.status == 503 and EIO in answer.message, answer
    batched = shelf.send("hurt", "POST", headers=batching, body=json.dumps(batch))
    assert batched.status == 503 or {each["statusCode"] for each in batched.json} <= {424, 503}, batched
    node.trigger.unlink()
    assert shelf.failures("hurt") == [], "nothing was changed"
    assert shelf.send("hurt", "PATCH", "7", body=guarded).status == 200
    assert shelf.send("hurt", "GET", "7").json["number"] == -1


def test_what_expires_while_it_cannot_be_read_is_gone_and_is_purged_when_it_can(faulty_node):
    node = faulty_node()
    shelf = Shelf(node)
    mortal = {"id": "mortal", "pk": "p", "number": 0, "text": "x" * 3_000, "ttl": 6}
    created = shelf.send("hurt", "POST", body=mortal)
    assert created.status == 201
    node.restart()
    node.trigger.write_text(f"read {shelf.folder('hurt')}/")
    due = created.json["_ts"] + 6
    wait_until(lambda: node.health("/status").json["now"] > due, "it falls due")
    wait_until(lambda: "purging failed" in node.log(), "the purger meets the failing disk")
    assert shelf.send("hurt", "GET", "mortal").status in (404, 503)
    assert shelf.status("hurt")["documents"] == ITEMS + 1
    node.trigger.unlink()
    wait_until(lambda: shelf.status("hurt")["documents"] == ITEMS, "it is purged")
    assert shelf.failures("hurt") == []


@pytest.mark.thorough
def test_a_compaction_that_cannot_read_stops_the_writes_of_its_shard_until_a_restart(faulty_node):
    node = faulty_node(arguments=SMALL_BUFFERS)
    shelf = Shelf(node)
    folder = shelf.folder("hurt")
    [table] = folder.glob("*.sst")
    node.trigger.write_text(f"read {table}")
    acknowledged, refused = [], None
    for number in range(3_000):
        answer = shelf.send("hurt", "POST", body={"id": f"more-{number}", "pk": "p", "text": "x" * 20_000})
        if answer.status == 201:
            acknowledged.append(f"more-{number}")
            continue
        # The look whether an id is there may meet the file first, which stops nothing.
        assert answer.status == 503 and EIO in answer.message, answer
        probe = shelf.send("hurt", "POST", body={"id": f"probe-{number}", "pk": "p"})
        if probe.status == 503 and "until the node is restarted" in probe.message:
            refused = answer
            break
    assert refused is not None, "60 MB in small buffers are not compacted"
    again = shelf.send("hurt", "POST", body={"id": "again", "pk": "p"})
    assert again.status == 503 and "until the node is restarted" in again.message, again
    assert shelf.status("hurt")["diskFailures"]["count"] > 0
    assert shelf.failures("healthy") == []
    node.trigger.unlink()
    assert [each for each in [*shelf.ids("hurt"), *acknowledged] if shelf.send("hurt", "GET", each).status != 200] == []
    assert node.restart() == 0
    assert [each for each in acknowledged if shelf.send("hurt", "GET", each).status != 200] == []
    assert shelf.send("hurt", "POST", body={"id": "again", "pk": "p"}).status == 201


# starts


def at_start():
    """Which file of a shard cannot be read after which end; the commonest in every run."""
    for end, file in itertools.product(["stop", "kill"], ["CURRENT", "MANIFEST-", ".log", ".sst", "shard.id", "seal"]):
        is_common = (end, file) in [("kill", ".log"), ("stop", ".sst")]
        yield pytest.param(end, file, marks=[] if is_common else [pytest.mark.thorough])


@pytest.mark.parametrize(("end", "file"), at_start())
def test_a_shard_whose_files_cannot_be_read_at_start_says_which_and_others_serve(shelf, end, file):
    node, folder = shelf.node, shelf.folder("hurt")
    assert shelf.send("hurt", "POST", body={"id": "60", "pk": "p", "number": 60}).status == 201
    shelf.bodies["hurt", "60"] = None
    getattr(node, end)()
    concerned = sorted(path for path in folder.iterdir() if file in path.name)
    if not concerned:
        pytest.skip(f"there is no {file} after a {end}")
    before = {path: path.read_bytes() for path in folder.iterdir() if path.suffix in (".sst", ".log")}
    node.trigger.write_text(f"read {concerned[-1]}")
    node.start()
    answer = shelf.send("hurt", "GET", "1")
    assert answer.status == 503, answer
    assert EIO in answer.message and str(folder) in answer.message, answer
    assert "restart the node when the disk can be read" in answer.message
    assert EIO in shelf.status("hurt")["error"]
    assert "shard cannot be opened" in node.log()
    assert shelf.failures("healthy") == []
    ready = node.health("/ready").body.decode()
    assert "hurt" in ready and EIO in ready
    assert {path: path.read_bytes() for path in before} == before, "nothing is touched"
    node.trigger.unlink()
    assert node.restart() == 0
    assert shelf.failures("hurt") == []


@pytest.mark.parametrize("file", ["catalog", "identity"])
def test_a_start_that_cannot_read_the_catalog_or_the_identity_ends_and_says_so(shelf, file):
    node = shelf.node
    node.stop()
    node.trigger.write_text(f"read {node.data / file}")
    with pytest.raises(Refused) as refused:
        node.start()
    assert refused.value.code == 1, "the folder is not damaged"
    assert str(node.data / file) in refused.value.output and EIO in refused.value.output
    node.trigger.unlink()
    node.start()
    assert shelf.failures("hurt") + shelf.failures("healthy") == []


def test_a_catalog_that_is_stored_while_the_identity_cannot_be_read_stays_that_of_its_folder(shelf):
    node = shelf.node
    node.trigger.write_text(f"read {node.data / 'identity'}")
    refused = node.raw("POST", "/dbs", body={"id": "later"})
    assert refused.status == 503 and str(node.data / "identity") in refused.message, refused
    node.trigger.unlink()
    assert node.raw("POST", "/dbs", body={"id": "later"}).status == 201
    assert node.restart() == 0
    assert [each["id"] for each in node.raw("GET", "/dbs").json["Databases"]] == ["d", "later"]
    assert shelf.failures("hurt") + shelf.failures("healthy") == []


@pytest.mark.parametrize("file", ["watermarks", "clock"])
def test_small_files_that_cannot_be_read_at_start_are_said(shelf, file):
    node = shelf.node
    node.stop()
    node.trigger.write_text(f"read {node.data / file}")
    node.start()
    status = node.health("/status").json
    assert EIO in (status["lostSequences"] if file == "watermarks" else status["clock"]["fileDamaged"])
    assert shelf.failures("hurt") + shelf.failures("healthy") == []


# slow disks


class Writer(threading.Thread):
    """Writes one item and keeps the answer."""

    def __init__(self, shelf, name, item_id, size=100):
        super().__init__()
        self.shelf, self.name_, self.id, self.size = shelf, name, item_id, size
        self.answer = None
        self.start()

    def run(self):
        body = {"id": self.id, "pk": "p", "number": 0, "text": "x" * self.size}
        self.answer = self.shelf.send(self.name_, "POST", body=body)


def test_while_a_write_waits_for_the_disk_all_else_goes_on(shelf):
    node = shelf.node
    mortal = shelf.send("hurt", "POST", body={"id": "mortal", "pk": "p", "number": 0, "ttl": 4}).json
    node.trigger.write_text(f"hang {shelf.folder('hurt')}/")
    waiting = [Writer(shelf, "hurt", f"waits-{number}") for number in range(3)]
    wait_until(lambda: shelf.status("hurt")["requestsUnderWay"] == 3, "the writes wait")
    assert shelf.send("hurt", "GET", "1").status == 200
    assert shelf.send("hurt", "GET", "waits-0").status == 404, "what is not durable is not seen"
    assert shelf.failures("healthy") == []
    assert shelf.send("healthy", "POST", body={"id": "1000", "pk": "p"}).status == 201

    def seen():
        """Whether the item was seen, and the seconds before and after."""
        before = node.health("/status").json["now"]
        status = shelf.send("hurt", "GET", "mortal").status
        return before, status, node.health("/status").json["now"]

    due = mortal["_ts"] + 4
    while True:
        before, status, after = seen()
        assert status == 404 if before >= due else status in (200, 404)
        assert status == 200 if after < due else True
        if before >= due:
            break
    assert [each.answer for each in waiting] == [None] * 3
    node.trigger.unlink()
    for each in waiting:
        each.join(30)
        assert each.answer.status == 201
    assert shelf.send("hurt", "GET", "waits-0").status == 200


@pytest.mark.thorough
def test_a_slow_disk_makes_writes_wait_or_refuses_them_and_loses_none(faulty_node):
    node = faulty_node(arguments=["--set", "limits.shard_queue_max=4"])
    shelf = Shelf(node)
    node.trigger.write_text(f"slow {shelf.folder('hurt')}/")
    writers = [Writer(shelf, "hurt", f"slow-{number}", size=50_000) for number in range(12)]
    under_way = 0
    while any(each.is_alive() for each in writers):
        under_way = max(under_way, shelf.status("hurt")["requestsUnderWay"])
        assert shelf.send("healthy", "GET", "1").status == 200
    assert under_way <= 4, "what waits has a bound"
    statuses = [each.answer.status for each in writers]
    assert set(statuses) <= {201, 429}, statuses
    assert statuses.count(201) >= 4, statuses
    assert statuses.count(429) > 0, statuses
    last = Writer(shelf, "hurt", "last")
    last.join(30)
    assert last.answer.status == 201
    assert node.stop() == 0
    node.trigger.unlink()
    node.start()
    for each in [*writers, last]:
        found = shelf.send("hurt", "GET", each.id).status
        assert found == (200 if each.answer.status == 201 else 404), each.id


def test_slow_reads_are_right_and_keep_nobody_from_other_shards(shelf):
    node = shelf.node
    node.trigger.write_text(f"drag {shelf.folder('hurt')}/")
    answered = threading.Event()

    def read_slowly():
        assert shelf.failures("hurt") == []
        answered.set()

    reader = threading.Thread(target=read_slowly)
    reader.start()
    assert shelf.failures("healthy") == []
    assert node.health("/status").status == 200
    reader.join(60)
    assert answered.is_set(), "every answer is right"
    assert node.stop() == 0


# the Raft log


@pytest.mark.parametrize("role", ["leader", pytest.param("follower", marks=pytest.mark.thorough)])
def test_a_raft_log_that_cannot_be_synced_loses_nothing_and_its_group_goes_on(faulty_node, tmp_path, role):
    cluster = Cluster(lambda start, arguments: faulty_node(started=False, arguments=arguments), tmp_path)
    nodes = cluster.nodes
    make(nodes[1])
    leader = cluster.leader_of(("shop", "items"))
    hurt = leader if role == "leader" else next(number for number in nodes if number != leader)
    others = [number for number in nodes if number != hurt]
    acknowledged, tried = [], []

    def write(number, item_id):
        header = {"x-ms-documentdb-partitionkey": f'["{item_id}"]'}
        tried.append(item_id)
        status = nodes[number].raw("POST", "/dbs/shop/colls/items/docs", headers=header, body={"id": item_id, "pk": item_id}).status
        if status == 201:
            acknowledged.append(item_id)
        return status

    assert [write(number, f"before {number}") for number in nodes] == [201] * 3
    nodes[hurt].trigger.write_text(f"sync {nodes[hurt].data / 'raft'}/")
    for attempt in range(5):
        assert write(hurt, f"during {attempt}") in (201, 503)
    said = "the Raft log takes no writes until the node is restarted"
    wait_until(lambda: said in nodes[hurt].log(), "the node says that its Raft log has failed")
    assert nodes[hurt].health("/ready").status == 503
    assert nodes[hurt].metric("bolide_ready") == 0
    for number in others:
        wait_until(lambda: write(number, f"after {number} {len(tried)}") == 201, "the group goes on")  # noqa: B023
    nodes[hurt].trigger.unlink()
    assert nodes[hurt].health("/ready").status == 503, "a log that has failed once is not trusted before it is opened anew"
    for number in others:
        found = ids(at(nodes[number]))
        assert set(acknowledged) <= set(found) <= set(tried)
    nodes[hurt].kill()
    nodes[hurt].start()
    cluster.wait_led()
    cluster.wait_level(("shop", "items"))
    wait_until(lambda: write(hurt, f"again {len(tried)}") == 201, "the node takes part again")
    cluster.wait_level(("shop", "items"))
    found = [ids(at(node)) for node in nodes.values()]
    assert found[0] == found[1] == found[2]
    assert set(acknowledged) <= set(found[0]) <= set(tried)
