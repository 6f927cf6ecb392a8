"""TLS with the development certificate that the node makes at its first start."""

import http.client
import ssl

import pytest
from azure.cosmos import PartitionKey


@pytest.fixture
def secure(new_node):
    return new_node(protocol="https")


def certificate(node):
    return ssl.get_server_certificate(("127.0.0.1", node.port))


def test_sdk_works_over_https(secure):
    container = secure.client().create_database("d").create_container("c", PartitionKey("/pk"))
    container.create_item({"id": "1", "pk": "p"})
    assert container.read_item("1", "p")["id"] == "1"
    assert [each["id"] for each in container.read_all_items()] == ["1"]
    assert "https://" in secure.output()


def test_account_sends_clients_back_to_https(secure):
    account = secure.raw("GET", "/").json
    assert account["writableLocations"][0]["databaseAccountEndpoint"] == secure.endpoint


def test_certificate_is_kept_over_a_restart_and_can_be_trusted(secure):
    before = certificate(secure)
    context = ssl.create_default_context(cadata=before)
    for host in ["localhost", "127.0.0.1"]:
        connection = http.client.HTTPSConnection(host, secure.port, context=context, timeout=10)
        connection.request("GET", "/")
        assert connection.getresponse().status == 401
        connection.close()
    secure.restart()
    assert certificate(secure) == before


def test_plain_http_on_the_https_port_is_told_so(secure):
    connection = http.client.HTTPConnection("127.0.0.1", secure.port, timeout=10)
    connection.request("GET", "/")
    answer = connection.getresponse()
    assert answer.status == 400
    assert b"https" in answer.read()
    connection.close()
    assert secure.raw("GET", "/dbs").status == 200
