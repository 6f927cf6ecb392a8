"""Who may do what: keys, dates, read-only keys, keys replaced while the node runs, and where it may listen."""

import base64
import hashlib
import hmac
import time
import urllib.parse
from email.utils import formatdate

import pytest
from azure.cosmos import PartitionKey, exceptions

from node import EMULATOR_KEY, Refused, signed_headers, wait_until


def a_key(letter):
    return base64.b64encode(letter.encode() * 64).decode()


def write_keys(path, **keys):
    """A key file: one `name = "key"` a line."""
    path.write_text("".join(f'{name} = "{key}"\n' for name, key in keys.items()))
    path.chmod(0o600)


def test_wrong_key_is_401(node):
    answer = node.raw("GET", "/dbs", key=a_key("x"))
    assert answer.status == 401
    assert answer.json["code"] == "Unauthorized"
    with pytest.raises(exceptions.CosmosHttpResponseError) as error:
        node.client(key=a_key("x"))
    assert error.value.status_code == 401


@pytest.mark.parametrize(
    "authorization",
    [
        None,
        "",
        "nonsense",
        "type%3Dmaster%26ver%3D1.0%26sig%3D",
        "type%3Dmaster%26ver%3D1.0%26sig%3Dnot-base64!",
        "type%3Dmaster%26ver%3D9.9%26sig%3DAAAA",
        "type%3Dodd%26ver%3D1.0%26sig%3DAAAA",
        "%ff%fe",
    ],
)
def test_missing_or_malformed_authorization_is_401(node, authorization):
    answer = node.raw("GET", "/dbs", headers={"authorization": authorization})
    assert answer.status == 401, answer
    assert answer.json["message"]


def test_signature_of_another_resource_or_method_is_401(node, shared_database):
    assert node.raw("GET", "/dbs", headers=signed_headers("GET", "/dbs")).status == 200
    for method, path in [("POST", "/dbs"), ("GET", f"/dbs/{shared_database.id}"), ("GET", "/offers")]:
        answer = node.raw("GET", "/dbs", headers=signed_headers(method, path))
        assert answer.status == 401, (method, path, answer)


def test_case_of_names_is_part_of_the_signature(node, shared_database):
    path = f"/dbs/{shared_database.id}"
    assert node.raw("GET", path, headers=signed_headers("GET", path.upper())).status == 401


@pytest.mark.parametrize("minutes, status", [(-20, 403), (20, 403), (-10, 200), (10, 200)])
def test_date_outside_15_minutes_is_403(node, minutes, status):
    answer = node.raw("GET", "/dbs", date=formatdate(time.time() + 60 * minutes, usegmt=True))
    assert answer.status == status, answer


@pytest.mark.parametrize("date", ["yesterday", "", "2026-01-01T00:00:00Z"])
def test_date_that_is_none_is_refused(node, date):
    answer = node.raw("GET", "/dbs", headers={"x-ms-date": date})
    assert answer.status in (401, 403), answer


def test_date_header_alone_is_accepted(node):
    date = formatdate(usegmt=True)
    text = f"get\ndbs\n\n\n{date.lower()}\n"
    digest = base64.b64encode(hmac.new(base64.b64decode(EMULATOR_KEY), text.encode(), hashlib.sha256).digest())
    token = urllib.parse.quote(f"type=master&ver=1.0&sig={digest.decode()}", safe="")
    answer = node.raw("GET", "/dbs", headers={"authorization": token, "date": date, "x-ms-date": None})
    assert answer.status == 200, answer


def test_all_keys_of_the_key_file_work_and_read_only_ones_only_read(new_node, tmp_path):
    keys = tmp_path / "keys.toml"
    write_keys(keys, primary=a_key("a"), secondary=a_key("b"), primary_readonly=a_key("c"), secondary_readonly=a_key("d"))
    node = new_node(arguments=["--key-file", str(keys)], key=a_key("a"))
    container = node.client().create_database("d").create_container("c", PartitionKey("/pk"))
    container.create_item({"id": "1", "pk": "p"})
    for letter in "abcd":
        reader = node.client(key=a_key(letter)).get_database_client("d").get_container_client("c")
        assert reader.read_item("1", "p")["id"] == "1"
        assert [each["id"] for each in reader.query_items("SELECT * FROM c", partition_key="p")] == ["1"]
    node.client(key=a_key("b")).get_database_client("d").get_container_client("c").create_item({"id": "2", "pk": "p"})
    reader = node.client(key=a_key("c")).get_database_client("d").get_container_client("c")
    for attempt in [
        lambda: reader.create_item({"id": "3", "pk": "p"}),
        lambda: reader.upsert_item({"id": "1", "pk": "p"}),
        lambda: reader.delete_item("1", "p"),
        lambda: reader.patch_item("1", "p", [{"op": "add", "path": "/n", "value": 1}]),
        lambda: reader.execute_item_batch([("create", ({"id": "3", "pk": "p"},))], "p"),
        lambda: node.client(key=a_key("d")).create_database("other"),
        lambda: node.client(key=a_key("d")).delete_database("d"),
    ]:
        with pytest.raises(exceptions.CosmosHttpResponseError) as error:
            attempt()
        assert error.value.status_code == 403
    assert sorted(each["id"] for each in container.read_all_items()) == ["1", "2"]
    assert node.raw("GET", "/dbs", key=EMULATOR_KEY).status == 401, "the well-known key is off with a key file"
    for letter in "abcd":
        assert a_key(letter) not in node.log()


def test_replaced_key_file_is_in_force_without_a_restart(new_node, tmp_path):
    keys = tmp_path / "keys.toml"
    write_keys(keys, primary=a_key("a"), secondary=a_key("b"))
    node = new_node(arguments=["--key-file", str(keys)], key=a_key("a"))
    assert node.raw("GET", "/dbs", key=a_key("a")).status == 200
    write_keys(tmp_path / "next.toml", primary=a_key("e"), secondary=a_key("b"))
    (tmp_path / "next.toml").rename(keys)
    wait_until(lambda: node.raw("GET", "/dbs", key=a_key("e")).status == 200, "the new key is accepted")
    assert node.raw("GET", "/dbs", key=a_key("a")).status == 401
    assert node.raw("GET", "/dbs", key=a_key("b")).status == 200


def test_broken_new_key_file_leaves_the_old_keys_in_force(new_node, tmp_path):
    keys = tmp_path / "keys.toml"
    write_keys(keys, primary=a_key("a"), secondary=a_key("b"))
    node = new_node(arguments=["--key-file", str(keys)], key=a_key("a"))
    keys.write_text("this is no key file")
    wait_until(lambda: "key" in node.log().lower() and str(keys) in node.log(), "the log says that the file is bad")
    assert node.raw("GET", "/dbs", key=a_key("a")).status == 200


@pytest.mark.parametrize("content", [None, "", "primary = 5\n", 'primary = "not base64!"\n', "\x00\xff"])
def test_bad_key_file_ends_with_exit_code_2(new_node, tmp_path, content):
    keys = tmp_path / "keys.toml"
    if content is not None:
        keys.write_text(content)
    with pytest.raises(Refused) as refused:
        new_node(arguments=["--key-file", str(keys)])
    assert refused.value.code == 2
    assert "keys.toml" in refused.value.output


def test_listening_elsewhere_with_the_well_known_key_is_refused(new_node):
    with pytest.raises(Refused) as refused:
        new_node(arguments=["--host", "0.0.0.0"])
    assert refused.value.code == 2
    assert "--key-file" in refused.value.output
    assert "0.0.0.0" in refused.value.output


def test_listening_elsewhere_with_keys_of_ones_own_works(new_node, tmp_path):
    keys = tmp_path / "keys.toml"
    write_keys(keys, primary=a_key("a"), secondary=a_key("b"))
    node = new_node(arguments=["--host", "0.0.0.0", "--key-file", str(keys)], key=a_key("a"))
    assert list(node.client().list_databases()) == []
    assert node.raw("GET", "/dbs", key=EMULATOR_KEY).status == 401
