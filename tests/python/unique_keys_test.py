"""Unique keys: one logical partition never holds the same values twice."""

import pytest
from azure.cosmos import exceptions


@pytest.fixture
def people(new_container):
    return new_container(unique_key_policy={"uniqueKeys": [{"paths": ["/email"]}, {"paths": ["/first", "/name/last"]}]})


def person(n, email=None, first="f", last=None, pk="p"):
    return {"id": str(n), "pk": pk, "email": email or f"{n}@x", "first": first, "name": {"last": last or f"last {n}"}}


def conflicts(attempt):
    with pytest.raises(exceptions.CosmosResourceExistsError) as error:
        attempt()
    assert error.value.status_code == 409
    return True


def test_create_upsert_replace_and_patch_are_409_on_a_taken_value(people):
    people.create_item(person(1, email="same"))
    conflicts(lambda: people.create_item(person(2, email="same")))
    conflicts(lambda: people.upsert_item(person(2, email="same")))
    people.create_item(person(2, email="other"))
    conflicts(lambda: people.replace_item("2", person(2, email="same")))
    conflicts(lambda: people.patch_item("2", "p", [{"op": "set", "path": "/email", "value": "same"}]))
    assert people.read_item("2", "p")["email"] == "other"


def test_all_paths_of_a_key_count_together(people):
    people.create_item(person(1, first="a", last="b"))
    people.create_item(person(2, first="a", last="c"))
    conflicts(lambda: people.create_item(person(3, first="a", last="b")))


def test_values_may_repeat_in_another_partition(people):
    people.create_item(person(1, email="same"))
    people.create_item(person(1, email="same", pk="other"))


def test_value_is_free_after_delete_and_after_change(people):
    people.create_item(person(1, email="same"))
    people.delete_item("1", "p")
    people.create_item(person(2, email="same"))
    people.replace_item("2", person(2, email="changed"))
    people.create_item(person(3, email="same"))


def test_item_may_keep_its_own_value(people):
    people.create_item(person(1, email="same"))
    people.replace_item("1", {**person(1, email="same"), "n": 1})
    people.upsert_item({**person(1, email="same"), "n": 2})
    assert people.read_item("1", "p")["n"] == 2


def test_missing_value_counts_as_a_value(people):
    people.create_item({"id": "1", "pk": "p", "first": "a", "name": {"last": "b"}})
    conflicts(lambda: people.create_item({"id": "2", "pk": "p", "first": "c", "name": {"last": "d"}}))


def test_numbers_compare_by_value_and_types_are_apart(people):
    people.create_item({**person(1), "email": 1})
    conflicts(lambda: people.create_item({**person(2), "email": 1.0}))
    people.create_item({**person(3), "email": "1"})
    people.create_item({**person(4), "email": True})


def test_conflict_in_a_batch_rolls_everything_back(people):
    people.create_item(person(1, email="same"))
    with pytest.raises(exceptions.CosmosBatchOperationError) as error:
        people.execute_item_batch([("create", (person(2),)), ("create", (person(3, email="same"),))], "p")
    assert [each["statusCode"] for each in error.value.operation_responses] == [424, 409]
    assert [each["id"] for each in people.read_all_items()] == ["1"]


def test_value_moves_between_items_within_a_batch(people):
    people.create_item(person(1, email="same"))
    people.execute_item_batch(
        [("replace", ("1", person(1, email="changed"))), ("create", (person(2, email="same"),))], "p"
    )
    conflicts(lambda: people.create_item(person(3, email="same")))
    conflicts(lambda: people.create_item(person(3, email="changed")))
