"""What the suites share: a node for all of them, nodes of one's own, fresh databases and containers."""

import itertools
import subprocess
import warnings
from pathlib import Path

import pytest
from azure.cosmos import PartitionKey
from urllib3.exceptions import InsecureRequestWarning

from node import Node

warnings.simplefilter("ignore", InsecureRequestWarning)
serial = itertools.count(1)


def pytest_addoption(parser):
    parser.addoption("--crash-rounds", type=int, default=200, help="rounds of kill -9 under load")
    parser.addoption("--thorough", action="store_true", help="also run the tests marked thorough, which take long")
    parser.addoption("--seed", type=int, default=None, help="seed of the crash rounds; printed when left out")


def pytest_collection_modifyitems(config, items):
    if config.getoption("--thorough"):
        return
    skipped = pytest.mark.skip(reason="takes long: run tests/run thorough, or pytest with --thorough")
    for item in items:
        if item.get_closest_marker("thorough"):
            item.add_marker(skipped)


@pytest.fixture(scope="session")
def node():
    """One node for all tests that neither stop it nor change what concerns others."""
    shared = Node()
    yield shared
    code = shared.stop()
    log = shared.log()
    shared.close()
    assert code == 0, f"the shared node did not stop cleanly: exit code {code}: {log[-2000:]}"
    assert "panicked" not in log, log


@pytest.fixture
def new_node():
    """Makes nodes of the test's own; they are ended and removed after it."""
    nodes = []

    def make(**options):
        made = Node(start=False, **{name: value for name, value in options.items() if name != "start"})
        nodes.append(made)
        if options.get("start", True):
            made.start()
        return made

    yield make
    for each in nodes:
        each.close()


@pytest.fixture(scope="session")
def faults(tmp_path_factory):
    """The library of faults, compiled."""
    library = tmp_path_factory.mktemp("faults") / "faults.so"
    source = Path(__file__).parent.parent / "faults" / "faults.c"
    subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-Wall", "-o", library, source, "-ldl"], check=True)
    return library


@pytest.fixture
def faulty_node(new_node, faults):
    """Makes a node whose disk fails while its trigger file exists, which notes what became durable in its syncs file, and
    whose wall clock is as wrong as its clock file says."""

    def make(started=True, **options):
        node = new_node(start=False, **options)
        node.data.mkdir()
        node.trigger = node.folder / "trigger"
        node.syncs = node.folder / "syncs"
        node.wall_clock = node.folder / "wall-clock"
        node.environment = {
            "LD_PRELOAD": str(faults), "FAULTS_FOLDER": str(node.data.resolve()),
            "FAULTS_TRIGGER": str(node.trigger), "FAULTS_SYNCS": str(node.syncs),
            "FAULTS_CLOCK": str(node.wall_clock),
        }  # fmt: skip
        return node.start() if started else node

    return make


@pytest.fixture(scope="session")
def client(node):
    return node.client()


@pytest.fixture(scope="session")
def shared_database(client):
    return client.create_database("shared")


@pytest.fixture
def database(client):
    """A database of the test's own."""
    made = client.create_database(f"database-{next(serial)}")
    yield made
    client.delete_database(made.id)


@pytest.fixture
def new_container(shared_database):
    """Makes containers of the test's own."""
    made = []

    def make(partition_key="/pk", **options):
        if isinstance(partition_key, str):
            partition_key = PartitionKey(partition_key)
        container = shared_database.create_container(f"container-{next(serial)}", partition_key, **options)
        made.append(container)
        return container

    yield make
    for each in made:
        shared_database.delete_container(each.id)


@pytest.fixture
def container(new_container):
    """An empty container with the partition key /pk and everything else by default."""
    return new_container()
