"""A pytest plugin: of the files that are run, leaves out what selection.toml names, and refuses a list that does not fit the suite."""

import tomllib
from pathlib import Path

import pytest

SELECTION = Path(__file__).parent / "selection.toml"


def load():
    return tomllib.loads(SELECTION.read_text())


def test_name(item):
    """`file::class::function`, whatever folder pytest was started in and whatever parameters the test has."""
    path, _, rest = item.nodeid.partition("::")
    return f"{Path(path).name}::{rest.partition('[')[0]}"


def pytest_collection_modifyitems(config, items):
    left_out = set(load()["tests"])
    names = {id(item): test_name(item) for item in items}
    collected = {name.partition("::")[0] for name in names.values()}
    unknown = {name for name in left_out if name.partition("::")[0] in collected} - set(names.values())
    if unknown:
        raise pytest.UsageError(f"{SELECTION.name} names tests that the suite does not have: {sorted(unknown)}")
    config.hook.pytest_deselected(items=[item for item in items if names[id(item)] in left_out])
    items[:] = [item for item in items if names[id(item)] not in left_out]
