"""Too much at once: 429 with a hint when throughput is enforced, 429 before memory grows, and nothing lost of what was taken."""

import json
import threading

import pytest
from azure.cosmos import PartitionKey

from node import wait_until

KEY = {"x-ms-documentdb-partitionkey": '["p"]'}
DOCS = "/dbs/d/colls/c/docs"


@pytest.fixture
def metered(new_node):
    node = new_node(arguments=["--set", "limits.enforce_throughput=true"])
    node.client().create_database("d").create_container("c", PartitionKey("/pk"), offer_throughput=400)
    return node


def create(node, item_id, size=20_000, **options):
    return node.raw("POST", DOCS, headers=KEY, body={"id": item_id, "pk": "p", "text": "x" * size}, **options)


def use_up(node):
    """Writes until the container's throughput is used up; the 429, and how many were taken."""
    connection = node.connection()
    for n in range(2_000):
        answer = create(node, f"{n}", connection=connection)
        if answer.status == 429:
            return answer, n
        assert answer.status == 201, answer
    raise AssertionError("2,000 writes in a row and no 429")


def test_exceeded_throughput_is_429_with_a_hint_and_leaves_nothing(metered):
    answer, taken = use_up(metered)
    assert answer.substatus == 3200
    assert int(answer.headers["x-ms-retry-after-ms"]) > 0
    assert answer.json["code"] == "TooManyRequests"
    wait_until(lambda: create(metered, "later").status == 201, "throughput comes back with time")
    container = metered.client(retry_total=20).get_database_client("d").get_container_client("c")
    ids = [each["id"] for each in container.read_all_items()]
    assert sorted(ids) == sorted([*(str(n) for n in range(taken)), "later"])


def test_sdk_waits_as_told_and_succeeds(metered):
    use_up(metered)
    container = metered.client(retry_total=20).get_database_client("d").get_container_client("c")
    assert container.create_item({"id": "patient", "pk": "p"})["id"] == "patient"


def test_containers_of_one_database_share_its_throughput(new_node):
    node = new_node(arguments=["--set", "limits.enforce_throughput=true"])
    database = node.client().create_database("d", offer_throughput=400)
    for name in ["c", "sibling"]:
        database.create_container(name, PartitionKey("/pk"))
    database.create_container("own", PartitionKey("/pk"), offer_throughput=400)
    # A debt of many seconds: one large write after the other is let in as long as anything is left.
    connection = node.connection()
    for n in range(2_000):
        if create(node, f"{n}", connection=connection, size=1_500_000).status == 429:
            break
    answer = node.raw("POST", "/dbs/d/colls/sibling/docs", headers=KEY, body={"id": "1", "pk": "p"})
    assert (answer.status, answer.substatus) == (429, 3200), answer
    # A change of the catalog brings no new bucket.
    database.create_container("late", PartitionKey("/pk"))
    for name in ["c", "sibling", "late"]:
        answer = node.raw("POST", f"/dbs/d/colls/{name}/docs", headers=KEY, body={"id": "1", "pk": "p"})
        assert answer.status == 429, (name, answer)
    answer = node.raw("POST", "/dbs/d/colls/own/docs", headers=KEY, body={"id": "1", "pk": "p"})
    assert answer.status == 201, answer


def test_other_containers_have_their_own_throughput(metered):
    metered.client().get_database_client("d").create_container("other", PartitionKey("/pk"), offer_throughput=400)
    use_up(metered)
    answer = metered.raw("POST", "/dbs/d/colls/other/docs", headers=KEY, body={"id": "1", "pk": "p"})
    assert answer.status == 201, answer


def test_purging_costs_no_request_units(metered):
    container = metered.client().get_database_client("d").create_container(
        "mortal", PartitionKey("/pk"), default_ttl=2, offer_throughput=10_000
    )
    operations = [("create", ({"id": str(n), "pk": "p"},)) for n in range(100)]
    for _ in range(3):
        container.execute_item_batch(operations, "p")
        operations = [("create", ({**body, "id": body["id"] + "x"},)) for _, (body,) in operations]
    probe = container.create_item({"id": "probe", "pk": "p", "ttl": -1})
    container.replace_throughput(400)
    docs = "/dbs/d/colls/mortal/docs"

    def purged():
        # 300 deletes of 5 RU would be throttled for seconds; a read of 1 RU is not
        answer = metered.raw("GET", f"{docs}/probe", headers=KEY)
        assert answer.status == 200, answer
        usage = metered.raw("GET", "/dbs/d/colls/mortal", headers={"x-ms-documentdb-populatequotainfo": "true"})
        return "documentsCount=1;" in usage.headers["x-ms-resource-usage"]

    wait_until(purged, "all but one item are purged", pause=0.05)
    assert probe["id"] == "probe"


def test_full_queue_of_a_shard_is_429_and_what_was_taken_is_there(new_node):
    node = new_node(arguments=["--set", "limits.shard_queue_max=2"])
    node.client().create_database("d").create_container("c", PartitionKey("/pk"))
    taken, refused, other = [], [], []

    def write(worker):
        connection = node.connection()
        for n in range(50):
            answer = create(node, f"{worker}-{n}", connection=connection)
            if answer.status == 201:
                taken.append(f"{worker}-{n}")
            elif answer.status == 429 and int(answer.headers["x-ms-retry-after-ms"]) > 0:
                refused.append(answer.substatus)
            else:
                other.append(answer)
        connection.close()

    threads = [threading.Thread(target=write, args=(worker,)) for worker in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert other == []
    assert refused, "16 writers at once never met a full queue of 2"
    ids, token = [], None
    while True:
        answer = node.raw("GET", DOCS, headers={"x-ms-continuation": token})
        ids += [each["id"] for each in json.loads(answer.body)["Documents"]]
        token = answer.headers.get("x-ms-continuation")
        if not token:
            break
    assert sorted(ids) == sorted(taken)
