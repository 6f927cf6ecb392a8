"""Writers that keep a model of what the node acknowledged, and the comparison of that model with what is there.

Each writer owns its ids, so that it knows the exact state of each of them, except for the one request that was on its
way when the node was killed: that one has happened as a whole or not at all.
"""

import http.client
import json
import random
import threading
import time

from node import signed_headers

IDS_PER_WRITER = 60
PARTITIONS_PER_WRITER = 3
# A short life, so that items fall due while the node is down.
MORTAL_TTL_SECONDS = 1
UNREACHABLE = (http.client.HTTPException, OSError)


class Writer(threading.Thread):
    """One connection, one request at a time, until the node is gone."""

    def __init__(self, node, path, name, seed):
        super().__init__(name=name, daemon=True)
        self.node = node
        self.path = path
        self.random = random.Random(seed)
        self.model = {}  # id -> the body that was acknowledged last; ids that are not there were never or no longer are
        self.doubt = {}  # id -> the body (None: deleted) that the unanswered request would leave, all of it or nothing
        self.ts_max = 0
        self.lsn_max = {}  # range -> the highest log sequence number that was acknowledged
        self.written = 0
        self.complaints = []
        self.power_is_off = threading.Event()  # no answer reaches anybody from then on

    # addresses

    def ids(self, partition):
        return [f"{self.name}-{n}" for n in range(IDS_PER_WRITER) if n % PARTITIONS_PER_WRITER == partition]

    def partition_of(self, item_id):
        return int(item_id.rsplit("-", 1)[1]) % PARTITIONS_PER_WRITER

    def key(self, partition):
        return f"{self.name}/{partition}"

    def body(self, item_id, ttl=None):
        made = {
            "id": item_id, "pk": self.key(self.partition_of(item_id)), "stamp": self.random.getrandbits(48),
            "text": "x" * self.random.randrange(400),
        }  # fmt: skip
        return made if ttl is None else {**made, "ttl": ttl}

    # the load

    def run(self):
        self.connection = self.node.connection(seconds_max=10)
        try:
            while not self.complaints:
                self.doubt = {}
                self.step()
                self.written += 1
        except UNREACHABLE:
            pass  # killed; what self.doubt holds may have happened
        except Exception as error:  # a bug of the test must not pass as a crash of the node
            self.complaints.append(f"{self.name}: {error!r}")
        finally:
            self.connection.close()

    def step(self):
        partition = self.random.randrange(PARTITIONS_PER_WRITER)
        if self.random.random() < 0.2:
            return self.batch(partition)
        item_id = self.random.choice(self.ids(partition))
        there = item_id in self.model
        choice = self.random.random()
        if there and "ttl" in self.model[item_id] or choice < 0.2:
            # it may expire at any moment, so only an upsert has a certain outcome
            ttl = MORTAL_TTL_SECONDS if self.random.random() < 0.7 else None
            return self.write("POST", self.path, (200, 201), item_id, self.body(item_id, ttl), upsert=True)
        if not there:
            upsert = choice < 0.5
            return self.write("POST", self.path, (201,), item_id, self.body(item_id), upsert=upsert)
        if choice < 0.45:
            return self.write("DELETE", f"{self.path}/{item_id}", (204,), item_id, None)
        if choice < 0.7:
            return self.write("PUT", f"{self.path}/{item_id}", (200,), item_id, self.body(item_id))
        if choice < 0.85:
            return self.write("POST", self.path, (200,), item_id, self.body(item_id), upsert=True)
        return self.patch(item_id)

    def write(self, method, path, statuses, item_id, body, upsert=False):
        self.doubt = {item_id: body}
        headers = {"x-ms-documentdb-is-upsert": "true"} if upsert else {}
        answer = self.send(method, path, self.partition_of(item_id), headers, body)
        if answer.status not in statuses:
            self.complaints.append(f"{method} {path}: {answer} instead of {statuses}")
            return
        self.settle([json.loads(answer.body)] if answer.body else [])

    def patch(self, item_id):
        stamp = self.random.getrandbits(48)
        self.doubt = {item_id: {**self.model[item_id], "stamp": stamp}}
        body = {"operations": [{"op": "set", "path": "/stamp", "value": stamp}]}
        answer = self.send("PATCH", f"{self.path}/{item_id}", self.partition_of(item_id), {}, body)
        if answer.status != 200:
            self.complaints.append(f"PATCH {item_id}: {answer}")
            return
        self.settle([json.loads(answer.body)])

    def batch(self, partition):
        """Several items at once, all or nothing; every fifth batch has an operation that must undo the others."""
        operations, doubt = [], {}
        for item_id in self.random.sample(self.ids(partition), self.random.randint(2, 8)):
            there = item_id in self.model and "ttl" not in self.model[item_id]
            if there and self.random.random() < 0.4:
                operations.append({"operationType": "Delete", "id": item_id})
                doubt[item_id] = None
            else:
                doubt[item_id] = self.body(item_id)
                operations.append({"operationType": "Upsert", "resourceBody": doubt[item_id]})
        doomed = self.random.random() < 0.2
        if doomed:
            operations.append({"operationType": "Delete", "id": "never-there"})
        self.doubt = {} if doomed else doubt
        headers = {"x-ms-cosmos-is-batch-request": "true", "x-ms-cosmos-batch-atomic": "true"}
        answer = self.send("POST", self.path, partition, headers, operations)
        if answer.status != (207 if doomed else 200):
            self.complaints.append(f"batch: {answer}")
            return
        results = json.loads(answer.body)
        self.settle([] if doomed else [each["resourceBody"] for each in results if "resourceBody" in each])

    def send(self, method, path, partition, headers, body):
        every = {
            **signed_headers(method, path), "x-ms-documentdb-partitionkey": json.dumps([self.key(partition)]),
            "content-type": "application/json", **headers,
        }  # fmt: skip
        data = None if body is None else json.dumps(body)
        self.connection.request(method, path, body=data, headers=every)
        response = self.connection.getresponse()
        answer = Answer(response.status, response.headers, response.read())
        if self.power_is_off.is_set():
            raise ConnectionError("the power is off")
        lsn, range_id = response.headers.get("lsn"), response.headers.get("x-ms-documentdb-partitionkeyrangeid")
        if lsn and range_id:
            self.lsn_max[range_id] = max(self.lsn_max.get(range_id, 0), int(lsn))
        return answer

    def settle(self, returned):
        """The request was acknowledged: what it left is certain."""
        for item_id, body in self.doubt.items():
            if body is None:
                self.model.pop(item_id, None)
            else:
                self.model[item_id] = body
        for each in returned:
            if each["_ts"] < self.ts_max:
                self.complaints.append(f"the clock went back from {self.ts_max} to {each['_ts']}")
            self.ts_max = max(self.ts_max, each["_ts"])
            if each["id"] in self.model:
                self.model[each["id"]] = {**self.model[each["id"]], "_ts": each["_ts"]}
        self.doubt = {}


class Answer:
    def __init__(self, status, headers, body):
        self.status = status
        self.headers = headers
        self.body = body

    def __repr__(self):
        return f"{self.status} {self.body[:300]!r}"


def read_feed(node, path):
    """Every item of the container, and when the reading began and ended."""
    began = time.time()
    items, token = [], None
    with_connection = node.connection()
    while True:
        headers = {"x-ms-max-item-count": "-1", "x-ms-continuation": token}
        answer = node.raw("GET", path, headers=headers, connection=with_connection)
        assert answer.status == 200, answer
        items += answer.json["Documents"]
        token = answer.headers.get("x-ms-continuation")
        if not token:
            with_connection.close()
            return items, began, time.time()


def essence(item):
    """An item without what the node adds."""
    return None if item is None else {name: value for name, value in item.items() if not name.startswith("_")}


def compare(writers, items, began, ended):
    """Complaints about every difference between the models and what is there; the models then take over what is there."""
    complaints = []
    found = {}
    for each in items:
        if each["id"] in found:
            complaints.append(f"{each['id']} is there twice")
        found[each["id"]] = each
        if "ttl" in each and each["_ts"] + each["ttl"] <= began:
            complaints.append(f"{each['id']} is back: it was due at {each['_ts'] + each['ttl']}, read at {began}")
    for writer in writers:
        mine = {item_id: found.pop(item_id) for item_id in list(found) if item_id.rsplit("-", 1)[0] == writer.name}
        for item_id in mine.keys() | writer.model.keys():
            if item_id not in writer.doubt:
                complaints += certain(item_id, writer.model.get(item_id), mine.get(item_id), began, ended)
        complaints += doubtful(writer, mine, began, ended)
        writer.model = {item_id: {**essence(item), "_ts": item["_ts"]} for item_id, item in mine.items()}
        writer.doubt = {}
    return complaints + [f"{item_id} is there and nobody wrote it" for item_id in found]


def may_be_gone(body, ended):
    """Whether the item may have expired before the reading ended."""
    return "ttl" in body and body.get("_ts", 0) + body["ttl"] <= ended


def certain(item_id, expected, item, began, ended):
    if item is None:
        return [] if expected is None or may_be_gone(expected, ended) else [f"{item_id} is lost: {expected}"]
    if expected is None:
        return [f"{item_id} is there though its absence was acknowledged: {item}"]
    if essence(item) != essence(expected):
        return [f"{item_id} is {item}, acknowledged was {expected}"]
    return []


def doubtful(writer, mine, began, ended):
    """The unanswered request happened as a whole or not at all."""

    def agrees(states):
        for item_id, state in states.items():
            item = mine.get(item_id)
            if item is None and state is not None and not may_be_gone(state, ended):
                return False
            if item is not None and (state is None or essence(item) != essence(state)):
                return False
        return True

    before = {item_id: writer.model.get(item_id) for item_id in writer.doubt}
    if agrees(before) or agrees(writer.doubt):
        return []
    seen = {item_id: mine.get(item_id) for item_id in writer.doubt}
    return [f"half of a request is there: before {before}, after {writer.doubt}, found {seen}"]
