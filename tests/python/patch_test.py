"""Patch: every operation, its rules, conditions, and that all operations apply or none."""

import pytest
from azure.cosmos import exceptions

START = {"id": "1", "pk": "p", "n": 5, "text": "t", "old": 1, "nested": {"a": 1}, "list": [1, 2, 3], "null": None}


@pytest.fixture
def item(container):
    container.create_item(START)
    return container


def patch(container, *operations, **options):
    return container.patch_item("1", "p", list(operations), **options)


def refused(container, *operations):
    before = container.read_item("1", "p")
    with pytest.raises(exceptions.CosmosHttpResponseError) as error:
        patch(container, *operations)
    assert error.value.status_code == 400, error.value
    assert container.read_item("1", "p") == before
    return error.value.message


@pytest.mark.parametrize(
    "operation, path, expected",
    [
        ({"op": "add", "path": "/new", "value": 1}, "new", 1),
        ({"op": "add", "path": "/text", "value": {"now": "object"}}, "text", {"now": "object"}),
        ({"op": "add", "path": "/nested/b", "value": [1]}, "nested", {"a": 1, "b": [1]}),
        ({"op": "add", "path": "/list/-", "value": 4}, "list", [1, 2, 3, 4]),
        ({"op": "add", "path": "/list/0", "value": 0}, "list", [0, 1, 2, 3]),
        ({"op": "add", "path": "/list/3", "value": 4}, "list", [1, 2, 3, 4]),
        ({"op": "set", "path": "/new", "value": None}, "new", None),
        ({"op": "set", "path": "/list/1", "value": "two"}, "list", [1, "two", 3]),
        ({"op": "set", "path": "/nested/a", "value": 2}, "nested", {"a": 2}),
        ({"op": "replace", "path": "/text", "value": None}, "text", None),
        ({"op": "replace", "path": "/list/0", "value": 9}, "list", [9, 2, 3]),
        ({"op": "remove", "path": "/list/1"}, "list", [1, 3]),
        ({"op": "remove", "path": "/nested/a"}, "nested", {}),
        ({"op": "incr", "path": "/n", "value": 2}, "n", 7),
        ({"op": "incr", "path": "/n", "value": -7}, "n", -2),
        ({"op": "incr", "path": "/n", "value": 0.5}, "n", 5.5),
        ({"op": "incr", "path": "/counter", "value": 3}, "counter", 3),
        ({"op": "move", "from": "/text", "path": "/moved"}, "moved", "t"),
        ({"op": "move", "from": "/nested/a", "path": "/n"}, "n", 1),
    ],
)
def test_each_operation(item, operation, path, expected):
    assert patch(item, operation)[path] == expected
    assert item.read_item("1", "p")[path] == expected


def test_removed_and_moved_properties_are_gone(item):
    after = patch(item, {"op": "remove", "path": "/old"}, {"op": "move", "from": "/text", "path": "/moved"})
    assert "old" not in after and "text" not in after


def test_escaped_names(item):
    after = patch(item, {"op": "add", "path": "/a~1b", "value": 1}, {"op": "add", "path": "/c~0d", "value": 2})
    assert after["a/b"] == 1
    assert after["c~d"] == 2


def test_operations_apply_in_order(item):
    after = patch(
        item,
        {"op": "add", "path": "/x", "value": {"y": 1}},
        {"op": "incr", "path": "/x/y", "value": 1},
        {"op": "move", "from": "/x/y", "path": "/z"},
        {"op": "replace", "path": "/x", "value": "done"},
    )
    assert (after["x"], after["z"]) == ("done", 2)


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "replace", "path": "/missing", "value": 1},
        {"op": "remove", "path": "/missing"},
        {"op": "incr", "path": "/text", "value": 1},
        {"op": "incr", "path": "/n", "value": "one"},
        {"op": "move", "from": "/missing", "path": "/x"},
        {"op": "move", "from": "/nested", "path": "/nested/inside"},
        {"op": "add", "path": "/missing/child", "value": 1},
        {"op": "add", "path": "/text/child", "value": 1},
        {"op": "add", "path": "/list/9", "value": 1},
        {"op": "set", "path": "/list/x", "value": 1},
        {"op": "replace", "path": "/id", "value": "2"},
        {"op": "set", "path": "/pk", "value": "q"},
        {"op": "remove", "path": "/pk"},
        {"op": "set", "path": "/_ts", "value": 1},
        {"op": "set", "path": "/_etag", "value": "x"},
        {"op": "explode", "path": "/n", "value": 1},
        {"op": "add", "path": "n", "value": 1},
        {"op": "add", "path": "/n"},
        {"path": "/n", "value": 1},
        {"op": "add", "value": 1},
    ],
)
def test_bad_operations_are_400_and_change_nothing(item, operation):
    refused(item, operation)


def test_one_bad_operation_undoes_the_good_ones_before_it(item):
    refused(item, {"op": "incr", "path": "/n", "value": 1}, {"op": "remove", "path": "/missing"})


def test_at_least_one_and_at_most_ten_operations(item):
    ten = [{"op": "incr", "path": "/n", "value": 1}] * 10
    assert patch(item, *ten)["n"] == 15
    refused(item, *ten, ten[0])
    refused(item)


def test_condition_decides(item):
    step = {"op": "incr", "path": "/n", "value": 1}
    assert patch(item, step, filter_predicate="from c where c.n = 5")["n"] == 6
    with pytest.raises(exceptions.CosmosAccessConditionFailedError) as error:
        patch(item, step, filter_predicate="from c where c.n = 5")
    assert error.value.status_code == 412
    assert item.read_item("1", "p")["n"] == 6
    assert patch(item, step, filter_predicate="FROM c WHERE c.text = 't' AND IS_DEFINED(c.nested.a)")["n"] == 7


def test_condition_that_is_no_sql_is_400(item):
    with pytest.raises(exceptions.CosmosHttpResponseError) as error:
        patch(item, {"op": "incr", "path": "/n", "value": 1}, filter_predicate="from c whre c.n = 5")
    assert error.value.status_code == 400


def test_missing_item_is_404(container):
    with pytest.raises(exceptions.CosmosResourceNotFoundError):
        patch(container, {"op": "incr", "path": "/n", "value": 1})


def test_identity_stays_and_etag_changes(item):
    before = item.read_item("1", "p")
    after = patch(item, {"op": "incr", "path": "/n", "value": 1})
    assert after["_rid"] == before["_rid"]
    assert after["_etag"] != before["_etag"]


def test_patch_is_told_by_the_verb_not_by_the_content_type(node, item):
    for n, content_type in enumerate(["application/json-patch+json", "application/json_patch+json", None]):
        answer = node.raw(
            "PATCH", f"/{item.container_link}/docs/1",
            headers={"x-ms-documentdb-partitionkey": '["p"]', "content-type": content_type},
            body={"operations": [{"op": "set", "path": "/by", "value": n}]},
        )  # fmt: skip
        assert answer.status == 200, answer
        assert answer.json["by"] == n


def test_bare_list_of_operations_is_accepted(node, item):
    answer = node.raw(
        "PATCH", f"/{item.container_link}/docs/1",
        headers={"x-ms-documentdb-partitionkey": '["p"]'}, body=[{"op": "incr", "path": "/n", "value": 1}],
    )  # fmt: skip
    assert answer.status == 200, answer
    assert answer.json["n"] == 6
