"""A stop ends within a bound, whatever the disk does, and says what it could not write."""

import shutil
import signal
import socket
import subprocess
import sys
import time

import pytest
from azure.cosmos import PartitionKey

from node import STOP_SECONDS_MAX, signed_headers

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="preloading a library works this way on Linux only")
PATH = "/dbs/d/colls/c/docs"
KEY = {"x-ms-documentdb-partitionkey": '["p"]'}


def create_items(node, count):
    node.client().create_database("d").create_container("c", PartitionKey("/pk"), default_ttl=-1)
    for n in range(count):
        assert create(node, str(n)).status == 201


def create(node, item_id):
    return node.raw("POST", PATH, headers=KEY, body={"id": item_id, "pk": "p"})


def all_there(node, count):
    answers = [node.raw("GET", f"{PATH}/{n}", headers=KEY) for n in range(count)]
    return [answer.status for answer in answers] == [200] * count


@pytest.mark.parametrize("fault", ["full", "sync"])
@pytest.mark.parametrize("noticed", [True, False])
def test_stop_with_a_broken_disk_ends_with_0_and_loses_nothing(faulty_node, fault, noticed):
    node = faulty_node()
    create_items(node, 20)
    node.trigger.write_text(fault)
    if noticed:
        assert create(node, "refused").status in (503, 507)
    # Fails if it takes longer than STOP_SECONDS_MAX.
    assert node.stop() == 0
    node.trigger.unlink()
    if fault == "full":
        assert "the memtable was not flushed" in node.log()
    node.start()
    assert all_there(node, 20)


def test_stop_with_a_disk_that_never_answers_ends_and_names_the_shard(faulty_node):
    node = faulty_node(arguments=["--set", "server.shutdown_seconds=1"])
    create_items(node, 20)
    node.trigger.write_text("hang")
    connection = node.connection(seconds_max=1)
    with pytest.raises(TimeoutError):
        node.raw("POST", PATH, headers=KEY, body={"id": "waits", "pk": "p"}, connection=connection)
    # Fails if it takes longer than STOP_SECONDS_MAX.
    assert node.stop() == 0
    connection.close()
    assert "the memtable was not flushed" in node.log()
    assert "the disk has not answered in time" in node.log()
    node.trigger.unlink()
    node.start()
    assert all_there(node, 20)


def test_stop_after_the_data_folder_was_removed_ends_and_says_what_is_lost(faulty_node):
    node = faulty_node()
    create_items(node, 20)
    shutil.rmtree(node.data)
    assert node.stop() == 1
    assert "acknowledged writes with them" in node.log()
    assert str(node.data) in node.log()
    assert "the journal has every acknowledged write" not in node.log()


def test_second_signal_ends_the_node_at_once(new_node):
    node = new_node(arguments=["--set", "server.shutdown_seconds=3600"])
    create_items(node, 3)
    with socket.create_connection(("127.0.0.1", node.port)) as slow:
        # A request whose body never comes keeps the stop waiting.
        slow.sendall(b"POST /dbs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\n{")
        node.process.send_signal(signal.SIGTERM)
        try:
            code = node.process.wait(2)
        except subprocess.TimeoutExpired:
            node.process.send_signal(signal.SIGINT)
            code = node.process.wait(STOP_SECONDS_MAX)
            assert code == 1
            assert "told to stop again" in node.log()
        else:
            # The request was refused before its body: nothing kept the node from ending.
            assert code == 0
    node.process = None
    node.start()
    assert all_there(node, 3)


def test_requests_that_never_end_do_not_keep_the_node(new_node):
    node = new_node(arguments=["--set", "server.shutdown_seconds=1"])
    create_items(node, 3)
    headers = "".join(f"{name}: {value}\r\n" for name, value in signed_headers("POST", "/dbs", node.key).items())
    with socket.create_connection(("127.0.0.1", node.port)) as slow:
        slow.sendall(f"POST /dbs HTTP/1.1\r\nHost: 127.0.0.1\r\n{headers}Content-Length: 100\r\n\r\n{{".encode())
        time.sleep(0.2)
        assert node.stop() == 0
