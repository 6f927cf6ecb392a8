"""Orders on the health port: who may give them, and how the command line does."""

import re
import subprocess
from pathlib import Path

import pytest
from azure.cosmos import PartitionKey

from authentication_test import a_key, write_keys
from node import EMULATOR_KEY, binary, order_headers

CONTAINER = "dbs/d/colls/c"
SPLIT = f"/split?container={CONTAINER}"
# Every order that the node knows, later ones included: verb and path, as its table has them.
TABLE = (Path(__file__).parents[2] / "src/gateway/health/orders.rs").read_text()
ORDERS = [
    (verb, SPLIT if path == "/split" else path.replace("*", "3"))
    for verb, path in re.findall(r'^    \("([A-Z]+)", "([^"]+)", Order::', TABLE, re.M)
]


def fill(node):
    container = node.client().create_database("d").create_container("c", PartitionKey("/pk"))
    for number in range(20):
        container.create_item({"id": str(number), "pk": str(number)})
    return node


def ranges(node):
    [container] = node.health("/status").json["containers"]
    return [shard["range"]["id"] for shard in container["shards"]]


@pytest.fixture
def keyed(new_node, tmp_path):
    keys = tmp_path / "keys.toml"
    write_keys(keys, primary=a_key("a"), secondary=a_key("b"), primary_readonly=a_key("r"))
    node = fill(new_node(arguments=["--key-file", str(keys)], key=a_key("a")))
    node.keys = keys
    return node


def bolide(node, *arguments):
    """A command to the node, as an operator gives it."""
    return subprocess.run(
        [binary(), *arguments, "--health-port", str(node.health_port)],
        capture_output=True, text=True, timeout=90, check=False, cwd=node.folder,
    )  # fmt: skip


def test_the_table_of_orders_is_found():
    known = {("POST", SPLIT), ("POST", "/clock/confirm"), ("POST", "/cluster/drain/3"), ("GET", "/cluster/check")}
    assert known <= set(ORDERS)


@pytest.mark.parametrize("method, path", ORDERS)
def test_an_order_needs_the_signature_of_a_full_key(keyed, method, path):
    assert keyed.order(path, method, {"authorization": None}).status == 401
    assert keyed.order(path, method, {"x-ms-date": None, "authorization": None}).status == 401
    assert keyed.order(path, method, key=EMULATOR_KEY).status == 401
    assert keyed.order(path, method, key=a_key("r")).status == 403
    for other in ["/other", "/clock/confirm" if "split" in path else "/split"]:
        assert keyed.order(path, method, order_headers(method, other, a_key("a"))).status == 401, other
    assert keyed.order(path, method, date="Thu, 01 Jan 2026 00:00:00 GMT").status == 403
    assert ranges(keyed) == [0], "nothing was carried out"
    assert keyed.order(path, method, key=a_key("b")).status not in (401, 403)


@pytest.mark.parametrize("method, path", ORDERS)
def test_an_order_is_not_taken_from_a_web_page(keyed, method, path):
    page = {"origin": "http://evil.example", "content-type": "text/plain"}
    assert keyed.order(path, method, page).status == 403
    assert keyed.order(path, method, {"origin": "null"}).status == 403
    answer = keyed.order(path, method, {"host": "evil.example:8080"})
    assert answer.status == 403 and "server.allowed_hosts" in answer.json["error"]
    assert ranges(keyed) == [0]


def test_without_authentication_this_machine_gives_orders_and_web_pages_do_not(new_node):
    node = fill(new_node(arguments=["--set", "auth.enabled=false"]))
    unsigned = {"authorization": None, "x-ms-date": None}
    assert node.order(SPLIT, headers={**unsigned, "origin": "http://evil.example"}).status == 403
    assert node.order(SPLIT, headers={**unsigned, "host": "evil.example"}).status == 403
    assert node.order(SPLIT, headers=unsigned).status == 200
    assert ranges(node) == [1, 2]


def test_orders_name_what_is_wrong_with_them(keyed):
    for path, status, said in [
        ("/split", 400, "?container="),
        ("/split?container=c", 400, "'c'"),
        (SPLIT + "&range=x", 400, "'x'"),
        ("/cluster/drain/x", 400, "'x'"),
        ("/cluster/drain/1", 400, "on its own"),
        ("/nothing-here", 404, "/nothing-here"),
        ("/cluster/check", 405, "POST"),
        ("/status", 405, "POST"),
    ]:
        answer = keyed.order(path)
        assert answer.status == status and said in answer.json["error"], (path, answer)


def test_the_command_line_signs_orders(keyed):
    done = bolide(keyed, "split", CONTAINER, "--key-file", str(keyed.keys))
    assert done.returncode == 0 and "1 and 2" in done.stdout, done
    assert ranges(keyed) == [1, 2]
    done = bolide(keyed, "split", CONTAINER, "--range", "1", "--key-file", str(keyed.keys))
    assert done.returncode == 0, done
    done = bolide(keyed, "clock", "confirm", "--key-file", str(keyed.keys))
    assert done.returncode == 0 and "confirmed" in done.stdout, done
    refused = bolide(keyed, "clock", "confirm")
    assert refused.returncode == 1 and "401" in refused.stderr and "--key-file" in refused.stderr, refused


def test_the_command_line_takes_the_key_of_the_settings(keyed):
    (keyed.folder / "config").mkdir()
    (keyed.folder / "config/bolide.toml").write_text(f'[auth]\nkey_file = "{keyed.keys}"\n')
    assert bolide(keyed, "clock", "confirm").returncode == 0


def test_the_command_line_knows_the_well_known_key(node):
    assert bolide(node, "clock", "confirm").returncode == 0


def test_the_command_line_reaches_a_node_by_its_endpoint(node):
    command = [binary(), "clock", "confirm", "--health-endpoint"]
    done = subprocess.run([*command, f"http://localhost:{node.health_port}"], capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done
    refused = subprocess.run([*command, "localhost"], capture_output=True, text=True, timeout=60, check=False)
    assert refused.returncode == 1 and "'localhost'" in refused.stderr, refused
