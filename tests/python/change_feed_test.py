"""The change feed, latest version: each changed item once, in order, from where the reader says."""

from datetime import datetime, timedelta, timezone
from email.utils import formatdate

import pytest
from azure.cosmos import exceptions

from node import wait_until


def item(n, pk="p", **more):
    return {"id": str(n), "pk": pk, **more}


def ids(changes):
    return [each["id"] for each in changes]


def read(container, **options):
    """All changes there are, and the continuation from which to go on."""
    changes = list(container.query_items_change_feed(**options))
    return changes, container.client_connection.last_response_headers["etag"]


def test_changes_come_in_order_each_once_at_its_latest_version(container):
    for n in range(4):
        container.create_item(item(n, version=1))
    container.replace_item("1", item(1, version=2))
    container.upsert_item(item(0, version=2))
    container.patch_item("1", "p", [{"op": "incr", "path": "/version", "value": 1}])
    changes = list(container.query_items_change_feed(start_time="Beginning"))
    assert ids(changes) == ["2", "3", "0", "1"]
    assert [each["version"] for each in changes] == [1, 1, 2, 3]
    lsns = [each["_lsn"] for each in changes]
    assert lsns == sorted(lsns)
    assert changes[3] == {**container.read_item("1", "p"), "_lsn": lsns[3]}


def test_deleted_items_are_not_in_it(container):
    for n in range(3):
        container.create_item(item(n))
    container.delete_item("1", "p")
    assert ids(container.query_items_change_feed(start_time="Beginning")) == ["0", "2"]


def test_now_sees_only_later_changes(container):
    container.create_item(item(0))
    changes, token = read(container, start_time="Now")
    assert changes == []
    container.create_item(item(1))
    assert ids(container.query_items_change_feed(continuation=token)) == ["1"]


def test_continuation_gives_what_is_new_since(container):
    token = None
    for round_ in range(3):
        container.create_item(item(round_))
        options = {"continuation": token} if token else {"start_time": "Beginning"}
        changes, token = read(container, **options)
        assert ids(changes) == [str(round_)]
    assert ids(container.query_items_change_feed(continuation=token)) == []


def test_pages_are_as_small_as_asked(container):
    for n in range(10):
        container.create_item(item(n))
    pages = [list(page) for page in container.query_items_change_feed(start_time="Beginning", max_item_count=3).by_page()]
    assert all(len(page) <= 3 for page in pages)
    assert ids(each for page in pages for each in page) == [str(n) for n in range(10)]


def test_changes_of_one_batch_come_together(container):
    container.execute_item_batch([("create", (item(n),)) for n in range(5)], "p")
    changes = list(container.query_items_change_feed(start_time="Beginning"))
    assert sorted(ids(changes)) == [str(n) for n in range(5)]
    assert len({each["_lsn"] for each in changes}) == 1


def test_by_partition_key(new_container):
    container = new_container(offer_throughput=30_000)
    for n in range(12):
        container.create_item(item(n, pk=f"key {n % 4}"))
    changes = container.query_items_change_feed(partition_key="key 2", start_time="Beginning")
    assert ids(changes) == ["2", "6", "10"]


def test_by_feed_range_the_parts_make_the_whole(new_container):
    container = new_container(offer_throughput=30_000)
    for n in range(30):
        container.create_item(item(n, pk=f"key {n}"))
    ranges = list(container.read_feed_ranges())
    parts = [ids(container.query_items_change_feed(feed_range=each, start_time="Beginning")) for each in ranges]
    assert len(parts) == 3 and all(parts)
    assert all(part == sorted(part, key=int) for part in parts)
    assert sorted((n for part in parts for n in part), key=int) == [str(n) for n in range(30)]
    whole = ids(container.query_items_change_feed(start_time="Beginning"))
    assert sorted(whole, key=int) == [str(n) for n in range(30)]


def test_continuation_of_many_ranges(new_container):
    container = new_container(offer_throughput=30_000)
    seen = []
    token = None
    for n in range(30):
        container.create_item(item(n, pk=f"key {n}"))
        if n % 10 == 9:
            options = {"continuation": token} if token else {"start_time": "Beginning"}
            changes, token = read(container, max_item_count=2, **options)
            seen += ids(changes)
    assert sorted(seen, key=int) == [str(n) for n in range(30)]


def test_start_time_leaves_out_what_is_older(container):
    old = container.create_item(item("old"))

    # _ts has whole seconds
    def in_a_later_second():
        made = container.upsert_item(item("new"))
        return made["_ts"] > old["_ts"] and made

    new = wait_until(in_a_later_second, "a write in a later second", pause=0.1)
    start = datetime.fromtimestamp(new["_ts"], timezone.utc)
    assert ids(container.query_items_change_feed(start_time=start)) == ["new"]
    assert ids(container.query_items_change_feed(start_time=start - timedelta(days=1))) == ["old", "new"]
    assert ids(container.query_items_change_feed(start_time=start + timedelta(days=1))) == []


# the wire


def feed(node, container, **headers):
    every = {"a-im": "Incremental Feed", **{name.replace("_", "-"): value for name, value in headers.items()}}
    return node.raw("GET", f"/{container.container_link}/docs", headers=every)


RANGE = {"x_ms_documentdb_partitionkeyrangeid": "0"}


def test_nothing_new_is_304_with_an_etag(node, container):
    empty = feed(node, container, **RANGE)
    assert empty.status == 304
    assert empty.body == b""
    assert empty.headers["etag"]
    assert empty.headers["x-ms-session-token"]
    container.create_item(item(1))
    full = feed(node, container, if_none_match=empty.headers["etag"], **RANGE)
    assert full.status == 200
    assert ids(full.json["Documents"]) == ["1"]
    after = feed(node, container, if_none_match=full.headers["etag"], **RANGE)
    assert after.status == 304
    assert feed(node, container, if_none_match="*", **RANGE).status == 304


def test_etag_wins_over_the_start_time(node, container):
    container.create_item(item(1))
    first = feed(node, container, **RANGE)
    again = feed(
        node, container, if_none_match=first.headers["etag"], if_modified_since=formatdate(0, usegmt=True), **RANGE
    )
    assert again.status == 304


def test_neither_key_nor_range_of_several_is_400(node, new_container):
    answer = feed(node, new_container(offer_throughput=20_000))
    assert answer.status == 400
    assert "no partition key or partition key range id was specified" in answer.message


def test_bad_etag_is_400(node, container):
    assert feed(node, container, if_none_match='"nonsense"', **RANGE).status == 400


def test_wire_format_wraps_the_items(node, container):
    container.create_item(item(1))
    answer = feed(node, container, x_ms_cosmos_changefeed_wire_format_version="2021-09-15", **RANGE)
    [change] = answer.json["Documents"]
    assert change["current"]["id"] == "1"
    assert change["metadata"]["lsn"] > 0
    assert change["metadata"]["crts"] == change["current"]["_ts"]


def test_all_versions_from_the_beginning_is_refused(container):
    with pytest.raises((exceptions.CosmosHttpResponseError, ValueError)):
        list(container.query_items_change_feed(start_time="Beginning", mode="AllVersionsAndDeletes"))


def test_one_range_need_not_be_named(container):
    container.create_item({"id": "1", "pk": "p"})
    changes = container.query_items_change_feed(partition_key_range_id="0", is_start_from_beginning=True)
    assert [each["id"] for each in changes] == ["1"]
