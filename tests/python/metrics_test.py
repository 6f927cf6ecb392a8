"""Metrics: what a loaded node exports is what the README lists, and the figures are those of the load."""

import re
import sys
import time

import pytest
from azure.cosmos import PartitionKey

from metrics import listed_metrics, listed_values, scrape
from node import Node, wait_until

needs_faults = pytest.mark.skipif(sys.platform != "linux", reason="preloading a library works this way on Linux only")


@pytest.fixture(scope="module")
def loaded():
    """A node that has done some of everything: it has a spent budget, expired items, a lazy index and a new one."""
    node = Node(environment={"BOLIDE_LIMITS__ENFORCE_THROUGHPUT": "true"})
    try:
        load(node)
        yield node
    finally:
        node.close()


def load(node):
    client = node.client(retry_total=0, retry_throttle_total=0)
    database = client.create_database("d")
    items = database.create_container("c", PartitionKey("/pk"), default_ttl=-1, offer_throughput=10_000)
    for number in range(20):
        items.create_item({"id": str(number), "pk": "p", "ttl": 1})
    items.upsert_item({"id": "kept", "pk": "p", "ttl": 3600})
    for _ in range(3):
        items.read_item("kept", "p")
    list(items.query_items("SELECT * FROM c", partition_key="p"))
    list(items.read_all_items())
    list(items.query_items_change_feed(partition_key="p"))
    assert node.raw("GET", "/dbs/d/colls/c/docs/missing", {"x-ms-documentdb-partitionkey": '["p"]'}).status == 404
    lazy = {"indexingMode": "lazy", "includedPaths": [{"path": "/*"}], "excludedPaths": []}
    database.create_container("lazy", PartitionKey("/pk"), indexing_policy=lazy).create_item({"id": "1", "pk": "p"})
    small = database.create_container("small", PartitionKey("/pk"), offer_throughput=400)
    statuses = set()
    for number in range(200):
        body = {"id": str(number), "pk": "p"}
        statuses.add(node.raw("POST", "/dbs/d/colls/small/docs", {"x-ms-documentdb-partitionkey": '["p"]'}, body).status)
        if 429 in statuses:
            break
    assert statuses == {201, 429}, small.id
    wait_until(lambda: node.metric("bolide_expiry_purged_items_total") >= 20, "the items are purged")


def test_the_readme_lists_what_a_loaded_node_exports(loaded):
    exported, listed = scrape(loaded), listed_metrics()
    assert exported.kinds == {name: kind for name, (kind, _) in listed.items()}
    assert exported.helps.keys() == listed.keys(), "every metric has its help"
    values = listed_values()
    for name, labels, _ in exported.series:
        base = name if name in listed else re.sub(r"_(bucket|sum|count)$", "", name)
        kind, names = listed[base]
        assert sorted(labels.keys() - {"le"}) == sorted(names), name
        assert ("le" in labels) == name.endswith("_bucket"), name
        for label, value in labels.items():
            if label in values and label not in ("container", "version"):
                assert value in values[label], f"{name}: {label}={value}"
            elif label == "container":
                assert value in ("none", "other") or value.startswith("d/"), f"{name}: {value}"
        assert kind == "histogram" or base == name


def test_requests_are_counted_by_container_operation_and_status(loaded):
    before = scrape(loaded)
    headers = {"x-ms-documentdb-partitionkey": '["p"]'}
    for _ in range(5):
        assert loaded.raw("GET", "/dbs/d/colls/c/docs/kept", headers).status == 200
    assert loaded.raw("GET", "/dbs/d/colls/c/docs/none", headers).status == 404
    assert loaded.raw("GET", "/", sign=False).status == 401
    after = scrape(loaded)

    def grew(name, **labels):
        return after.value(name, **labels) - (before.value(name, **labels) or 0)

    assert grew("bolide_requests_total", container="d/c", operation="read", status="200") == 5
    assert grew("bolide_requests_total", container="d/c", operation="read", status="404") == 1
    assert grew("bolide_requests_total", container="none", status="401") == 1
    assert grew("bolide_request_duration_seconds_count", container="d/c", operation="read") == 6
    assert grew("bolide_request_charge_units_sum", container="d/c") == pytest.approx(6)
    assert after.value("bolide_requests_in_flight") == 0
    assert after.value("bolide_requests_throttled_total", container="d/small", reason="throughput") >= 1


def test_answers_are_held_against_the_clock_when_they_are_complete(loaded):
    before = scrape(loaded)
    headers = {"x-ms-documentdb-partitionkey": '["p"]'}
    assert loaded.raw("GET", "/dbs/d/colls/c/docs/kept", headers).status == 200
    assert loaded.raw("GET", "/dbs/d/colls/c/docs", headers).status == 200
    after = scrape(loaded)
    checked = "bolide_expiry_checked_answers_total"
    assert after.value(checked) - before.value(checked) == 2
    assert after.value("bolide_expiry_late_answers_total") == 0
    assert after.value("bolide_expiry_visible_lag_seconds") == 0


def test_purging_is_told_with_its_lag(loaded):
    exported = scrape(loaded)
    purged = exported.value("bolide_expiry_purged_items_total", container="d/c")
    assert purged == 20
    assert exported.value("bolide_expiry_purge_lag_seconds_count") == purged
    assert exported.value("bolide_expiry_purge_lag_seconds_sum") >= 0
    assert exported.value("bolide_expiry_backlog_items", container="d/c") == 0
    assert exported.value("bolide_expiry_oldest_overdue_seconds", container="d/c") == 0
    assert exported.value("bolide_expiry_scheduled_items_total", horizon="minute") == 20
    assert exported.value("bolide_expiry_scheduled_items_total", horizon="hour") == 1


@needs_faults
def test_what_is_overdue_is_counted_while_purging_is_paused(faulty_node):
    node = faulty_node()
    items = node.client().create_database("d").create_container("c", PartitionKey("/pk"), default_ttl=-1)
    for number in range(10):
        items.create_item({"id": str(number), "pk": "p", "ttl": 300})
    items.create_item({"id": "kept", "pk": "p", "ttl": 7200})
    node.wall_clock.write_text("600")
    wait_until(lambda: node.metric("bolide_expiry_paused") == 1, "purging is paused")
    exported = scrape(node)
    assert exported.value("bolide_clock_jumps_total") == 1
    assert exported.value("bolide_expiry_backlog_items", container="d/c") == 10
    assert 295 < exported.value("bolide_expiry_oldest_overdue_seconds", container="d/c") < 400
    assert node.order("/clock/confirm").status == 200
    wait_until(lambda: node.metric("bolide_expiry_backlog_items") == 0, "what is overdue is purged")
    exported = scrape(node)
    assert exported.value("bolide_expiry_paused") == 0
    assert exported.value("bolide_expiry_oldest_overdue_seconds") == 0
    late = exported.value("bolide_expiry_purge_lag_seconds_count") - exported.value(
        "bolide_expiry_purge_lag_seconds_bucket", le="60"
    )
    assert late == 10, "the lag of each item is in the histogram"


def test_storage_tells_commits_bytes_and_shards(loaded):
    exported = scrape(loaded)
    commands = exported.value("bolide_commit_commands_total")
    assert commands == exported.value("bolide_commit_batch_commands_sum") >= 22
    fsyncs = exported.value("bolide_commit_fsyncs_total")
    assert fsyncs == exported.value("bolide_commit_fsync_seconds_count") == exported.value("bolide_commit_batch_bytes_count")
    assert exported.value("bolide_commit_duration_seconds_sum") > exported.value("bolide_commit_fsync_seconds_sum") > 0
    assert exported.value("bolide_storage_documents", container="d/c") == 1
    assert exported.value("bolide_storage_bytes", container="d/c", kind="items") > 100
    assert exported.value("bolide_storage_bytes", container="d/c", kind="journal") > 1_000
    assert exported.value("bolide_shards", container="d/c", state="serving") == 1
    assert exported.value("bolide_shards", state="poisoned") == 0
    assert exported.value("bolide_shard_recovery_seconds", container="d/c") > 0
    assert exported.value("bolide_shard_restarts_total") == 0


def test_the_process_and_the_build_are_told(loaded):
    exported = scrape(loaded)
    assert 0 < exported.value("process_cpu_seconds_total") < 600
    assert exported.value("process_resident_memory_bytes") > 1_000_000
    assert 10 < exported.value("process_open_fds") <= exported.value("process_max_fds")
    assert abs(time.time() - exported.value("process_start_time_seconds")) < 600
    version = loaded.health("/status").json["version"]
    assert exported.value("bolide_build_info", version=version) == 1


def test_a_removed_container_is_told_of_no_more(new_node):
    node = new_node()
    database = node.client().create_database("d")
    database.create_container("gone", PartitionKey("/pk"))
    assert scrape(node).value("bolide_shards", container="d/gone") == 1
    database.delete_container("gone")
    assert scrape(node).value("bolide_shards", container="d/gone") is None


@needs_faults
def test_a_poisoned_shard_is_told(faulty_node):
    node = faulty_node()
    items = node.client().create_database("d").create_container("c", PartitionKey("/pk"))
    items.create_item({"id": "before", "pk": "p"})
    node.trigger.write_text("sync /shards/")
    headers = {"x-ms-documentdb-partitionkey": '["p"]'}
    assert node.raw("POST", "/dbs/d/colls/c/docs", headers, {"id": "failed", "pk": "p"}).status == 503
    exported = scrape(node)
    assert exported.value("bolide_shards", container="d/c", state="poisoned") == 1
    assert exported.value("bolide_shards", container="d/c", state="serving") == 0
    assert exported.value("bolide_requests_total", container="d/c", operation="create", status="503") == 1
