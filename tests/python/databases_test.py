"""Databases: create, read, list, delete, and the names they may have."""

from email.utils import formatdate

import pytest
from azure.cosmos import exceptions

from node import EMULATOR_KEY, signature

BAD_NAMES = ["a/b", "a\\b", "a?b", "a#b", "trailing ", "x" * 256]


def test_create_returns_the_system_properties(client, database):
    properties = database.read()
    assert properties["id"] == database.id
    assert properties["_self"] == f"dbs/{properties['_rid']}/"
    assert properties["_etag"].startswith('"') and properties["_etag"].endswith('"')
    assert properties["_colls"] == "colls/"
    assert properties["_users"] == "users/"
    assert isinstance(properties["_ts"], int)
    assert float(client.client_connection.last_response_headers["x-ms-request-charge"]) > 0


def test_create_of_an_existing_one_is_409(client, database):
    with pytest.raises(exceptions.CosmosResourceExistsError) as error:
        client.create_database(database.id)
    assert database.id in error.value.message


def test_create_if_not_exists_finds_it_the_second_time(client):
    first = client.create_database_if_not_exists("made-if-missing").read()
    second = client.create_database_if_not_exists("made-if-missing").read()
    assert first["_rid"] == second["_rid"]
    client.delete_database("made-if-missing")


def test_list_and_query_find_it(client, database):
    assert database.id in [each["id"] for each in client.list_databases()]
    found = client.query_databases(
        "SELECT * FROM root r WHERE r.id=@id", parameters=[{"name": "@id", "value": database.id}]
    )
    assert [each["id"] for each in found] == [database.id]


def test_deleted_one_is_gone_and_its_name_is_free(client):
    first = client.create_database("short-lived").read()
    client.delete_database("short-lived")
    with pytest.raises(exceptions.CosmosResourceNotFoundError) as error:
        client.get_database_client("short-lived").read()
    assert "short-lived" in error.value.message
    with pytest.raises(exceptions.CosmosResourceNotFoundError):
        client.delete_database("short-lived")
    second = client.create_database("short-lived").read()
    assert second["_rid"] != first["_rid"]
    client.delete_database("short-lived")


@pytest.mark.parametrize("name", ["colls", "with space", "ünïcödé €", "a+b%20", "x" * 255, "CaSe"])
def test_unusual_names_work(client, name):
    assert client.create_database(name).read()["id"] == name
    assert client.get_database_client(name).read()["id"] == name
    client.delete_database(name)


@pytest.mark.parametrize("name", BAD_NAMES)
def test_bad_names_are_400(node, name):
    answer = node.raw("POST", "/dbs", body={"id": name})
    assert answer.status == 400, answer
    assert name[:20].replace("\\", "\\\\") in answer.message or name[:20] in answer.message


@pytest.mark.parametrize("body", [{}, {"id": ""}, {"id": 5}, {"id": None}, [], "text", None])
def test_bodies_that_are_no_database_are_400(node, body):
    assert node.raw("POST", "/dbs", body="null" if body is None else body).status == 400


def test_it_answers_to_its_resource_id_too(node, database):
    rid = database.read()["_rid"]
    answer = node.raw("GET", f"/dbs/{rid}", headers=rid_signature("GET", "dbs", rid))
    assert answer.status == 200, answer
    assert answer.json["id"] == database.id


def rid_signature(method, resource_type, rid):
    """A resource addressed by its resource id signs that id alone, in lower case."""
    date = formatdate(usegmt=True)
    return {"authorization": signature(EMULATOR_KEY, method, resource_type, rid.lower(), date), "x-ms-date": date}
