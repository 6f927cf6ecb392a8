"""Single items: create, upsert, read, replace, delete; system properties, etags, minimal answers, charges."""

import json
import re

import pytest
from azure.core import MatchConditions
from azure.cosmos import exceptions
from azure.cosmos.partition_key import NonePartitionKeyValue


def docs(container, item_id=None):
    path = f"/{container.container_link}/docs"
    return path if item_id is None else f"{path}/{item_id}"


def key_header(*values):
    return {"x-ms-documentdb-partitionkey": json.dumps(list(values))}


def test_create_returns_the_item_with_system_properties(container):
    item = container.create_item({"id": "1", "pk": "p", "n": 5, "nested": {"a": [1, None, True, "x"]}})
    rid = container.read()["_rid"]
    assert item["n"] == 5
    assert item["nested"] == {"a": [1, None, True, "x"]}
    assert item["_self"].startswith("dbs/") and f"/colls/{rid}/docs/{item['_rid']}/" in item["_self"]
    assert item["_attachments"] == "attachments/"
    assert item["_etag"].startswith('"') and item["_etag"].endswith('"')
    assert isinstance(item["_ts"], int)
    assert item.get_response_headers()["etag"] == item["_etag"]
    assert container.read_item("1", "p") == item


def test_properties_keep_their_order_and_content(node, container):
    text = '{"z":1,"id":"1","a":"ä€😀\\u0000\\n","pk":"p","long":9007199254740991,"tiny":1.5e-7,"empty":{},"none":[]}'
    assert node.raw("POST", docs(container), headers=key_header("p"), body=text).status == 201
    read = node.raw("GET", docs(container, "1"), headers=key_header("p"))
    names = list(read.json)
    assert names[:8] == ["z", "id", "a", "pk", "long", "tiny", "empty", "none"]
    assert {name: read.json[name] for name in names[:8]} == json.loads(text)


def test_system_properties_of_the_caller_are_overwritten(container):
    item = container.create_item(
        {"id": "1", "pk": "p", "_rid": "mine", "_ts": 1, "_etag": "mine", "_self": "mine", "_attachments": "mine"}
    )
    assert item["_ts"] > 1
    assert "mine" not in [item["_rid"], item["_etag"], item["_self"], item["_attachments"]]


def test_create_of_an_existing_id_is_409_in_its_partition_only(container):
    container.create_item({"id": "1", "pk": "p", "n": 1})
    with pytest.raises(exceptions.CosmosResourceExistsError) as error:
        container.create_item({"id": "1", "pk": "p", "n": 2})
    assert "1" in error.value.message
    assert container.read_item("1", "p")["n"] == 1
    container.create_item({"id": "1", "pk": "other", "n": 3})
    assert container.read_item("1", "other")["n"] == 3


def test_upsert_creates_with_201_and_replaces_with_200(node, container):
    headers = {**key_header("p"), "x-ms-documentdb-is-upsert": "True"}
    first = node.raw("POST", docs(container), headers=headers, body={"id": "1", "pk": "p", "n": 1})
    assert first.status == 201
    second = node.raw("POST", docs(container), headers=headers, body={"id": "1", "pk": "p", "n": 2})
    assert second.status == 200
    assert second.json["_rid"] == first.json["_rid"]
    assert second.json["_etag"] != first.json["_etag"]
    assert container.upsert_item({"id": "1", "pk": "p", "n": 3})["n"] == 3
    assert container.read_item("1", "p")["n"] == 3


def test_replace_changes_the_whole_item_and_keeps_its_identity(container):
    before = container.create_item({"id": "1", "pk": "p", "a": 1, "b": 2})
    after = container.replace_item("1", {"id": "1", "pk": "p", "a": 5})
    assert "b" not in after
    assert after["_rid"] == before["_rid"]
    assert after["_self"] == before["_self"]
    assert after["_etag"] != before["_etag"]
    assert container.read_item("1", "p") == after


def test_replace_of_a_missing_item_is_404(container):
    with pytest.raises(exceptions.CosmosResourceNotFoundError):
        container.replace_item("1", {"id": "1", "pk": "p"})


def test_replace_without_an_id_is_400(node, container):
    container.create_item({"id": "1", "pk": "p"})
    answer = node.raw("PUT", docs(container, "1"), headers=key_header("p"), body={"pk": "p"})
    assert answer.status == 400, answer
    assert [each["id"] for each in container.read_all_items()] == ["1"]


def test_replace_may_change_the_id_to_a_free_one(new_container):
    container = new_container(unique_key_policy={"uniqueKeys": [{"paths": ["/u"]}]})
    container.create_item({"id": "1", "pk": "p", "u": 1})
    container.create_item({"id": "taken", "pk": "p", "u": 2})
    with pytest.raises(exceptions.CosmosResourceExistsError):
        container.replace_item("1", {"id": "taken", "pk": "p", "u": 1})
    with pytest.raises(exceptions.CosmosResourceExistsError):
        container.replace_item("1", {"id": "2", "pk": "p", "u": 2})
    assert sorted(each["id"] for each in container.read_all_items()) == ["1", "taken"]
    renamed = container.replace_item("1", {"id": "2", "pk": "p", "u": 1})
    assert container.read_item("2", "p") == renamed
    assert sorted(each["id"] for each in container.query_items("SELECT * FROM c", partition_key="p")) == ["2", "taken"]
    with pytest.raises(exceptions.CosmosResourceNotFoundError):
        container.read_item("1", "p")
    batch = [("replace", ("2", {"id": "3", "pk": "p", "u": 1})), ("read", ("3",))]
    assert [each["statusCode"] for each in container.execute_item_batch(batch, "p")] == [200, 200]
    container.create_item({"id": "1", "pk": "p", "u": 3})


@pytest.mark.parametrize("mode", ["consistent", "none"])
def test_items_are_found_by_their_self_link(new_container, mode):
    policy = {"indexingMode": mode, "automatic": mode != "none"}
    container = new_container(indexing_policy=policy)
    made = [container.create_item({"id": f"item {n}", "pk": "p", "n": n}) for n in range(5)]
    container.create_item({"id": "item 2", "pk": "q"})
    # The SDK takes the link of an item that it is given whole.
    assert container.read_item(made[2], "p") == made[2]
    assert container.replace_item(made[3], {"id": "item 3", "pk": "p", "n": 30})["_rid"] == made[3]["_rid"]
    patched = container.patch_item(made[3], "p", [{"op": "incr", "path": "/n", "value": 1}])
    assert patched["n"] == 31
    container.delete_item(made[2], "p")
    for gone in [made[2], {**made[1], "_self": made[1]["_self"].replace("/docs/", "/docs/B")}]:
        with pytest.raises(exceptions.CosmosHttpResponseError) as refused:
            container.read_item(gone, "p")
        assert refused.value.status_code in (401, 404)
    with pytest.raises(exceptions.CosmosResourceNotFoundError):
        container.read_item(made[1], "q")
    assert container.read_item("item 2", "q")["pk"] == "q"


def test_delete_removes_and_a_new_one_has_a_new_resource_id(node, container):
    first = container.create_item({"id": "1", "pk": "p"})
    answer = node.raw("DELETE", docs(container, "1"), headers=key_header("p"))
    assert answer.status == 204
    assert answer.body == b""
    with pytest.raises(exceptions.CosmosResourceNotFoundError):
        container.delete_item("1", "p")
    with pytest.raises(exceptions.CosmosResourceNotFoundError) as error:
        container.read_item("1", "p")
    assert "1" in error.value.message
    assert container.create_item({"id": "1", "pk": "p"})["_rid"] != first["_rid"]


def test_delete_all_items_by_partition_key(container):
    for n in range(5):
        container.create_item({"id": str(n), "pk": "gone"})
    container.create_item({"id": "1", "pk": "stays"})
    container.delete_all_items_by_partition_key("gone")
    assert [each["pk"] for each in container.read_all_items()] == ["stays"]


@pytest.mark.parametrize("item_id", ["docs", "a b", "a+b%20c", "ünïcödé €", "x" * 1023, "'\"", "=&;,"])
def test_unusual_ids_work(container, item_id):
    container.create_item({"id": item_id, "pk": "p"})
    assert container.read_item(item_id, "p")["id"] == item_id
    container.replace_item(item_id, {"id": item_id, "pk": "p", "n": 1})
    container.delete_item(item_id, "p")
    assert list(container.read_all_items()) == []


def test_id_made_by_the_sdk(container):
    item = container.create_item({"pk": "p"}, enable_automatic_id_generation=True)
    assert container.read_item(item["id"], "p") == item


# partition keys


@pytest.mark.parametrize(
    "key, body",
    [
        ("text", {"pk": "text"}),
        ("", {"pk": ""}),
        (5, {"pk": 5}),
        (5, {"pk": 5.0}),
        (-1.5, {"pk": -1.5}),
        (True, {"pk": True}),
        (False, {"pk": False}),
        (None, {"pk": None}),
        ("ä€😀", {"pk": "ä€😀"}),
        (NonePartitionKeyValue, {}),
    ],
)
def test_every_kind_of_partition_key_value(new_container, key, body):
    container = new_container(offer_throughput=30_000)
    container.create_item({"id": "1", **body})
    assert container.read_item("1", key)["id"] == "1"
    container.upsert_item({"id": "1", **body, "n": 1})
    assert container.read_item("1", key)["n"] == 1
    container.delete_item("1", key)
    assert list(container.read_all_items()) == []


def test_null_and_missing_partition_keys_are_different(container):
    container.create_item({"id": "1", "pk": None, "which": "null"})
    container.create_item({"id": "1", "which": "missing"})
    assert container.read_item("1", None)["which"] == "null"
    assert container.read_item("1", NonePartitionKeyValue)["which"] == "missing"


def test_nested_partition_key_path(new_container):
    container = new_container("/a/b")
    container.create_item({"id": "1", "a": {"b": "deep"}})
    assert container.read_item("1", "deep")["a"] == {"b": "deep"}
    container.create_item({"id": "2", "a": "no object"})
    assert container.read_item("2", NonePartitionKeyValue)["a"] == "no object"


# conditions


def test_replace_and_delete_honour_if_match(container):
    first = container.create_item({"id": "1", "pk": "p", "n": 1})
    second = container.replace_item(
        "1", {"id": "1", "pk": "p", "n": 2}, etag=first["_etag"], match_condition=MatchConditions.IfNotModified
    )
    stale = {"etag": first["_etag"], "match_condition": MatchConditions.IfNotModified}
    for attempt in [
        lambda: container.replace_item("1", {"id": "1", "pk": "p", "n": 3}, **stale),
        lambda: container.upsert_item({"id": "1", "pk": "p", "n": 3}, **stale),
        lambda: container.patch_item("1", "p", [{"op": "set", "path": "/n", "value": 3}], **stale),
        lambda: container.delete_item("1", "p", **stale),
    ]:
        with pytest.raises(exceptions.CosmosAccessConditionFailedError) as error:
            attempt()
        assert error.value.status_code == 412
    assert container.read_item("1", "p") == second
    container.delete_item("1", "p", etag=second["_etag"], match_condition=MatchConditions.IfNotModified)


def test_if_match_star_wants_an_existing_item(container):
    container.create_item({"id": "1", "pk": "p"})
    container.replace_item("1", {"id": "1", "pk": "p", "n": 1}, match_condition=MatchConditions.IfPresent)
    container.delete_item("1", "p", match_condition=MatchConditions.IfPresent)
    with pytest.raises(exceptions.CosmosResourceNotFoundError):
        container.delete_item("1", "p", match_condition=MatchConditions.IfPresent)


def test_upsert_of_a_missing_item_with_if_match_inserts(node, container):
    headers = {**key_header("p"), "x-ms-documentdb-is-upsert": "True", "if-match": '"any"'}
    assert node.raw("POST", docs(container), headers=headers, body={"id": "1", "pk": "p"}).status == 201


def test_read_of_an_unchanged_item_is_304(node, container):
    item = container.create_item({"id": "1", "pk": "p"})
    unchanged = node.raw("GET", docs(container, "1"), headers={**key_header("p"), "if-none-match": item["_etag"]})
    assert unchanged.status == 304
    assert unchanged.body == b""
    assert unchanged.headers["etag"] == item["_etag"]
    changed = node.raw("GET", docs(container, "1"), headers={**key_header("p"), "if-none-match": '"older"'})
    assert changed.status == 200


# what answers carry


def test_no_response_saves_the_body(container):
    for answer in [
        container.create_item({"id": "1", "pk": "p"}, no_response=True),
        container.upsert_item({"id": "1", "pk": "p"}, no_response=True),
        container.replace_item("1", {"id": "1", "pk": "p"}, no_response=True),
        container.patch_item("1", "p", [{"op": "add", "path": "/n", "value": 1}], no_response=True),
    ]:
        assert dict(answer) == {}
        assert answer.get_response_headers()["etag"]
    assert container.read_item("1", "p")["n"] == 1


def test_every_answer_has_a_charge_and_an_activity(node, container):
    bodies = [("POST", docs(container), {"id": "1", "pk": "p"}), ("GET", docs(container, "1"), None),
              ("GET", docs(container, "missing"), None), ("POST", docs(container), {"id": "1", "pk": "p"}),
              ("GET", docs(container), None), ("GET", f"/{container.container_link}", None),
              ("DELETE", docs(container, "1"), None)]  # fmt: skip
    for method, path, body in bodies:
        activity = "3b5c2c0e-9f0b-4cc5-8a29-0d7f1f3bb1a0"
        answer = node.raw(method, path, headers={**key_header("p"), "x-ms-activity-id": activity}, body=body)
        assert answer.charge >= 0, (method, path)
        assert answer.headers["x-ms-activity-id"] == activity
        assert answer.headers["x-ms-version"]
        assert answer.headers["date"]


def test_larger_items_cost_more_and_a_read_of_1_kb_costs_1(container):
    small = container.create_item({"id": "small", "pk": "p", "text": "x" * 100}).get_response_headers()
    large = container.create_item({"id": "large", "pk": "p", "text": "x" * 100_000}).get_response_headers()
    charge = "x-ms-request-charge"
    assert float(large[charge]) > float(small[charge]) > 1
    assert float(container.read_item("small", "p").get_response_headers()[charge]) == 1
    assert float(container.read_item("large", "p").get_response_headers()[charge]) > 1


def test_answers_name_their_range_and_owner(container):
    properties = container.read()
    headers = container.create_item({"id": "1", "pk": "p"}).get_response_headers()
    assert headers["x-ms-documentdb-partitionkeyrangeid"] == "0"
    assert headers["x-ms-alt-content-path"] == container.container_link
    assert headers["x-ms-content-path"] == properties["_rid"]


# sessions


def test_lsn_goes_up_with_every_write_and_stays_on_reads(container):
    lsns = [int(container.upsert_item({"id": "1", "pk": "p", "n": n}).get_response_headers()["lsn"]) for n in range(3)]
    assert lsns == [lsns[0], lsns[0] + 1, lsns[0] + 2]
    read = container.read_item("1", "p").get_response_headers()
    assert int(read["lsn"]) == lsns[-1]
    assert read["x-ms-session-token"].startswith("0:")
    assert f"#{lsns[-1]}" in read["x-ms-session-token"]


def test_session_token_sent_back_is_honoured(node, container):
    token = container.create_item({"id": "1", "pk": "p"}).get_response_headers()["x-ms-session-token"]
    assert container.read_item("1", "p", session_token=token)["id"] == "1"
    prefix, lsn = token.split("#")[0], int(token.split("#")[1])
    ahead = node.raw("GET", docs(container, "1"), headers={**key_header("p"), "x-ms-session-token": f"{prefix}#{lsn + 1000}"})
    assert (ahead.status, ahead.substatus) == (404, 1002), ahead
    bad = node.raw("GET", docs(container, "1"), headers={**key_header("p"), "x-ms-session-token": "nonsense"})
    assert bad.status == 400, bad
    unknown_range = node.raw("GET", docs(container, "1"), headers={**key_header("p"), "x-ms-session-token": "99:-1#5"})
    assert unknown_range.status == 200, unknown_range


def test_errors_name_an_activity_id_whether_the_client_has_given_one_or_not(node, container):
    headers = {"x-ms-documentdb-partitionkey": '["p"]'}
    for given in ({}, {"x-ms-activity-id": "5f6a0d3e-0000-4000-8000-0123456789ab"}):
        answer = node.raw("GET", f"/{container.container_link}/docs/missing", headers={**headers, **given})
        assert answer.status == 404
        named = re.search(r"ActivityId: ([0-9a-f-]{36}), bolide", answer.message)
        assert named, answer.message
        assert named[1] == answer.headers["x-ms-activity-id"]
        assert named[1] == given.get("x-ms-activity-id", named[1])


def test_every_json_body_has_one_rule_for_its_content_type(node, container):
    database, link = container.container_link.rsplit("/colls", 1)[0], f"/{container.container_link}"
    key = {"x-ms-documentdb-partitionkey": '["p"]'}
    batch = {"x-ms-cosmos-is-batch-request": "True", "x-ms-cosmos-batch-atomic": "True"}
    requests = [
        ("POST", "/dbs", {"id": "content-type"}, {}),
        ("POST", f"/{database}/colls", {"id": "content-type", "partitionKey": {"paths": ["/pk"], "kind": "Hash"}}, {}),
        ("PUT", link, {"id": container.id, "partitionKey": {"paths": ["/pk"], "kind": "Hash"}}, {}),
        ("POST", f"{link}/docs", {"id": "1", "pk": "p"}, key),
        ("PUT", f"{link}/docs/1", {"id": "1", "pk": "p"}, key),
        ("PATCH", f"{link}/docs/1", [{"op": "set", "path": "/n", "value": 1}], key),
        ("POST", f"{link}/docs", [{"operationType": "Read", "id": "1"}], {**key, **batch}),
    ]
    try:
        for method, path, body, headers in requests:
            wrong = node.raw(method, path, headers={**headers, "content-type": "text/plain"}, body=body)
            assert wrong.status == 400, (method, path, wrong)
            assert "content type 'text/plain'" in wrong.message
            for right in ("application/json", "application/json; charset=utf-8", None):
                answer = node.raw(method, path, headers={**headers, "content-type": right}, body=body)
                assert answer.status in (200, 201, 409), (method, path, right, answer)
        patched = node.raw("PATCH", f"{link}/docs/1", headers={**key, "content-type": "application/json-patch+json"},
                           body=[{"op": "set", "path": "/n", "value": 2}])  # fmt: skip
        assert patched.status == 200, patched
    finally:
        node.raw("DELETE", "/dbs/content-type")
