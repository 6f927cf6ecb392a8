"""What the tests of the packages share: the folder that config/dist has made, and nodes that come from a package."""

import os
import time
from pathlib import Path

import pytest
from azure.cosmos import PartitionKey

from node import Node

seconds = {}


def pytest_addoption(parser):
    parser.addoption("--packages", type=Path, required=True, help="the folder that config/dist has made")


def pytest_terminal_summary(terminalreporter):
    for name, value in seconds.items():
        terminalreporter.write_line(f"from {name} to the answer of the first query: {value:.1f} s")


@pytest.fixture(scope="session")
def packages(request):
    return request.config.getoption("--packages").resolve()


@pytest.fixture(scope="session")
def package(packages):
    """Finds the one artefact whose name fits."""

    def find(pattern):
        [path] = packages.glob(pattern)
        return path

    return find


class InstalledNode(Node):
    """A node that some command starts."""

    def __init__(self, program, **options):
        self.program = [str(part) for part in program]
        super().__init__(**options)

    def command(self):
        return [
            *self.program, "serve", "--data-path", str(self.data), "--port", str(self.port),
            "--health-port", str(self.health_port), *self.arguments,
        ]  # fmt: skip

    def answers_a_query(self):
        client = self.client()
        database = client.create_database("shop")
        container = database.create_container("carts", PartitionKey("/user"), default_ttl=60)
        container.create_item({"id": "cart", "user": "ada"})
        found = container.query_items("SELECT VALUE c.id FROM c WHERE c.user = 'ada'", partition_key="ada")
        assert list(found) == ["cart"]


@pytest.fixture
def installed():
    """Starts nodes, and ends them after the test."""
    nodes = []

    def start(program, **options):
        nodes.append(InstalledNode(program, **options))
        return nodes[-1]

    yield start
    for node in nodes:
        node.close()


@pytest.fixture
def first_query(installed):
    """Starts a node, queries it, and records the seconds since a package began to be installed."""

    def measure(name, began, program, **options):
        node = installed(program, **options)
        node.answers_a_query()
        seconds[name] = time.monotonic() - began
        return node

    return measure


def is_root():
    return os.geteuid() == 0
