"""Data folders that earlier builds have left behind: this build opens them and answers the same."""

import json
import tarfile
from pathlib import Path

import pytest

from folders import answers, cluster_arguments
from node import wait_until

FIXTURES = Path(__file__).parent.parent / "fixtures"
ARCHIVES = sorted(FIXTURES.glob("*.tar.xz"))


def extract(archive, folder):
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="tar")
    folders = sorted(folder.glob("node*"))
    # It counts on while nodes are down, but on the machine that made the fixtures only: items would expire there.
    for each in folders:
        (each / "time").unlink(missing_ok=True)
    return folders


def test_there_are_fixtures():
    kinds = {archive.name.removesuffix(".tar.xz").split("-")[-1] for archive in ARCHIVES}
    assert {"standalone", "killed", "cluster"} <= kinds


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda archive: archive.name.removesuffix(".tar.xz"))
def test_folder_of_an_earlier_build_is_opened_and_answers_the_same(archive, new_node, tmp_path):
    folders = extract(archive, tmp_path)
    expected = json.loads((tmp_path / "answers.json").read_text())
    # The folders' time is that of their clock files, years ahead of any signature.
    arguments = ["--set", "auth.enabled=false"]
    nodes = [
        new_node(
            start=False,
            data=folder,
            arguments=arguments + (cluster_arguments(number, tmp_path) if len(folders) > 1 else []),
        )
        for number, folder in enumerate(folders, 1)
    ]
    # A second time: what the first start has made of the folder is opened, too.
    for _ in range(2):
        for node in nodes:
            node.spawn()
        for node in nodes:
            node.wait_ready()
            status = node.health("/status").json
            assert status["now"] >= 4_102_444_800, "time went back"
            assert status["purgingPaused"], "a wall clock years behind is no reason to trust it"
        for node in nodes:
            wait_until(lambda: led(node), "every group has a leader")
            assert answers(node) == expected
        for node in nodes:
            assert node.stop() == 0
        assert all("panicked" not in node.log() for node in nodes)


def led(node):
    cluster = node.health("/status").json["cluster"]
    return cluster is None or all(group["leader"] is not None for group in cluster["groups"])
