"""Time to live, exactly: every rule of the design through the real SDK.

The rules about what is gone when need real seconds. Each is a scenario: a generator that prepares, yields the second
until which it wants to wait (by the clock that the node shares), checks, and may yield again. All scenarios run
side by side, so that the file takes as long as the longest of them; each is reported as a test of its own.

No check depends on how fast the machine is. An item seen alive by a request that began at or after its second is
wrong; one found gone by a request that ended before its second is wrong; nothing else is said about time.
"""

import heapq
import itertools
import json
import time

import pytest
from azure.core import MatchConditions
from azure.cosmos import PartitionKey, exceptions

from node import Node, wait_until

TTL_MAX = 2147483647
SCENARIOS = {}


def scenario(function):
    SCENARIOS[function.__name__] = function
    return function


class Bench:
    """What scenarios work with: containers on the shared node."""

    def __init__(self, node, database):
        self.node = node
        self.database = database
        self.serial = itertools.count()
        self.nodes = []

    def container(self, default_ttl=None, **options):
        return self.database.create_container(
            f"ttl-{next(self.serial)}", PartitionKey("/pk"), default_ttl=default_ttl, **options
        )

    def own_node(self, **options):
        self.nodes.append(Node(**options))
        return self.nodes[-1]

    def set_default(self, container, default_ttl, **options):
        """Changes defaultTtl; None switches time to live off."""
        self.database.replace_container(container, PartitionKey("/pk"), default_ttl=default_ttl, **options)


def item(item_id, ttl=None, pk="p", **more):
    made = {"id": item_id, "pk": pk, **more}
    return made if ttl is None else {**made, "ttl": ttl}


def due(created, ttl):
    """The second at which an item that came back from a write is gone."""
    return created["_ts"] + ttl


def gone(container, item_id, pk="p"):
    with pytest.raises(exceptions.CosmosResourceNotFoundError):
        container.read_item(item_id, pk)
    return True


def alive(container, item_id, pk="p"):
    return container.read_item(item_id, pk)["id"] == item_id


def alive_before(container, item_id, second, pk="p"):
    """The item is there, or it is already its second."""
    try:
        return alive(container, item_id, pk)
    except exceptions.CosmosResourceNotFoundError:
        assert time.time() >= second, f"'{item_id}' was gone before its second {second}"
        return False


def everywhere(container):
    """The ids that each way of reading many items shows; they must agree."""
    query = {"enable_cross_partition_query": True}
    ways = {
        "read feed": [each["id"] for each in container.read_all_items()],
        "query": [each["id"] for each in container.query_items("SELECT * FROM c", **query)],
        "change feed": [each["id"] for each in container.query_items_change_feed(start_time="Beginning")],
    }
    ways = {way: sorted(ids) for way, ids in ways.items()}
    count = list(container.query_items("SELECT VALUE COUNT(1) FROM c", **query))
    assert ways["query"] == ways["read feed"] == ways["change feed"], ways
    assert count == [len(ways["query"])]
    return ways["read feed"]


@pytest.fixture(scope="module")
def outcomes(request, node, shared_database):
    """Runs the selected scenarios side by side; what each ended with, by name."""
    selected = {each.callspec.params["name"] for each in request.session.items if "ttl_scenario" in each.keywords}
    bench = Bench(node, shared_database)
    ended = {}
    waiting = []

    def advance(name, steps):
        try:
            heapq.heappush(waiting, (next(steps), name, steps))
        except StopIteration:
            ended[name] = None
        except BaseException as error:
            ended[name] = error

    for name in sorted(selected):
        advance(name, SCENARIOS[name](bench))
    while waiting:
        second, name, steps = heapq.heappop(waiting)
        while (pause := second - time.time()) > 0:
            time.sleep(pause)
        advance(name, steps)
    yield ended
    for each in bench.nodes:
        each.close()


# what is gone when


@scenario
def collection_off_item_absent_never_expires(bench):
    container = bench.container()
    made = container.create_item(item("x"))
    yield due(made, 2)
    assert alive(container, "x")
    assert everywhere(container) == ["x"]


@scenario
def collection_off_item_minus_1_never_expires(bench):
    container = bench.container()
    made = container.create_item(item("x", ttl=-1))
    yield due(made, 2)
    assert alive(container, "x")
    assert everywhere(container) == ["x"]


@scenario
def collection_off_item_n_is_not_interpreted(bench):
    container = bench.container()
    made = container.create_item(item("x", ttl=1))
    assert made["ttl"] == 1
    yield due(made, 2)
    assert container.read_item("x", "p")["ttl"] == 1
    assert everywhere(container) == ["x"]


@scenario
def collection_minus_1_item_absent_never_expires(bench):
    container = bench.container(default_ttl=-1)
    made = container.create_item(item("x"))
    yield due(made, 2)
    assert alive(container, "x")
    assert everywhere(container) == ["x"]


@scenario
def collection_minus_1_item_minus_1_never_expires(bench):
    container = bench.container(default_ttl=-1)
    made = container.create_item(item("x", ttl=-1))
    yield due(made, 2)
    assert alive(container, "x")
    assert everywhere(container) == ["x"]


@scenario
def collection_minus_1_item_n_expires_after_n(bench):
    container = bench.container(default_ttl=-1)
    made = container.create_item(item("x", ttl=2))
    alive_before(container, "x", due(made, 2))
    yield due(made, 1)
    alive_before(container, "x", due(made, 2))
    yield due(made, 2)
    assert gone(container, "x")
    assert everywhere(container) == []


@scenario
def collection_n_item_absent_expires_after_the_default(bench):
    container = bench.container(default_ttl=2)
    made = container.create_item(item("x"))
    alive_before(container, "x", due(made, 2))
    yield due(made, 1)
    alive_before(container, "x", due(made, 2))
    yield due(made, 2)
    assert gone(container, "x")
    assert everywhere(container) == []


@scenario
def collection_n_item_minus_1_never_expires(bench):
    container = bench.container(default_ttl=1)
    made = container.create_item(item("x", ttl=-1))
    yield due(made, 2)
    assert alive(container, "x")
    assert everywhere(container) == ["x"]


@scenario
def collection_n_item_n_counts_its_own_shorter_or_longer(bench):
    container = bench.container(default_ttl=2)
    shorter = container.create_item(item("shorter", ttl=1))
    longer = container.create_item(item("longer", ttl=1000))
    inherits = container.create_item(item("inherits"))
    yield due(shorter, 1)
    assert gone(container, "shorter")
    alive_before(container, "inherits", due(inherits, 2))
    yield due(inherits, 2)
    assert gone(container, "inherits")
    assert alive(container, "longer")
    assert longer["ttl"] == 1000
    assert everywhere(container) == ["longer"]


@scenario
def expired_item_is_gone_for_every_operation(bench):
    container = bench.container(default_ttl=1)
    made = container.create_item(item("x"))
    yield due(made, 1)
    for attempt in [
        lambda: container.read_item("x", "p"),
        lambda: container.replace_item("x", item("x")),
        lambda: container.patch_item("x", "p", [{"op": "add", "path": "/n", "value": 1}]),
        lambda: container.delete_item("x", "p"),
        lambda: container.replace_item(
            "x", item("x"), etag=made["_etag"], match_condition=MatchConditions.IfNotModified
        ),
        lambda: container.delete_item("x", "p", match_condition=MatchConditions.IfPresent),
    ]:
        with pytest.raises(exceptions.CosmosResourceNotFoundError) as error:
            attempt()
        assert error.value.status_code == 404
    for operation in [
        ("read", ("x",)),
        ("replace", ("x", item("x"))),
        ("delete", ("x",)),
        ("patch", ("x", [{"op": "add", "path": "/n", "value": 1}])),
    ]:
        with pytest.raises(exceptions.CosmosBatchOperationError) as error:
            container.execute_item_batch([operation], "p")
        assert error.value.status_code == 404
    assert container.read_items([("x", "p"), ("y", "p")]) == []
    assert container.read_items([("x", "p")]) == []
    assert everywhere(container) == []


@scenario
def create_and_upsert_of_an_expired_id_give_201(bench):
    container = bench.container(default_ttl=-1)
    old = [container.create_item(item(each, ttl=1)) for each in ["created", "upserted", "batched"]]
    yield due(old[-1], 1)
    created = container.create_item(item("created"))
    upserted = bench.node.raw(
        "POST", f"/{container.container_link}/docs", body=item("upserted"),
        headers={"x-ms-documentdb-partitionkey": '["p"]', "x-ms-documentdb-is-upsert": "true"},
    )  # fmt: skip
    assert upserted.status == 201, upserted
    [batched] = container.execute_item_batch([("upsert", (item("batched"),))], "p")
    assert batched["statusCode"] == 201
    assert created["_rid"] != old[0]["_rid"]
    assert upserted.json["_rid"] != old[1]["_rid"]
    assert everywhere(container) == ["batched", "created", "upserted"]


@scenario
def purge_of_the_old_item_leaves_its_successor_alone(bench):
    container = bench.container(default_ttl=-1)
    old = container.create_item(item("x", ttl=1))
    yield due(old, 1)
    container.create_item(item("x", generation=2))
    yield due(old, 4)
    assert container.read_item("x", "p")["generation"] == 2
    assert everywhere(container) == ["x"]


@scenario
def unique_key_values_of_an_expired_item_are_free(bench):
    container = bench.container(default_ttl=-1, unique_key_policy={"uniqueKeys": [{"paths": ["/email"]}]})
    first = container.create_item(item("first", ttl=2, email="same"))
    try:
        container.create_item(item("too-early", email="same"))
        assert time.time() >= due(first, 2), "the value was free before its second"
        return
    except exceptions.CosmosResourceExistsError:
        pass
    yield due(first, 2)
    container.create_item(item("second", email="same"))
    with pytest.raises(exceptions.CosmosResourceExistsError):
        container.create_item(item("third", email="same"))


@scenario
def unique_key_value_freed_by_a_change_of_the_default_stays_with_its_new_owner(bench):
    keys = {"uniqueKeys": [{"paths": ["/email"]}]}
    container = bench.container(default_ttl=1000, unique_key_policy=keys)
    first = container.create_item(item("first", email="same"))
    yield due(first, 1)
    bench.set_default(container, 1)
    container.create_item(item("second", ttl=-1, email="same"))
    bench.set_default(container, 1000)
    assert gone(container, "first")
    with pytest.raises(exceptions.CosmosResourceExistsError):
        container.create_item(item("third", email="same"))


# the countdown


@scenario
def every_write_starts_the_countdown_again(bench):
    # Long enough for the writes to come in time on a busy machine.
    container = bench.container(default_ttl=15)
    names = ["replaced", "upserted", "patched", "batched"]
    first = {name: container.create_item(item(name)) for name in names}
    yield due(first["replaced"], 2)
    second = {
        "replaced": container.replace_item("replaced", item("replaced")),
        "upserted": container.upsert_item(item("upserted")),
        "patched": container.patch_item("patched", "p", [{"op": "add", "path": "/n", "value": 1}]),
        "batched": container.execute_item_batch([("replace", ("batched", item("batched")))], "p")[0]["resourceBody"],
    }
    for name in names:
        assert second[name]["_ts"] > first[name]["_ts"]
    yield due(first["batched"], 15)
    for name in names:
        alive_before(container, name, due(second[name], 15))
    yield due(second["batched"], 15)
    assert everywhere(container) == []


@scenario
def reads_do_not_start_it_again(bench):
    container = bench.container(default_ttl=2)
    made = container.create_item(item("x"))
    yield due(made, 1)
    alive_before(container, "x", due(made, 2))
    everywhere(container)
    yield due(made, 2)
    assert gone(container, "x")


@scenario
def removing_ttl_goes_back_to_the_default(bench):
    container = bench.container(default_ttl=1)
    for name in ["patched", "replaced", "upserted"]:
        container.create_item(item(name, ttl=1000))
    patched = container.patch_item("patched", "p", [{"op": "remove", "path": "/ttl"}])
    assert "ttl" not in patched
    container.replace_item("replaced", item("replaced"))
    last = container.upsert_item(item("upserted"))
    yield due(last, 1)
    assert everywhere(container) == []


@scenario
def ttl_can_be_set_changed_and_lifted_by_any_write(bench):
    container = bench.container(default_ttl=-1)
    for name in ["set", "shortened"]:
        container.create_item(item(name, ttl=None if name == "set" else 1000))
    container.create_item(item("lifted", ttl=3))
    container.create_item(item("lengthened", ttl=3))
    container.patch_item("lifted", "p", [{"op": "set", "path": "/ttl", "value": -1}])
    container.replace_item("lengthened", item("lengthened", ttl=1000))
    container.patch_item("set", "p", [{"op": "add", "path": "/ttl", "value": 1}])
    last = container.upsert_item(item("shortened", ttl=1))
    yield due(last, 1)
    assert gone(container, "set")
    assert gone(container, "shortened")
    yield due(last, 4)
    assert everywhere(container) == ["lengthened", "lifted"]


@scenario
def items_of_a_batch_expire_alike(bench):
    container = bench.container(default_ttl=1)
    container.execute_item_batch([("create", (item(str(n), ttl=-1 if n == 3 else None),)) for n in range(5)], "p")
    made = container.read_item("3", "p")
    yield due(made, 1)
    assert everywhere(container) == ["3"]


@scenario
def largest_ttl_does_not_overflow(bench):
    container = bench.container(default_ttl=TTL_MAX)
    container.create_item(item("inherits"))
    made = container.create_item(item("own", ttl=TTL_MAX))
    yield due(made, 2)
    assert everywhere(container) == ["inherits", "own"]


# changes of the default


@scenario
def turning_it_on_counts_from_the_existing_timestamps(bench):
    short, long, none = bench.container(), bench.container(), bench.container()
    for container in [short, long, none]:
        container.create_item(item("inherits"))
        container.create_item(item("never", ttl=-1))
        made = container.create_item(item("own", ttl=1))
    yield due(made, 1)
    bench.set_default(short, 1)
    bench.set_default(long, 1000)
    bench.set_default(none, -1)
    assert everywhere(short) == ["never"]
    assert everywhere(long) == ["inherits", "never"]
    assert everywhere(none) == ["inherits", "never"]


@scenario
def raising_the_default_never_brings_an_expired_item_back(bench):
    container = bench.container(default_ttl=1)
    made = container.create_item(item("x"))
    container.create_item(item("own", ttl=1000))
    yield due(made, 1)
    for default in [1000, -1, TTL_MAX]:
        bench.set_default(container, default)
        assert gone(container, "x")
    assert everywhere(container) == ["own"]


@scenario
def raising_the_default_saves_what_is_not_yet_due(bench):
    container = bench.container(default_ttl=3)
    made = container.create_item(item("x"))
    bench.set_default(container, 1000)
    saved = time.time() < due(made, 3)
    yield due(made, 3)
    if saved:
        assert everywhere(container) == ["x"]


@scenario
def lowering_the_default_is_in_force_at_once_and_final(bench):
    container = bench.container(default_ttl=1000)
    made = container.create_item(item("x"))
    container.create_item(item("own", ttl=1000))
    yield due(made, 1)
    bench.set_default(container, 1)
    assert everywhere(container) == ["own"]
    bench.set_default(container, 1000)
    assert everywhere(container) == ["own"]


@scenario
def removing_the_default_never_brings_an_expired_item_back(bench):
    container = bench.container(default_ttl=1)
    container.create_item(item("inherits"))
    made = container.create_item(item("own", ttl=1))
    yield due(made, 1)
    bench.set_default(container, None)
    assert "defaultTtl" not in container.read()
    assert everywhere(container) == []
    for default in [-1, 1000, None, 1000]:
        bench.set_default(container, default)
        assert everywhere(container) == []


@scenario
def removing_the_default_stops_every_countdown(bench):
    container = bench.container(default_ttl=3)
    container.create_item(item("inherits"))
    made = container.create_item(item("own", ttl=3))
    bench.set_default(container, None)
    saved = time.time() < due(made, 3) - 1
    yield due(made, 3)
    if saved:
        assert everywhere(container) == ["inherits", "own"]
        bench.set_default(container, -1)
        assert everywhere(container) == ["inherits"], "on again: the own ttl counts from its timestamp"


@scenario
def default_of_null_switches_it_off(bench):
    container = bench.container(default_ttl=1)
    properties = container.read()
    answer = bench.node.raw(
        "PUT", f"/{container.container_link}",
        body={"id": container.id, "partitionKey": properties["partitionKey"], "defaultTtl": None},
    )  # fmt: skip
    assert answer.status == 200, answer
    assert "defaultTtl" not in answer.json
    made = container.create_item(item("x"))
    yield due(made, 1)
    assert alive(container, "x")


@scenario
def change_of_the_default_is_in_force_on_all_shards_when_it_is_answered(bench):
    container = bench.container(default_ttl=1000, offer_throughput=30_000)
    shards = set()
    for n in range(30):
        made = container.create_item(item(str(n), pk=f"key {n}"))
        shards.add(made.get_response_headers()["x-ms-documentdb-partitionkeyrangeid"])
    assert len(shards) == 3
    yield due(made, 1)
    bench.set_default(container, 1)
    for n in range(30):
        assert gone(container, str(n), pk=f"key {n}")
    assert everywhere(container) == []
    bench.set_default(container, 1000)
    assert everywhere(container) == []


@scenario
def items_written_after_the_change_count_by_the_new_default(bench):
    container = bench.container(default_ttl=1)
    bench.set_default(container, 1000)
    made = container.create_item(item("x"))
    yield due(made, 2)
    assert everywhere(container) == ["x"]


# the life of the node


@scenario
def items_that_fell_due_while_the_node_was_down_are_gone_at_its_first_answer(bench):
    node = bench.own_node()
    container = node.client().create_database("d").create_container("c", PartitionKey("/pk"), default_ttl=2)
    for n in range(20):
        container.create_item(item(f"inherits {n}"))
        made = container.create_item(item(f"own {n}", ttl=2))
    container.create_item(item("never", ttl=-1))
    node.kill()
    yield due(made, 2)
    node.start()
    container = node.client().get_database_client("d").get_container_client("c")
    assert gone(container, "own 19")
    assert gone(container, "inherits 0")
    assert everywhere(container) == ["never"]


@scenario
def finality_survives_a_crash(bench):
    node = bench.own_node()
    database = node.client().create_database("d")
    container = database.create_container("c", PartitionKey("/pk"), default_ttl=1)
    container.create_item(item("own", ttl=1))
    made = container.create_item(item("inherits"))
    yield due(made, 1)
    database.replace_container(container, PartitionKey("/pk"), default_ttl=1000)
    node.kill()
    node.start()
    database = node.client().get_database_client("d")
    container = database.get_container_client("c")
    assert container.read()["defaultTtl"] == 1000
    assert everywhere(container) == []
    database.replace_container(container, PartitionKey("/pk"))
    node.kill()
    node.start()
    container = node.client().get_database_client("d").get_container_client("c")
    assert "defaultTtl" not in container.read()
    assert everywhere(container) == []


@scenario
def expiry_is_final_for_items_not_yet_purged(bench):
    node = bench.own_node()
    database = node.client().create_database("d")
    changed = {name: database.create_container(name, PartitionKey("/pk"), default_ttl=3) for name in ["raised", "off"]}
    for container in changed.values():
        for batch in range(5):
            container.execute_item_batch(
                [("create", (item(f"{batch} {n}", ttl=3 if n % 2 else None),)) for n in range(100)], "p"
            )
        made = container.create_item(item("never", ttl=-1))
    yield due(made, 3)
    database.replace_container(changed["raised"], PartitionKey("/pk"), default_ttl=1000)
    database.replace_container(changed["off"], PartitionKey("/pk"))
    for container in changed.values():
        assert everywhere(container) == ["never"]
    database.replace_container(changed["off"], PartitionKey("/pk"), default_ttl=1000)
    assert everywhere(changed["off"]) == ["never"]


# the purge


@scenario
def purged_items_free_their_space(bench):
    container = bench.container(default_ttl=1)
    for n in range(50):
        made = container.create_item(item(str(n), text="x" * 1000))
    container.create_item(item("stays", ttl=-1))
    yield due(made, 1)
    wait_until(lambda: documents_stored(container) == 1, "the purge leaves one item stored")
    assert everywhere(container) == ["stays"]



def documents_stored(container):
    """How many items the container still holds on disk, expired ones included."""
    usage = {}
    container.read(populate_quota_info=True, response_hook=lambda headers, _: usage.update(headers))
    parts = dict(part.split("=") for part in usage["x-ms-resource-usage"].strip(";").split(";"))
    return int(parts["documentsCount"])


@pytest.mark.ttl_scenario
@pytest.mark.parametrize("name", SCENARIOS)
def test_scenario(name, outcomes):
    if outcomes[name] is not None:
        raise outcomes[name]


# what may be written; no waiting here

BAD_VALUES = [0, -2, -10, 1.5, "60", "", True, False, {}, [], TTL_MAX + 1, 1e300, 2**63]


@pytest.mark.parametrize("value", BAD_VALUES)
def test_bad_default_is_400_and_names_the_value(node, shared_database, new_container, value):
    definition = {"id": "bad", "partitionKey": {"paths": ["/pk"], "kind": "Hash", "version": 2}, "defaultTtl": value}
    answer = node.raw("POST", f"/dbs/{shared_database.id}/colls", body=definition)
    assert answer.status == 400, answer
    assert shown(value) in answer.message and "defaultTtl" in answer.message
    container = new_container(default_ttl=77)
    answer = node.raw("PUT", f"/{container.container_link}", body={**definition, "id": container.id})
    assert answer.status == 400, answer
    assert container.read()["defaultTtl"] == 77


@pytest.mark.parametrize("value", [*BAD_VALUES, None])
def test_bad_item_ttl_is_400_and_names_the_value(node, new_container, value):
    container = new_container(default_ttl=-1)
    container.create_item(item("there"))
    key = {"x-ms-documentdb-partitionkey": '["p"]'}
    path = f"/{container.container_link}/docs"
    patch = {"operations": [{"op": "set", "path": "/ttl", "value": value}]}
    for answer in [
        node.raw("POST", path, headers=key, body={"id": "new", "pk": "p", "ttl": value}),
        node.raw("POST", path, headers={**key, "x-ms-documentdb-is-upsert": "true"}, body={"id": "there", "pk": "p", "ttl": value}),
        node.raw("PUT", f"{path}/there", headers=key, body={"id": "there", "pk": "p", "ttl": value}),
        node.raw("PATCH", f"{path}/there", headers=key, body=patch),
    ]:
        assert answer.status == 400, answer
        assert shown(value) in answer.message and "ttl" in answer.message
    assert [each["id"] for each in container.read_all_items()] == ["there"]
    assert "ttl" not in container.read_item("there", "p")


def shown(value):
    """How a message shows the value: as JSON; the largest numbers have several spellings."""
    if isinstance(value, str):
        return value
    return json.dumps(value) if not isinstance(value, float) or value < 1e20 else "1e"


@pytest.mark.parametrize("value", [-1, 1, 60, TTL_MAX])
def test_good_values_come_back_as_they_were(new_container, value):
    container = new_container(default_ttl=value)
    assert container.read()["defaultTtl"] == value
    assert container.create_item(item("x", ttl=value))["ttl"] == value


def test_whole_number_written_as_a_float_is_fine(node, new_container):
    container = new_container(default_ttl=-1)
    answer = node.raw(
        "POST", f"/{container.container_link}/docs", headers={"x-ms-documentdb-partitionkey": '["p"]'},
        body='{"id":"x","pk":"p","ttl":60.0}',
    )  # fmt: skip
    assert answer.status == 201, answer
    assert answer.json["ttl"] == 60


def test_ttl_is_an_ordinary_property(new_container):
    container = new_container(default_ttl=1000)
    assert "ttl" not in container.create_item(item("inherits"))
    container.create_item(item("own", ttl=500))
    found = container.query_items("SELECT * FROM c WHERE c.ttl = 500", partition_key="p")
    assert [each["id"] for each in found] == ["own"]


NO_INDEX = {"indexingMode": "none", "automatic": False}


def test_ttl_needs_an_index_when_the_container_is_made(new_container):
    for default in [-1, 60]:
        with pytest.raises(exceptions.CosmosHttpResponseError) as error:
            new_container(default_ttl=default, indexing_policy=NO_INDEX)
        assert error.value.status_code == 400
        assert "Indexing mode value cannot be 'none'" in error.value.message
        assert "defaultTtl" in error.value.message


def test_ttl_cannot_be_switched_on_without_an_index(shared_database, new_container):
    container = new_container(indexing_policy=NO_INDEX)
    with pytest.raises(exceptions.CosmosHttpResponseError) as error:
        shared_database.replace_container(container, PartitionKey("/pk"), indexing_policy=NO_INDEX, default_ttl=60)
    assert error.value.status_code == 400
    assert "defaultTtl" not in container.read()


def test_index_cannot_be_dropped_while_ttl_is_on(shared_database, new_container):
    container = new_container(default_ttl=60)
    with pytest.raises(exceptions.CosmosHttpResponseError) as error:
        shared_database.replace_container(container, PartitionKey("/pk"), indexing_policy=NO_INDEX, default_ttl=60)
    assert error.value.status_code == 400
    assert container.read()["indexingPolicy"]["indexingMode"] == "consistent"
    assert container.read()["defaultTtl"] == 60
    shared_database.replace_container(container, PartitionKey("/pk"), indexing_policy=NO_INDEX)
    assert container.read()["indexingPolicy"]["indexingMode"] == "none"
