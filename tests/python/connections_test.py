"""What clients may do with a connection, byte by byte: below what the SDKs and the HTTP libraries let one see."""

import http.client
import json
import socket

import pytest

from node import signed_headers

KEY = {"x-ms-documentdb-partitionkey": '["p"]'}
BODY_BYTES_MAX = 2 * 1024 * 1024 + 64 * 1024


@pytest.fixture
def wire(node):
    with socket.create_connection(("127.0.0.1", node.port), timeout=10) as connection:
        yield connection


@pytest.fixture
def docs(container):
    return f"/{container.container_link}/docs"


def head(method, path, **headers):
    """The bytes of a signed request up to its body."""
    every = {"host": "127.0.0.1", **signed_headers(method, path), **KEY, **headers}
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in every.items())]
    return "\r\n".join([*lines, "", ""]).encode()


def create(docs, item_id):
    body = json.dumps({"id": item_id, "pk": "p"}).encode()
    return head("POST", docs, **{"content-length": len(body)}) + body


def answer(wire, method="GET"):
    """The next answer; reads nothing beyond it."""
    response = http.client.HTTPResponse(wire, method=method)
    response.fp = wire.makefile("rb", buffering=0)
    response.begin()
    return response.status, response.read()


def test_requests_that_are_sent_together_are_answered_in_their_order(wire, docs):
    ids = [f"item-{number}" for number in range(5)]
    wire.sendall(b"".join(create(docs, each) for each in ids))
    assert [answer(wire)[0] for _ in ids] == [201] * len(ids)
    wire.sendall(b"".join(head("GET", f"{docs}/{each}") for each in [*ids, "missing"]))
    read = [answer(wire) for _ in [*ids, "missing"]]
    assert [status for status, _ in read] == [200] * len(ids) + [404]
    assert [json.loads(body)["id"] for _, body in read[:-1]] == ids


def test_head_gets_no_body_and_the_connection_goes_on(wire, docs):
    wire.sendall(head("HEAD", docs) + head("GET", docs))
    assert answer(wire, "HEAD") == (405, b"")
    assert answer(wire)[0] == 200


def test_client_that_asks_first_is_told_to_go_on(wire, docs):
    request, body = create(docs, "asked").split(b"\r\n\r\n", 1)
    wire.sendall(request + b"\r\nexpect: 100-continue\r\n\r\n")
    assert wire.recv(1024) == b"HTTP/1.1 100 Continue\r\n\r\n"
    wire.sendall(body)
    assert answer(wire)[0] == 201


def test_body_in_chunks_and_in_pieces_is_taken(wire, docs):
    body = json.dumps({"id": "chunks", "pk": "p"}).encode()
    wire.sendall(head("POST", docs, **{"transfer-encoding": "chunked"}))
    for start in range(0, len(body), 7):
        piece = body[start : start + 7]
        wire.sendall(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
    wire.sendall(b"0\r\n\r\n")
    assert answer(wire)[0] == 201


def test_body_over_the_limit_is_413_before_all_of_it_was_sent(wire, node, docs):
    wire.sendall(head("POST", docs, **{"content-length": 1 << 40}) + b" " * (BODY_BYTES_MAX + 1))
    assert answer(wire)[0] == 413
    assert node.raw("GET", docs, headers=KEY).json["_count"] == 0


@pytest.mark.parametrize("junk", [b"nonsense\r\n\r\n", b"GET / HTTP/1.1\r\nno colon\r\n\r\n", b"GET /\x00 HTTP/1.1\r\n\r\n"])
def test_what_is_no_request_is_400_and_the_connection_ends(wire, junk):
    wire.sendall(junk)
    assert answer(wire)[0] == 400
    assert wire.recv(1024) == b""


def test_account_names_the_endpoint_that_was_asked(wire, node):
    def endpoint(**headers):
        wire.sendall(head("GET", "/", **headers))
        return json.loads(answer(wire)[1])["writableLocations"][0]["databaseAccountEndpoint"]

    assert endpoint(host="db:1234") == "http://db:1234/"
    assert endpoint(host="db", forwarded="proto=https;host=evil.example") == "http://db/", "nobody trusts it"
