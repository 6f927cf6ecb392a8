"""Containers: create, read, list, replace, delete; which properties are kept and which are refused."""

import pytest
from azure.cosmos import PartitionKey, exceptions


def refused(make, *fragments):
    """The creation is a 400 whose message holds every fragment."""
    with pytest.raises(exceptions.CosmosHttpResponseError) as error:
        make()
    assert error.value.status_code == 400, error.value
    for fragment in fragments:
        assert str(fragment) in error.value.message
    return error.value


def create_raw(node, database, definition):
    return node.raw("POST", f"/dbs/{database.id}/colls", body=definition)


def test_defaults_are_filled_in(database):
    _, properties = database.create_container("c", PartitionKey("/pk"), return_properties=True)
    database_rid = database.read()["_rid"]
    assert properties["id"] == "c"
    assert properties["partitionKey"] == {"paths": ["/pk"], "kind": "Hash", "version": 2}
    assert properties["indexingPolicy"] == {
        "indexingMode": "consistent",
        "automatic": True,
        "includedPaths": [{"path": "/*"}],
        "excludedPaths": [{"path": '/"_etag"/?'}],
    }
    assert properties["uniqueKeyPolicy"] == {"uniqueKeys": []}
    assert properties["conflictResolutionPolicy"]["mode"] == "LastWriterWins"
    assert properties["conflictResolutionPolicy"]["conflictResolutionPath"] == "/_ts"
    assert properties["geospatialConfig"] == {"type": "Geography"}
    assert "defaultTtl" not in properties
    assert properties["_self"] == f"dbs/{database_rid}/colls/{properties['_rid']}/"
    assert properties["_docs"] == "docs/"
    assert properties["_sprocs"] == "sprocs/"
    assert properties["_conflicts"] == "conflicts/"
    assert isinstance(properties["_ts"], int)
    assert database.get_container_client("c").read() == properties


def test_all_given_properties_come_back(database):
    policy = {
        "indexingMode": "consistent",
        "automatic": True,
        "includedPaths": [{"path": "/*"}],
        "excludedPaths": [{"path": "/big/*"}, {"path": '/"_etag"/?'}],
        "compositeIndexes": [[{"path": "/a", "order": "ascending"}, {"path": "/b", "order": "descending"}]],
        "spatialIndexes": [{"path": "/loc/*", "types": ["Point", "Polygon"]}],
    }
    container = database.create_container(
        "c", PartitionKey("/pk"), indexing_policy=policy, default_ttl=3600,
        unique_key_policy={"uniqueKeys": [{"paths": ["/email"]}, {"paths": ["/a", "/b/c"]}]},
        conflict_resolution_policy={"mode": "LastWriterWins", "conflictResolutionPath": "/rank"},
        analytical_storage_ttl=-1,
        computed_properties=[{"name": "lower", "query": "SELECT VALUE LOWER(c.x) FROM c"}],
    )  # fmt: skip
    properties = container.read()
    assert properties["indexingPolicy"] == policy
    assert properties["defaultTtl"] == 3600
    assert properties["uniqueKeyPolicy"]["uniqueKeys"] == [{"paths": ["/email"]}, {"paths": ["/a", "/b/c"]}]
    assert properties["conflictResolutionPolicy"]["conflictResolutionPath"] == "/rank"
    assert properties["analyticalStorageTtl"] == -1
    assert properties["computedProperties"] == [{"name": "lower", "query": "SELECT VALUE LOWER(c.x) FROM c"}]


def test_create_of_an_existing_one_is_409(database):
    database.create_container("c", PartitionKey("/pk"))
    with pytest.raises(exceptions.CosmosResourceExistsError):
        database.create_container("c", PartitionKey("/other"))
    assert database.get_container_client("c").read()["partitionKey"]["paths"] == ["/pk"]


def test_create_if_not_exists_finds_it_the_second_time(database):
    first = database.create_container_if_not_exists("c", PartitionKey("/pk")).read()
    assert database.create_container_if_not_exists("c", PartitionKey("/pk")).read() == first


def test_list_and_query_find_them(database):
    for name in ["one", "two", "three"]:
        database.create_container(name, PartitionKey("/pk"))
    assert sorted(each["id"] for each in database.list_containers()) == ["one", "three", "two"]
    found = database.query_containers(
        "SELECT * FROM root r WHERE r.id=@id", parameters=[{"name": "@id", "value": "two"}]
    )
    assert [each["id"] for each in found] == ["two"]


def test_deleted_one_takes_its_items_along(database):
    container = database.create_container("c", PartitionKey("/pk"))
    container.create_item({"id": "1", "pk": "p"})
    first_rid = container.read()["_rid"]
    database.delete_container("c")
    with pytest.raises(exceptions.CosmosResourceNotFoundError):
        container.read()
    again = database.create_container("c", PartitionKey("/pk"))
    assert again.read()["_rid"] != first_rid
    assert list(again.read_all_items()) == []


def test_deleted_database_takes_its_containers_along(client):
    database = client.create_database("with-containers")
    database.create_container("c", PartitionKey("/pk")).create_item({"id": "1", "pk": "p"})
    client.delete_database(database.id)
    database = client.create_database("with-containers")
    assert list(database.list_containers()) == []
    client.delete_database(database.id)


@pytest.mark.parametrize("name", ["docs", "with space", "ünïcödé €", "a+b%20", "x" * 255])
def test_unusual_names_work(database, name):
    container = database.create_container(name, PartitionKey("/pk"))
    container.create_item({"id": "1", "pk": "p"})
    assert container.read_item("1", "p")["pk"] == "p"


@pytest.mark.parametrize("name", ["a/b", "a\\b", "a?b", "a#b", "trailing ", "x" * 256, "", 5, None])
def test_bad_names_are_400(node, database, name):
    assert create_raw(node, database, {"id": name, "partitionKey": {"paths": ["/pk"]}}).status == 400


# partition key definitions


def test_definition_without_kind_and_version_says_which_version_it_uses(node, database):
    answer = create_raw(node, database, {"id": "c", "partitionKey": {"paths": ["/pk"]}})
    assert answer.status == 201, answer
    assert answer.json["partitionKey"]["kind"] == "Hash"
    assert answer.json["partitionKey"]["version"] in (1, 2)


def test_hash_version_1_is_kept(node, database):
    answer = create_raw(node, database, {"id": "c", "partitionKey": {"paths": ["/pk"], "kind": "Hash", "version": 1}})
    assert answer.status == 201, answer
    assert answer.json["partitionKey"] == {"paths": ["/pk"], "kind": "Hash", "version": 1}


@pytest.mark.parametrize(
    "definition, fragment",
    [
        ({"paths": ["/a", "/b"], "kind": "Hash", "version": 2}, "Too many partition key paths"),
        ({"paths": ["/a", "/b", "/c", "/d"], "kind": "MultiHash", "version": 2}, "Too many partition key paths"),
        ({"paths": ["/a", "/b"], "kind": "MultiHash", "version": 1}, "ersion"),
        ({"paths": [], "kind": "Hash", "version": 2}, "path"),
        ({"paths": ["pk"], "kind": "Hash", "version": 2}, "pk"),
        ({"paths": ["/pk/"], "kind": "Hash", "version": 2}, "/pk/"),
        ({"paths": ["/*"], "kind": "Hash", "version": 2}, "/*"),
        ({"paths": ["/pk/?"], "kind": "Hash", "version": 2}, "/pk/?"),
        ({"paths": ["/pk"], "kind": "Odd", "version": 2}, "Odd"),
        ({"paths": ["/pk"], "kind": "Hash", "version": 3}, "3"),
        ({"paths": "/pk"}, "paths"),
        ("/pk", "/pk"),
    ],
)
def test_bad_partition_key_definitions_are_400(node, database, definition, fragment):
    answer = create_raw(node, database, {"id": "c", "partitionKey": definition})
    assert answer.status == 400, answer
    assert fragment in answer.message


# other validation


@pytest.mark.parametrize(
    "policy",
    [
        {"indexingMode": "sometimes"},
        {"indexingMode": "consistent", "includedPaths": [{"path": "no-slash"}]},
        {"indexingMode": "consistent", "includedPaths": [{"path": "/*"}], "excludedPaths": [{"path": "/*"}]},
        {"indexingMode": "consistent", "compositeIndexes": [[{"path": "/a", "order": "sideways"}]]},
        {"indexingMode": "consistent", "spatialIndexes": [{"path": "/loc/*", "types": ["Blob"]}]},
        {"automatic": "yes"},
    ],
)
def test_bad_indexing_policies_are_400(database, policy):
    refused(lambda: database.create_container("c", PartitionKey("/pk"), indexing_policy=policy))
    assert list(database.list_containers()) == []


@pytest.mark.parametrize(
    "unique_keys",
    [
        [{"paths": []}],
        [{"paths": ["email"]}],
        [{"paths": [f"/p{n}" for n in range(17)]}],
        [{"paths": [f"/p{n}"]} for n in range(11)],
    ],
)
def test_bad_unique_key_policies_are_400(database, unique_keys):
    refused(
        lambda: database.create_container("c", PartitionKey("/pk"), unique_key_policy={"uniqueKeys": unique_keys})
    )


@pytest.mark.parametrize("body", ["null", "[]", "5", "{}", '{"id":"c"', '{"id":"c","id":"d"}'])
def test_bodies_that_are_no_container_are_400(node, database, body):
    assert node.raw("POST", f"/dbs/{database.id}/colls", body=body).status == 400


def test_container_in_a_missing_database_is_404_with_sub_status_1003(node):
    for method, path in [("POST", "/dbs/missing/colls"), ("GET", "/dbs/missing/colls/c")]:
        body = {"id": "c", "partitionKey": {"paths": ["/pk"]}} if method == "POST" else None
        answer = node.raw(method, path, body=body)
        assert (answer.status, answer.substatus) == (404, 1003), answer


# replace


def test_replace_keeps_identity_and_changes_etag(database):
    container = database.create_container("c", PartitionKey("/pk"))
    before = container.read()
    policy = {"indexingMode": "consistent", "automatic": True, "includedPaths": [{"path": "/a/?"}],
              "excludedPaths": [{"path": "/*"}, {"path": '/"_etag"/?'}]}  # fmt: skip
    _, after = database.replace_container(
        container, PartitionKey("/pk"), indexing_policy=policy, default_ttl=60, return_properties=True
    )
    assert after["_rid"] == before["_rid"]
    assert after["_self"] == before["_self"]
    assert after["_etag"] != before["_etag"]
    assert after["indexingPolicy"] == policy
    assert after["defaultTtl"] == 60
    assert container.read() == after


def test_replace_resets_what_is_left_out_but_keeps_unique_keys(database):
    keys = {"uniqueKeys": [{"paths": ["/email"]}]}
    container = database.create_container("c", PartitionKey("/pk"), default_ttl=60, unique_key_policy=keys)
    database.replace_container(container, PartitionKey("/pk"))
    properties = container.read()
    assert "defaultTtl" not in properties
    assert properties["uniqueKeyPolicy"] == keys
    container.create_item({"id": "1", "pk": "p", "email": "e"})
    with pytest.raises(exceptions.CosmosResourceExistsError):
        container.create_item({"id": "2", "pk": "p", "email": "e"})


def test_partition_key_cannot_be_replaced(database):
    container = database.create_container("c", PartitionKey("/pk"))
    refused(lambda: database.replace_container(container, PartitionKey("/other")))
    assert container.read()["partitionKey"]["paths"] == ["/pk"]


def test_unique_keys_cannot_be_replaced(node, database):
    database.create_container("c", PartitionKey("/pk"), unique_key_policy={"uniqueKeys": [{"paths": ["/email"]}]})
    answer = node.raw("PUT", f"/dbs/{database.id}/colls/c", body={
        "id": "c", "partitionKey": {"paths": ["/pk"], "kind": "Hash", "version": 2},
        "uniqueKeyPolicy": {"uniqueKeys": [{"paths": ["/other"]}]},
    })  # fmt: skip
    assert answer.status == 403, answer


def test_replace_honours_if_match(node, database):
    container = database.create_container("c", PartitionKey("/pk"))
    before = container.read()
    definition = {"id": "c", "partitionKey": before["partitionKey"], "defaultTtl": 60}
    path = f"/dbs/{database.id}/colls/c"
    assert node.raw("PUT", path, body=definition, headers={"if-match": before["_etag"]}).status == 200
    assert node.raw("PUT", path, body=definition, headers={"if-match": before["_etag"]}).status == 412


def test_replace_of_a_missing_one_is_404(database):
    with pytest.raises(exceptions.CosmosResourceNotFoundError):
        database.replace_container("missing", PartitionKey("/pk"))


def test_replace_with_another_id_is_400(node, database):
    database.create_container("c", PartitionKey("/pk"))
    body = {"id": "d", "partitionKey": {"paths": ["/pk"], "kind": "Hash", "version": 2}}
    assert node.raw("PUT", f"/dbs/{database.id}/colls/c", body=body).status == 400


def test_quota_and_index_progress_on_request(database):
    container = database.create_container("c", PartitionKey("/pk"))
    headers = {}
    container.read(populate_quota_info=True, response_hook=lambda got, _: headers.update(got))
    assert headers["x-ms-documentdb-collection-index-transformation-progress"] == "100"
    assert "x-ms-documentdb-collection-lazy-indexing-progress" not in headers
    assert "documentsCount=" in headers["x-ms-resource-usage"]
    assert "collectionSize=" in headers["x-ms-resource-quota"]


def test_client_with_a_stale_container_is_told(node, database):
    stale = database.create_container("c", PartitionKey("/pk")).read()["_rid"]
    database.delete_container("c")
    database.create_container("c", PartitionKey("/pk"))
    answer = node.raw(
        "GET", f"/dbs/{database.id}/colls/c/docs/x",
        headers={"x-ms-documentdb-partitionkey": '["p"]', "x-ms-cosmos-intended-collection-rid": stale},
    )  # fmt: skip
    assert (answer.status, answer.substatus) == (400, 1024), answer


def test_statistics_of_ranges_on_request(database):
    container = database.create_container("counted", PartitionKey("/pk"), offer_throughput=20_000)
    for number in range(10):
        container.create_item({"id": str(number), "pk": number})
    assert "statistics" not in container.read()
    statistics = container.read(populate_partition_key_range_statistics=True)["statistics"]
    assert [each["id"] for each in statistics] == ["0", "1"]
    assert sum(each["documentCount"] for each in statistics) == 10


def test_there_are_no_conflicts_to_read(container):
    for attempt in (container.get_conflict, container.delete_conflict):
        with pytest.raises(exceptions.CosmosResourceNotFoundError):
            attempt("nothing", partition_key="p")
    query = "SELECT * FROM c"
    assert list(container.query_conflicts(query, partition_key="p")) == []
    with pytest.raises(exceptions.CosmosHttpResponseError) as refused:
        list(container.query_conflicts(query))
    assert refused.value.status_code == 400
