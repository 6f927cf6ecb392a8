"""A node in a small memory cgroup: bounds follow from its memory, and heavy queries are refused before the kernel kills it."""

import os
import re
import socket
import threading
import time
from pathlib import Path

import pytest

from node import Node, signed_headers, wait_until

MEMORY_BYTES = 400 * 1024 * 1024
AT_A_TIME = 32
# Clients that were refused come back.
ASKED_EACH = 3
DOCS = "/dbs/d/colls/c/docs"
KEY = {"x-ms-documentdb-partitionkey": '["p"]'}
# A machine under load may be slow.
ANSWER_SECONDS_MAX = 120
PAIRS = "FROM c JOIN a IN c.arr JOIN b IN c.names"
PAIR = "CONCAT(ToString(a), '-', ToString(b))"
QUERIES = {
    "groups": f"SELECT {PAIR} AS k, COUNT(1) AS n {PAIRS} WHERE c.n < 2 GROUP BY {PAIR}",
    "one item": "SELECT VALUE ARRAY_LENGTH(ARRAY(SELECT VALUE [a, b] FROM a IN c.arr JOIN b IN c.arr)) FROM c",
    "distinct": f"SELECT DISTINCT VALUE {PAIR} {PAIRS}",
    "order": "SELECT a, b FROM c JOIN a IN c.arr JOIN b IN c.arr ORDER BY c.long",
    "wide item": "SELECT VALUE ARRAY_LENGTH(ARRAY_CONCAT(c.wide, c.wide, c.wide)) FROM c",
    "split": "SELECT VALUE ARRAY_LENGTH(STRINGSPLIT(c.commas, ',')) FROM c",
}


class Cgroup:
    """A memory cgroup of its own, version 1 or 2."""

    def __init__(self, bytes_max):
        mounts = Path("/proc/self/mountinfo").read_text().splitlines() if os.path.exists("/proc/self/mountinfo") else []
        points = {}
        for line in mounts:
            before, _, kind = line.partition(" - ")
            kind = kind.split(" ")
            if kind[0] == "cgroup2" or (kind[0] == "cgroup" and "memory" in kind[2].split(",")):
                points[kind[0]] = Path(before.split(" ")[4])
        if not points:
            pytest.skip("no cgroup file system is mounted")
        # Where both versions are mounted, the memory controller belongs to version 1.
        self.version = 1 if "cgroup" in points else 2
        parent = points["cgroup" if self.version == 1 else "cgroup2"]
        self.folder = parent / f"bolide-test-{os.getpid()}"
        limit = "memory.limit_in_bytes" if self.version == 1 else "memory.max"
        try:
            self.folder.mkdir()
        except OSError as failure:
            pytest.skip(f"cannot make a memory cgroup: {failure}")
        try:
            (self.folder / limit).write_text(str(bytes_max))
            swap = self.folder / ("memory.memsw.limit_in_bytes" if self.version == 1 else "memory.swap.max")
            if swap.exists():
                swap.write_text(str(bytes_max) if self.version == 1 else "0")
        except OSError as failure:
            self.close()
            pytest.skip(f"cannot bound the memory of a cgroup: {failure}")

    def kills(self):
        """How often the kernel has killed a process of the cgroup; None where it does not say."""
        events = self.folder / ("memory.oom_control" if self.version == 1 else "memory.events")
        found = re.search(r"^oom_kill (\d+)$", events.read_text(), re.M)
        return int(found[1]) if found else None

    def peak(self):
        peak = self.folder / ("memory.max_usage_in_bytes" if self.version == 1 else "memory.peak")
        return int(peak.read_text()) if peak.exists() else None

    def close(self):
        # The kernel needs a moment to let go of a process that has ended.
        for _ in range(100):
            try:
                self.folder.rmdir()
                return
            except OSError:
                time.sleep(0.05)


class BoundNode(Node):
    """A node in a memory cgroup."""

    def __init__(self, cgroup, **options):
        self.cgroup = cgroup
        super().__init__(**options)

    def command(self):
        join = 'echo $$ > "$0" && exec "$@"'
        return ["sh", "-c", join, str(self.cgroup.folder / "cgroup.procs"), *super().command()]

    def resident_bytes(self):
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"^VmRSS:\s+(\d+) kB$", status, re.M)[1]) * 1024


@pytest.fixture(scope="module")
def bound():
    cgroup = Cgroup(MEMORY_BYTES)
    node = None
    try:
        node = BoundNode(cgroup)
        fill(node)
        yield node
        assert node.stop() == 0, node.log()[-2000:]
        assert "panicked" not in node.log()
    finally:
        if node:
            node.close()
        cgroup.close()


def fill(node):
    """Twenty items as in the attack, and one whose properties take many times their bytes."""
    for path, body in [("/dbs", {"id": "d"}), ("/dbs/d/colls", {"id": "c", "partitionKey": {"paths": ["/pk"]}})]:
        assert node.raw("POST", path, body=body).status == 201
    arr, names = list(range(2_000)), [f"name-{n}-{'x' * 20}" for n in range(500)]
    connection = node.connection()
    for n in range(20):
        item = {"id": str(n), "pk": "p", "n": n, "arr": arr, "names": names, "long": "y" * 50_000}
        if n == 0:
            item["wide"], item["commas"] = [1] * 400_000, "," * 700_000
        answer = node.raw("POST", DOCS, headers=KEY, body=item, connection=connection)
        assert answer.status == 201, answer
    connection.close()


def all_pages(node, text):
    """The last answer to a query, page by page."""
    continuation = None
    headers = {**KEY, "x-ms-documentdb-isquery": "true", "content-type": "application/query+json"}
    connection = node.connection(ANSWER_SECONDS_MAX)
    try:
        for _ in range(20):
            every = {**headers, "x-ms-continuation": continuation}
            answer = node.raw("POST", DOCS, headers=every, body={"query": text, "parameters": []}, connection=connection)
            continuation = answer.headers.get("x-ms-continuation")
            if answer.status != 200 or not continuation:
                return answer
        return answer
    finally:
        connection.close()


def reads_work(node):
    answer = node.raw("GET", f"{DOCS}/1", headers=KEY)
    return answer.status == 200


def test_bounds_follow_from_the_memory_of_the_cgroup(bound):
    line = next(line for line in bound.log().splitlines() if "memory bounds" in line)
    figures = {name: int(value) for name, value in re.findall(r"(\w+_bytes)=(\d+)", line)}
    assert figures["memory_bytes"] == MEMORY_BYTES, line
    assert "cgroup" in line
    # The bound of one query is part of that of all.
    parts = figures.keys() - {"memory_bytes", "sum_bytes", "query_bytes"}
    assert figures["sum_bytes"] == sum(figures[part] for part in parts)
    assert figures["sum_bytes"] < MEMORY_BYTES * 3 // 4
    assert bound.metric("bolide_memory_limit_bytes") == MEMORY_BYTES
    assert "are more than the memory" not in bound.log()


@pytest.mark.parametrize("kind", QUERIES)
def test_heavy_queries_at_a_time_are_refused_before_the_node_is_killed(bound, kind):
    answers, reads, done = [], [], threading.Event()

    def ask():
        for _ in range(ASKED_EACH):
            answers.append(all_pages(bound, QUERIES[kind]))

    def read():
        reads.append(reads_work(bound))
        while not done.wait(0.05):
            reads.append(reads_work(bound))

    threads = [threading.Thread(target=ask) for _ in range(AT_A_TIME)]
    reader = threading.Thread(target=read)
    for thread in [*threads, reader]:
        thread.start()
    for thread in threads:
        thread.join()
    done.set()
    reader.join()
    assert bound.process.poll() is None, "the node was killed"
    assert not bound.cgroup.kills()
    assert len(answers) == AT_A_TIME * ASKED_EACH
    for answer in answers:
        assert answer.status in (200, 400, 413, 429), answer
        assert answer.status != 429 or int(answer.headers["x-ms-retry-after-ms"]) > 0
    assert reads and all(reads)
    print(kind, sorted(answer.status for answer in answers), "peak", bound.cgroup.peak(), "resident", bound.resident_bytes())


def test_refusal_names_the_bound_of_a_query(bound):
    bytes_max = re.search(r" query_bytes=(\d+)", bound.log())[1]
    answer = wait_until(lambda: not_busy(all_pages(bound, QUERIES["groups"])), "other queries end")
    assert answer.status == 400, answer
    assert bytes_max in answer.message, answer
    assert "limits.query_bytes_max" in answer.message
    assert bound.metric("bolide_query_memory_refusals_total") >= 1


def not_busy(answer):
    return None if answer.status == 429 else answer


def test_query_whose_client_is_gone_stops(bound):
    body = b'{"query": "%s", "parameters": []}' % QUERIES["one item"].encode()
    headers = {**signed_headers("POST", DOCS), **KEY, "x-ms-documentdb-isquery": "true", "content-type": "application/query+json"}
    for _ in range(AT_A_TIME):
        connection = bound.connection()
        connection.request("POST", DOCS, body=body, headers=headers)
        connection.close()
    assert reads_work(bound)
    wait_until(lambda: bound.metric("bolide_query_memory_bytes") == 0, "the queries of clients that have gone end")


def test_memory_is_given_back(bound):
    wait_until(lambda: bound.metric("bolide_query_memory_bytes") == 0, "all queries end")
    bytes_max = MEMORY_BYTES // 2
    wait_until(lambda: bound.resident_bytes() < bytes_max, f"less than {bytes_max} bytes are resident")
    assert reads_work(bound)


BODIES = {
    "empty objects": ",".join(["{}"] * 300_000),
    "small objects": ",".join(['{"":0}'] * 60_000),
    "numbers": ",".join(map(str, range(250_000))),
    "texts": ",".join(f'"{n}"' for n in range(150_000)),
}


def make_container(node, name):
    assert node.raw("POST", "/dbs/d/colls", body={"id": name, "partitionKey": {"paths": ["/pk"]}}).status in (201, 409)
    return f"/dbs/d/colls/{name}/docs"


@pytest.mark.parametrize("kind", BODIES)
def test_writes_of_many_values_at_a_time_are_refused_before_the_node_is_killed(bound, kind):
    docs, answers = make_container(bound, "written"), []

    def write(n):
        body = f'{{"id":"{kind} {n}","pk":"p","a":[{BODIES[kind]}]}}'
        for _ in range(ASKED_EACH):
            connection = bound.connection(ANSWER_SECONDS_MAX)
            answers.append(bound.raw("POST", docs, headers=KEY, body=body, connection=connection))
            connection.close()
            if answers[-1].status == 201:
                break
            time.sleep(0.5)

    threads = [threading.Thread(target=write, args=(n,)) for n in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert bound.process.poll() is None, "the node was killed"
    assert not bound.cgroup.kills()
    for answer in answers:
        assert answer.status in (201, 429), answer
        assert answer.status != 429 or int(answer.headers["x-ms-retry-after-ms"]) > 0
    print(kind, sorted(answer.status for answer in answers), "peak", bound.cgroup.peak())
    assert any(answer.status == 201 for answer in answers)
    assert reads_work(bound)


def test_item_whose_values_cannot_fit_is_refused_by_name(bound):
    docs = make_container(bound, "written")
    body = f'{{"id":"huge","pk":"p","a":[{",".join(["0"] * 1_000_000)}]}}'
    answer = bound.raw("POST", docs, headers=KEY, body=body)
    assert answer.status == 413, answer
    assert "values of the body" in answer.message


@pytest.mark.parametrize("feed", [{}, {"A-IM": "Incremental feed"}])
def test_pages_that_nobody_takes_are_bounded(bound, feed):
    docs = make_container(bound, "read")
    for n in range(3):
        item = {"id": str(n), "pk": "p", "text": "z" * 1_300_000}
        upsert = {**KEY, "x-ms-documentdb-is-upsert": "true"}
        assert bound.raw("POST", docs, headers=upsert, body=item).status in (200, 201)
    assert bound.raw("POST", docs, headers=upsert, body={"id": "small", "pk": "p"}).status in (200, 201)
    fields = {**signed_headers("GET", docs), "x-ms-max-item-count": "-1", **feed}
    head = f"GET {docs} HTTP/1.1\r\nHost: localhost\r\n" + "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    wires = []
    try:
        for _ in range(200):
            wire = socket.socket()
            wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            wire.connect(("127.0.0.1", bound.port))
            wire.sendall(head.encode() + b"\r\n")
            wires.append(wire)
        time.sleep(4)
        assert bound.process.poll() is None, "the node was killed"
        assert not bound.cgroup.kills()
        assert bound.raw("GET", f"{docs}/small", headers=KEY).status == 200, "small answers go on"
        answer = bound.raw("GET", docs, headers={"x-ms-max-item-count": "-1", **feed})
        assert answer.status == 429, answer
        assert int(answer.headers["x-ms-retry-after-ms"]) > 0
    finally:
        for wire in wires:
            wire.close()
    ask = lambda: bound.raw("GET", docs, headers={"x-ms-max-item-count": "-1", **feed}).status == 200
    wait_until(ask, "the pages of clients that have gone are given back")
    print("peak", bound.cgroup.peak(), "resident", bound.resident_bytes())


def test_settings_above_the_memory_are_warned_about(bound):
    greedy = BoundNode(bound.cgroup, arguments=["--set", "storage.block_cache_mb=300", "--set", "limits.queries_bytes_max=209715200"])
    try:
        assert "are more than the memory" in greedy.log()
        assert "storage.block_cache_mb" in greedy.log()
    finally:
        greedy.close()
