"""What strangers and slow clients may do with raw sockets: requests that two servers would read in two ways, connections that
say nothing, say it slowly or take no answer, on HTTP/1.1 and HTTP/2. Every test waits for the close; none asserts a time."""

import contextlib
import json
import re
import socket
import ssl
import struct
import threading
import time

import pytest
from azure.cosmos import PartitionKey
from node import Node, free_ports, signed_headers, wait_until

SHORT = [
    "--set", "server.header_seconds=1", "--set", "server.body_seconds=1", "--set", "server.idle_seconds=3",
    "--set", "server.write_seconds=1",
]  # fmt: skip
# Generous: only a connection that is never closed takes so long.
CLOSED_SECONDS_MAX = 30
KEY = {"x-ms-documentdb-partitionkey": '["p"]'}
BIG_ITEM_BYTES = 1_500_000
DOCS = "/dbs/d/colls/c/docs"


@pytest.fixture(scope="module")
def node():
    """A node that is as patient as a test can wait for."""
    node = Node(arguments=SHORT)
    try:
        container = node.client().create_database("d").create_container("c", PartitionKey("/pk"))
        for number in range(2):
            container.create_item({"id": f"big-{number}", "pk": "p", "text": "x" * BIG_ITEM_BYTES})
        yield node
        assert "panicked" not in node.log(), node.log()
        assert " ERROR " not in node.log(), node.log()
    finally:
        node.close()


def connect(node, receive_bytes=None):
    wire = socket.socket()
    if receive_bytes:
        wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    wire.settimeout(CLOSED_SECONDS_MAX)
    wire.connect(("127.0.0.1", node.port))
    return wire


def read_all(wire):
    """What comes until the other side closes; fails if it does not."""
    read = b""
    deadline = time.monotonic() + CLOSED_SECONDS_MAX
    while True:
        assert time.monotonic() < deadline, f"the connection was not closed: {read[:300]!r}"
        try:
            piece = wire.recv(1 << 16)
        except TimeoutError:
            raise AssertionError(f"the connection was not closed: {read[:300]!r}") from None
        except ConnectionError:
            return read
        if not piece:
            return read
        read += piece


def statuses(answers):
    """The status of each answer of HTTP/1.1 in what was read."""
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3}) ", answers)]


def head(method, path, sign=True, **headers):
    every = {"host": "127.0.0.1", **(signed_headers(method, path) if sign else {}), **KEY, **headers}
    lines = [f"{method} {path} HTTP/1.1", *(f"{name.replace('_', '-')}: {value}" for name, value in every.items())]
    return "\r\n".join([*lines, "", ""]).encode()


def refused(node, reason):
    text = node.health("/metrics").body.decode()
    lines = [line for line in text.splitlines() if line.startswith("bolide_connections_refused_total") and f'"{reason}"' in line]
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines)


def is_fine(node):
    return node.raw("GET", "/dbs").status == 200


# Requests that are none, or that two servers would read in two ways.

ITEM = json.dumps({"id": "smuggled", "pk": "p"})
CHUNKED = f"{len(ITEM):x}\r\n{ITEM}\r\n0\r\n\r\n"
SECOND = "GET /dbs HTTP/1.1\r\nhost: x\r\n\r\n"
BAD = {
    "doubled length": f"content-length: {len(ITEM)}\r\ncontent-length: 5\r\n\r\n{ITEM}",
    "lengths in one header": f"content-length: {len(ITEM)}, {len(ITEM)}\r\n\r\n{ITEM}",
    "negative length": f"content-length: -1\r\n\r\n{ITEM}",
    "length with a plus": f"content-length: +{len(ITEM)}\r\n\r\n{ITEM}",
    "hexadecimal length": f"content-length: 0x{len(ITEM):x}\r\n\r\n{ITEM}",
    "length with a letter": f"content-length: {len(ITEM)}a\r\n\r\n{ITEM}",
    "empty length": f"content-length: \r\n\r\n{ITEM}",
    "huge length": f"content-length: 99999999999999999999999\r\n\r\n{ITEM}",
    "identity": f"transfer-encoding: identity\r\n\r\n{CHUNKED}",
    "gzip": f"transfer-encoding: gzip\r\n\r\n{CHUNKED}",
    "chunked and gzip": f"transfer-encoding: chunked, gzip\r\n\r\n{CHUNKED}",
    "gzip and chunked": f"transfer-encoding: gzip, chunked\r\n\r\n{CHUNKED}",
    "identity and chunked": f"transfer-encoding: identity, chunked\r\n\r\n{CHUNKED}",
    "chunked twice": f"transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n{CHUNKED}",
    "chunked and identity apart": f"transfer-encoding: chunked\r\ntransfer-encoding: identity\r\n\r\n{CHUNKED}",
    "no chunked": f"transfer-encoding: xchunked\r\n\r\n{CHUNKED}",
    "quoted": f'transfer-encoding: "chunked"\r\n\r\n{CHUNKED}',
    "space before the colon": f"transfer-encoding : chunked\r\n\r\n{CHUNKED}",
    "folded": f"transfer-encoding:\r\n chunked\r\n\r\n{CHUNKED}",
    "folded header": f"x-folded: a\r\n b\r\ncontent-length: {len(ITEM)}\r\n\r\n{ITEM}",
    "bare carriage return": f"x-bare: a\rb\r\ncontent-length: {len(ITEM)}\r\n\r\n{ITEM}",
    "nul in a value": f"x-nul: a\0b\r\ncontent-length: {len(ITEM)}\r\n\r\n{ITEM}",
    "nul in a name": f"x-n\0ul: a\r\ncontent-length: {len(ITEM)}\r\n\r\n{ITEM}",
    "no name": f": a\r\ncontent-length: {len(ITEM)}\r\n\r\n{ITEM}",
    "no colon": f"nothing\r\ncontent-length: {len(ITEM)}\r\n\r\n{ITEM}",
    "10,000 headers": "".join(f"x-{number}: a\r\n" for number in range(10_000)) + "\r\n",
    "a header of 300 KB": f"x-long: {'a' * 300_000}\r\n\r\n",
    "odd chunk": f"transfer-encoding: chunked\r\n\r\nx{CHUNKED}",
    "negative chunk": f"transfer-encoding: chunked\r\n\r\n-{CHUNKED}",
    "huge chunk": f"transfer-encoding: chunked\r\n\r\nfffffffffffffffff\r\n{ITEM}",
    "chunk without its end": f"transfer-encoding: chunked\r\n\r\n{len(ITEM):x}\r\n{ITEM}xx0\r\n\r\n",
    "endless chunk extension": f"transfer-encoding: chunked\r\n\r\n{len(ITEM):x};{'e' * 100_000}\r\n{ITEM}\r\n0\r\n\r\n",
}


@pytest.mark.parametrize("rest", BAD.values(), ids=BAD.keys())
def test_what_can_be_read_in_two_ways_is_refused_and_the_connection_ends(node, rest):
    begin = head("POST", DOCS)[: -len(b"\r\n")]
    with connect(node) as wire:
        wire.sendall(begin + rest.encode() + SECOND.encode())
        answers = read_all(wire)
    # Nothing of what follows is taken for a request.
    assert statuses(answers) in ([400], [431]), answers[:500]
    assert node.raw("GET", f"{DOCS}/smuggled", headers=KEY).status == 404


@pytest.mark.parametrize("line", ["GET / HTTP/9.9", "GET  / HTTP/1.1", "GET /a b HTTP/1.1", "GET / http/1.1", "G\x01T / HTTP/1.1", "/"])
def test_odd_request_lines_are_refused(node, line):
    with connect(node) as wire:
        wire.sendall(f"{line}\r\nhost: x\r\n\r\n{SECOND}".encode())
        assert statuses(read_all(wire)) == [400]


def test_uri_of_300_kb_is_refused(node):
    with connect(node) as wire:
        wire.sendall(f"GET /{'a' * 300_000} HTTP/1.1\r\nhost: x\r\n\r\n".encode())
        assert statuses(read_all(wire)) in ([414], [431])


@pytest.mark.parametrize("chunked_first", [True, False])
def test_length_beside_chunks_counts_for_nothing_and_ends_the_connection(node, chunked_first):
    framing = ["transfer-encoding: chunked\r\n", "content-length: 4\r\n"]
    framing = "".join(framing if chunked_first else reversed(framing))
    begin = head("POST", DOCS)[: -len(b"\r\n")]
    body = json.dumps({"id": f"both-{chunked_first}", "pk": "p"})
    with connect(node) as wire:
        wire.sendall(begin + f"{framing}\r\n{len(body):x}\r\n{body}\r\n0\r\n\r\n{SECOND}".encode())
        # As RFC 9112 has it: the chunks count, and what follows is not looked at.
        assert statuses(read_all(wire)) in ([201], [400])
    assert is_fine(node)


def test_strangers_do_not_fill_the_log(node):
    before = refused(node, "malformed")
    log = node.log()
    for _ in range(20):
        with connect(node) as wire:
            wire.sendall(b"\x00\x01nonsense\r\n\r\n")
            assert statuses(read_all(wire)) == [400]
    assert node.log() == log
    assert refused(node, "malformed") >= before + 20


# Wrong protocol for the port.


def test_tls_at_a_plain_port_is_said_once_and_counted(new_node):
    node = new_node()
    context = ssl._create_unverified_context()
    for _ in range(5):
        with pytest.raises((ssl.SSLError, OSError)), socket.create_connection(("127.0.0.1", node.port), 10) as wire:
            context.wrap_socket(wire)
    assert node.log().count("TLS at a plain port") == 1
    assert " ERROR " not in node.log()
    assert refused(node, "tls_at_plain_port") == 5


def test_plain_http_at_the_https_port_is_said_once_and_counted(new_node):
    node = new_node(protocol="https", arguments=SHORT)
    for _ in range(5):
        with connect(node) as wire:
            wire.sendall(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
            answer = read_all(wire)
            assert answer.startswith(b"HTTP/1.1 400 ") and b"https" in answer
    assert node.log().count("plain http at the https port") == 1
    assert " ERROR " not in node.log()
    assert refused(node, "plain_at_tls_port") == 5
    with connect(node) as wire:
        assert read_all(wire) == b"", "a silent connection is closed"
    with connect(node) as wire:
        wire.sendall(b"\x16\x03\x01\x02\x00\x01")
        assert read_all(wire) == b"", "a handshake that does not go on is closed"
    assert is_fine(node)


def test_throttled_request_leaves_its_connection_open_however_its_body_comes(new_node):
    """A client that sends head and body apart must get its answer, and be able to go on."""
    node = new_node(arguments=["--set", "limits.enforce_throughput=true"])
    database = node.client().create_database("d")
    database.create_container("c", PartitionKey("/pk"), offer_throughput=400)
    path = "/dbs/d/colls/c/docs"
    headers = {"x-ms-documentdb-partitionkey": '["p"]'}
    connection = node.connection()
    connection.auto_open = False
    connection.connect()
    statuses = set()
    for number in range(2_000):
        # http.client sends head and body in two parts.
        item = {"id": str(number), "pk": "p", "text": "x" * 2_000}
        statuses.add(node.raw("POST", path, headers, item, connection=connection).status)
        if statuses == {201, 429} and number > 200:
            break
    assert statuses == {201, 429}
    connection.close()


# Slow connections.


def trickle(wire, bytes_, pause=0.3):
    """Sends a byte at a time until the other side closes; fails if it never does."""
    wire.settimeout(pause)
    for number in range(int(CLOSED_SECONDS_MAX / pause)):
        try:
            wire.sendall(bytes_[number % len(bytes_)].to_bytes())
            if not wire.recv(1 << 16):
                return
        except TimeoutError:
            continue
        except ConnectionError:
            return
    raise AssertionError("the connection was not closed")


def test_connection_that_says_nothing_is_closed(node):
    before = refused(node, "silent")
    with connect(node) as wire:
        assert read_all(wire) == b""
    assert refused(node, "silent") == before + 1


@pytest.mark.parametrize("begin", [b"G", b"P", b"PRI * HTTP/2.0\r\n", b"GET / HTTP/1.1\r\nhost: x\r\nx"])
def test_connection_that_stops_in_its_first_head_is_closed(node, begin):
    with connect(node) as wire:
        wire.sendall(begin)
        assert statuses(read_all(wire)) in ([], [408])


def test_slow_headers_are_closed(node):
    with connect(node) as wire:
        wire.sendall(b"GET / HTTP/1.1\r\n")
        trickle(wire, b"x-slow: a\r\n")


def test_slow_headers_of_a_second_request_are_closed(node):
    with connect(node) as wire:
        wire.sendall(head("GET", "/dbs") + b"GET / HTTP/1.1\r\n")
        assert wire.recv(1 << 16).startswith(b"HTTP/1.1 200")
        trickle(wire, b"x-slow: a\r\n")


def test_idle_connection_is_closed(node):
    with connect(node) as wire:
        wire.sendall(head("GET", "/dbs"))
        assert statuses(read_all(wire)) == [200]


def test_body_that_never_comes_is_408_and_the_connection_ends(node):
    before = refused(node, "slow_body")
    with connect(node) as wire:
        wire.sendall(head("POST", DOCS, content_length=100) + b"{")
        assert statuses(read_all(wire)) == [408]
    assert refused(node, "slow_body") == before + 1


def test_slow_body_is_closed(node):
    with connect(node) as wire:
        wire.sendall(head("POST", DOCS, content_length=100_000))
        trickle(wire, b" ")


def test_client_that_never_reads_is_closed(node):
    before = refused(node, "stalled_reader")
    with connect(node, receive_bytes=4096) as wire:
        wire.sendall(b"".join(head("GET", f"{DOCS}/big-0") for _ in range(20)))
        wait_until(lambda: refused(node, "stalled_reader") > before, "the reader is given up", CLOSED_SECONDS_MAX)
        assert len(read_all(wire)) < 20 * BIG_ITEM_BYTES
    assert is_fine(node)


def test_slow_reader_that_goes_on_gets_everything(node):
    with connect(node, receive_bytes=1 << 16) as wire:
        wire.sendall(head("GET", f"{DOCS}/big-0"))
        read = b""
        while len(read) < BIG_ITEM_BYTES:
            piece = wire.recv(1 << 16)
            assert piece, "closed while it read"
            read += piece


# Signature before body.


def unsigned_bodies(node, count=30, bytes_sent=1_000_000):
    """Sends most of many unsigned bodies; answers the statuses."""
    wires = [connect(node) for _ in range(count)]
    try:
        for wire in wires:
            wire.settimeout(CLOSED_SECONDS_MAX)
            try:
                wire.sendall(head("POST", DOCS, sign=False, content_length=2_150_000) + b" " * bytes_sent)
            except ConnectionError:
                pass
        return [statuses(read_all(wire)) for wire in wires]
    finally:
        for wire in wires:
            wire.close()


def test_bodies_are_not_read_before_the_signature_was_checked(node):
    assert unsigned_bodies(node) == [[401]] * 30


def test_bodies_are_not_read_before_the_signature_was_checked_in_a_cluster(new_node, tmp_path):
    key = tmp_path / "cluster.key"
    key.write_text("0123456789abcdef" * 4)
    [port] = free_ports(1)
    alone = ["--set", "cluster.node=1", "--set", f"cluster.members=1=127.0.0.1:{port}", "--set", f"cluster.key_file={key}"]
    node = new_node(arguments=[*SHORT, *alone])
    wait_until(lambda: is_fine(node), "the cluster of one has a leader")
    assert unsigned_bodies(node) == [[401]] * 30


def unread_bytes(wire):
    """Bytes that the client has sent and the node has not read, as the kernel counts both ends of the connection."""
    ends = {wire.getsockname()[1], wire.getpeername()[1]}
    queues = 0
    with open("/proc/net/tcp") as table:
        for line in list(table)[1:]:
            _, local, remote, _, queued, *_ = line.split()
            if {int(end.rsplit(":", 1)[1], 16) for end in (local, remote)} == ends:
                sent, received = (int(part, 16) for part in queued.split(":"))
                queues += sent + received
    return queues


def test_bodies_together_are_bounded(new_node):
    # With one worker a body that was read is counted before the next one is looked at.
    node = new_node(arguments=["--set", "limits.node_inflight_bytes_max=4194304", "--set", "server.workers=1"])
    node.client().create_database("d").create_container("c", PartitionKey("/pk"))
    wires = [connect(node) for _ in range(3)]
    unfinished = head("POST", DOCS, content_length=2_000_000) + b" " * 1_999_000
    try:
        # Two fit. They are read first: bodies that reach the bound together may all be refused.
        for wire in wires[:2]:
            wire.sendall(unfinished)
            wait_until(lambda wire=wire: unread_bytes(wire) == 0, "the body is read")
        assert not node.metric("bolide_requests_throttled_total")
        wires[2].sendall(unfinished)
        wires[2].settimeout(30)
        assert statuses(wires[2].recv(1 << 16)) == [429]
        for wire in wires[:2]:
            wire.settimeout(0.2)
            with pytest.raises(TimeoutError):
                wire.recv(1 << 16)
    finally:
        for wire in wires:
            wire.close()
    wait_until(lambda: node.metric("bolide_requests_in_flight") == 0, "the others are given up")
    assert node.raw("POST", DOCS, headers=KEY, body={"id": "small", "pk": "p"}).status == 201


# Too many connections.


def test_newest_gets_in_for_the_longest_silent_and_the_health_port_stays_open(new_node):
    node = new_node(arguments=["--set", "server.connections_max=20", "--set", "server.workers=1"])
    silent = [connect(node) for _ in range(60)]
    try:
        wait_until(lambda: refused(node, "displaced") + refused(node, "full") >= 40, "the surplus is refused")
        wait_until(lambda: is_fine(node), "a client gets in")
        assert node.metric("bolide_connections") <= 25
    finally:
        for wire in silent:
            wire.close()


def test_silent_connections_do_not_use_up_the_descriptors(new_node):
    """As many sockets as the process may have descriptors: writes go on."""
    node = new_node(start=False)
    limit = 256
    command = ["sh", "-c", f'ulimit -n {limit}; exec "$0" "$@"', *node.command()]
    node.command = lambda: command
    node.start()
    container = node.client().create_database("d").create_container("c", PartitionKey("/pk"))
    silent = [connect(node) for _ in range(limit)]
    try:
        wait_until(lambda: is_fine(node), "a client gets in")
        container.create_item({"id": "1", "pk": "p"})
        assert node.health("/ready").status == 200
    finally:
        for wire in silent:
            wire.close()


def test_busy_connections_are_not_closed_for_others(new_node):
    node = new_node(arguments=["--set", "server.connections_max=4", "--set", "server.workers=1"])
    node.client().create_database("d").create_container("c", PartitionKey("/pk"))
    body = json.dumps({"id": "1", "pk": "p"}).encode()
    with connect(node) as busy:
        busy.sendall(head("POST", DOCS, content_length=len(body)) + body[:3])
        crowd = [connect(node) for _ in range(12)]
        wait_until(lambda: refused(node, "displaced") + refused(node, "full") >= 8, "the surplus is refused")
        busy.sendall(body[3:])
        assert statuses(busy.recv(1 << 16)) == [201]
        for wire in crowd:
            wire.close()


# HTTP/2, by hand.

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
END_STREAM, END_HEADERS, ACK = 1, 4, 1
MAX_CONCURRENT_STREAMS, INITIAL_WINDOW_SIZE = 3, 4


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def setting(name, value):
    return struct.pack(">HI", name, value)


def field(name, value):
    """A literal field without indexing, as HPACK has it."""

    def text(value):
        raw = value.encode()
        if len(raw) < 127:
            return bytes([len(raw)]) + raw
        rest, digits = len(raw) - 127, b""
        while rest >= 128:
            digits += bytes([rest % 128 + 128])
            rest //= 128
        return b"\x7f" + digits + bytes([rest]) + raw

    return b"\0" + text(name) + text(value)


def request(stream, path, sign=True, flags=END_STREAM | END_HEADERS, **headers):
    every = {":method": "GET", ":path": path, ":scheme": "http", ":authority": "127.0.0.1", **headers, **KEY}
    if sign:
        every.update(signed_headers(every[":method"], path))
    return frame(HEADERS, flags, stream, b"".join(field(name, value) for name, value in every.items()))


def frames(wire):
    """The frames that come, until the other side closes."""
    read = b""
    while True:
        while len(read) >= 9:
            length = int.from_bytes(read[:3], "big")
            if len(read) < 9 + length:
                break
            yield read[3], read[4], int.from_bytes(read[5:9], "big"), read[9 : 9 + length]
            read = read[9 + length :]
        try:
            piece = wire.recv(1 << 16)
        except TimeoutError:
            raise AssertionError("the connection was not closed") from None
        except ConnectionError:
            return
        if not piece:
            return
        read += piece


def open_http2(node, *settings):
    wire = connect(node)
    wire.sendall(PREFACE + frame(SETTINGS, 0, 0, b"".join(settings)))
    return wire


def test_streams_are_bounded(node):
    with open_http2(node) as wire:
        _, _, _, payload = next(each for each in frames(wire) if each[0] == SETTINGS and not each[1] & ACK)
        announced = {name: value for name, value in struct.iter_unpack(">HI", payload)}
        assert announced[MAX_CONCURRENT_STREAMS] <= 100


def test_streams_whose_window_stays_closed_end_the_connection(node):
    """Each answer waits for a window that never opens."""
    before = refused(node, "stalled_reader")
    with open_http2(node, setting(INITIAL_WINDOW_SIZE, 0)) as wire:
        wire.sendall(b"".join(request(1 + 2 * number, "/dbs", sign=False) for number in range(300)))
        kinds = [kind for kind, *_ in frames(wire)]
    assert DATA not in kinds
    assert RST_STREAM in kinds, "more streams than announced are refused"
    assert refused(node, "stalled_reader") == before + 1


def test_http2_client_that_takes_no_data_is_closed_though_it_pings(node):
    before = refused(node, "stalled_reader")
    with open_http2(node) as wire:
        wire.sendall(b"".join(request(1 + 2 * number, f"{DOCS}/big-0") for number in range(10)))
        pings = threading.Event()

        def ping():
            with contextlib.suppress(OSError):
                while not pings.wait(0.05):
                    wire.sendall(frame(PING, 0, 0, b"12345678"))

        pinger = threading.Thread(target=ping)
        pinger.start()
        try:
            read_all(wire)
        finally:
            pings.set()
            pinger.join()
    assert refused(node, "stalled_reader") == before + 1


def test_http2_body_that_never_comes_is_408_and_the_others_go_on(node):
    with open_http2(node) as wire:
        wire.sendall(request(1, DOCS, flags=END_HEADERS, **{":method": "POST", "content-length": "100"}))
        wire.sendall(request(3, "/dbs"))
        ended = set()
        for kind, flags, stream, _ in frames(wire):
            if kind == DATA and flags & END_STREAM:
                ended.add(stream)
            if ended == {1, 3}:
                break
        assert ended == {1, 3}


def test_idle_http2_connection_is_told_and_closed(node):
    with open_http2(node) as wire:
        wire.sendall(request(1, "/dbs"))
        assert GOAWAY in [kind for kind, *_ in frames(wire)]


def test_rapid_reset_ends_the_connection_or_does_no_harm(node):
    with open_http2(node) as wire:
        try:
            for first in range(1, 40_000, 200):
                burst = b"".join(
                    request(stream, "/dbs", sign=False) + frame(RST_STREAM, 0, stream, struct.pack(">I", 8))
                    for stream in range(first, first + 200, 2)
                )
                wire.sendall(burst)
        except ConnectionError:
            pass
    assert is_fine(node)
    wait_until(lambda: node.metric("bolide_requests_in_flight") == 0, "nothing is left")


def test_endless_headers_end_the_connection(node):
    with open_http2(node) as wire:
        try:
            wire.sendall(request(1, "/dbs", flags=END_STREAM))
            for _ in range(1_000):
                wire.sendall(frame(CONTINUATION, 0, 1, field("x-more", "a" * 10_000)))
        except ConnectionError:
            pass
        read_all(wire)
    assert is_fine(node)


JUNK = {
    "data without a stream": frame(DATA, 0, 0, b"x"),
    "odd settings": frame(SETTINGS, 0, 0, b"x"),
    "empty window update": frame(WINDOW_UPDATE, 0, 0, b"\0\0\0\0"),
    "headers without a stream": frame(HEADERS, END_HEADERS, 0, b""),
    "continuation of nothing": frame(CONTINUATION, 0, 5, b""),
    "odd header block": frame(HEADERS, END_HEADERS, 1, b"\xff\xff\xff\xff\xff"),
    "no frame": b"\xff" * 64,
}


@pytest.mark.parametrize("junk", JUNK.values(), ids=JUNK.keys())
def test_what_is_no_http2_ends_the_connection_quietly(node, junk):
    log = node.log()
    with open_http2(node) as wire:
        wire.sendall(junk)
        read_all(wire)
    assert node.log() == log
