"""Offers: throughput by hand and by autoscale, read and replaced; and how many shards it gives."""

import pytest
from azure.cosmos import PartitionKey, ThroughputProperties, exceptions


def ranges(node, container):
    answer = node.raw("GET", f"/{container.container_link}/pkranges")
    assert answer.status == 200, answer
    return answer


def test_container_without_a_word_gets_400(new_container):
    assert new_container().get_throughput().offer_throughput == 400


def test_manual_throughput_is_kept_and_replaced(new_container):
    container = new_container(offer_throughput=500)
    assert container.get_throughput().offer_throughput == 500
    assert container.replace_throughput(1200).offer_throughput == 1200
    assert container.get_throughput().offer_throughput == 1200


def test_autoscale_is_kept_and_replaced(new_container):
    container = new_container(offer_throughput=ThroughputProperties(auto_scale_max_throughput=4000, auto_scale_increment_percent=1))
    throughput = container.get_throughput()
    assert throughput.auto_scale_max_throughput == 4000
    assert throughput.auto_scale_increment_percent == 1
    container.replace_throughput(ThroughputProperties(auto_scale_max_throughput=7000, auto_scale_increment_percent=20))
    throughput = container.get_throughput()
    assert throughput.auto_scale_max_throughput == 7000
    assert throughput.auto_scale_increment_percent == 20


def test_database_throughput_is_shared_by_containers_without_their_own(client):
    database = client.create_database("with-throughput", offer_throughput=600)
    try:
        assert database.get_throughput().offer_throughput == 600
        assert database.replace_throughput(800).offer_throughput == 800
        shared = database.create_container("shared", PartitionKey("/pk"))
        with pytest.raises(exceptions.CosmosResourceNotFoundError):
            shared.get_throughput()
        own = database.create_container("own", PartitionKey("/pk"), offer_throughput=900)
        assert own.get_throughput().offer_throughput == 900
    finally:
        client.delete_database(database.id)


def test_database_without_throughput_has_no_offer(database):
    with pytest.raises(exceptions.CosmosResourceNotFoundError):
        database.get_throughput()


@pytest.mark.parametrize("throughput", [0, 399, 450, -400])
def test_throughput_out_of_bounds_is_400(shared_database, throughput):
    with pytest.raises(exceptions.CosmosHttpResponseError) as error:
        shared_database.create_container("too-little", PartitionKey("/pk"), offer_throughput=throughput)
    assert error.value.status_code == 400
    assert str(throughput) in error.value.message


def test_replaced_throughput_out_of_bounds_is_400_and_changes_nothing(new_container):
    container = new_container(offer_throughput=500)
    with pytest.raises(exceptions.CosmosHttpResponseError) as error:
        container.replace_throughput(100)
    assert error.value.status_code == 400
    assert container.get_throughput().offer_throughput == 500


def test_offer_resource_names_its_container(node, new_container):
    container = new_container(offer_throughput=500)
    properties = container.read()
    offers = node.raw("GET", "/offers").json["Offers"]
    [offer] = [each for each in offers if each["offerResourceId"] == properties["_rid"]]
    assert offer["resource"] == properties["_self"]
    assert offer["offerVersion"] == "V2"
    assert offer["content"]["offerThroughput"] == 500
    assert offer["id"] == offer["_rid"]
    read = node.raw("GET", f"/offers/{offer['_rid']}")
    assert read.json == offer


def test_offer_goes_with_its_container(node, database):
    rid = database.create_container("c", PartitionKey("/pk"), offer_throughput=500).read()["_rid"]
    database.delete_container("c")
    assert rid not in [each["offerResourceId"] for each in node.raw("GET", "/offers").json["Offers"]]


@pytest.mark.parametrize("throughput, shards", [(400, 1), (10_000, 1), (10_100, 2), (30_000, 3)])
def test_one_shard_for_each_10000_begun(node, new_container, throughput, shards):
    container = new_container(offer_throughput=throughput)
    found = ranges(node, container).json["PartitionKeyRanges"]
    assert len(found) == shards
    assert [each["id"] for each in found] == [str(n) for n in range(shards)]
    edges = [each["minInclusive"] for each in found] + [found[-1]["maxExclusive"]]
    assert edges[0] == "" and edges[-1] == "FF"
    assert edges == sorted(edges)
    for left, right in zip(found, found[1:]):
        assert left["maxExclusive"] == right["minInclusive"]
    assert all(each["status"] == "online" for each in found)
    assert len(list(container.read_feed_ranges())) == shards


def test_ranges_are_304_for_whoever_has_them(node, container):
    first = ranges(node, container)
    again = node.raw(
        "GET", f"/{container.container_link}/pkranges",
        headers={"a-im": "Incremental Feed", "if-none-match": first.headers["etag"], "x-ms-max-item-count": "-1"},
    )  # fmt: skip
    assert again.status == 304
    assert again.headers["etag"] == first.headers["etag"]
    assert again.body == b""


def test_items_are_spread_over_all_shards_and_found_again(node, new_container):
    container = new_container(offer_throughput=30_000)
    served_by = set()
    for n in range(30):
        item = container.create_item({"id": str(n), "pk": f"key {n}"})
        served_by.add(item.get_response_headers()["x-ms-documentdb-partitionkeyrangeid"])
    assert served_by == {"0", "1", "2"}
    for n in range(30):
        assert container.read_item(str(n), f"key {n}")["id"] == str(n)
    assert sorted(int(each["id"]) for each in container.read_all_items()) == list(range(30))


def test_unknown_range_is_410_with_sub_status_1002(node, container):
    answer = node.raw("GET", f"/{container.container_link}/docs", headers={"x-ms-documentdb-partitionkeyrangeid": "77"})
    assert (answer.status, answer.substatus) == (410, 1002), answer
