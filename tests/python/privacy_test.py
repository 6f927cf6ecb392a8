"""Secrets and data of a node are not for other users of its machine, nor for those who read its output."""

import base64
import os
import stat

from azure.cosmos import PartitionKey

from authentication_test import a_key, write_keys
from cluster_test import Cluster
from node import EMULATOR_KEY


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def open_paths(folder):
    """What group or others have rights to, below a folder and itself."""
    return [path for path in [folder, *folder.rglob("*")] if mode(path) & 0o077]


def test_the_account_key_is_not_printed_unless_it_is_the_well_known_one(node, new_node, tmp_path):
    assert EMULATOR_KEY in node.output()
    assert "AccountKey=" in node.output()
    keys = tmp_path / "keys.toml"
    write_keys(keys, **{name: a_key(letter) for name, letter in zip(["primary", "secondary", "primary_readonly"], "abr")})
    own = new_node(arguments=["--key-file", str(keys)], key=a_key("a"))
    assert own.raw("GET", "/dbs").status == 200
    said = own.output() + own.log()
    for letter in "abr":
        assert a_key(letter) not in said
        assert base64.b64decode(a_key(letter)).hex() not in said
    assert "AccountKey" not in said
    assert str(keys) in own.output()


def test_data_folders_and_their_files_are_their_owners_alone(new_node):
    node = new_node(start=False, protocol="https")
    before = os.umask(0o022)
    try:
        node.start()
    finally:
        os.umask(before)
    container = node.client().create_database("d").create_container("c", PartitionKey("/pk"))
    container.create_item({"id": "1", "pk": "p"})
    assert any(node.data.rglob("*.log")), "there is a journal"
    assert open_paths(node.data) == []
    node.stop()
    assert open_paths(node.data) == []


def test_an_open_data_folder_is_closed_at_start(new_node):
    node = new_node(start=False)
    node.data.mkdir(mode=0o755)
    node.data.chmod(0o755)
    node.start()
    assert mode(node.data) == 0o700
    assert "took the rights of other users from the data folder" in node.log()
    node.restart()
    assert node.log().count("took the rights") == 1


def test_a_key_file_that_others_can_read_is_warned_about(new_node, tmp_path):
    keys = tmp_path / "keys.toml"
    write_keys(keys, primary=a_key("a"))
    quiet = new_node(arguments=["--key-file", str(keys)], key=a_key("a"))
    assert "chmod 600" not in quiet.log()
    keys.chmod(0o644)
    node = new_node(arguments=["--key-file", str(keys)], key=a_key("a"))
    assert "account key file can be read by other users" in node.log()
    assert str(keys) in node.log() and "chmod 600" in node.log()


def test_a_cluster_key_that_others_can_read_is_warned_about(new_node, tmp_path):
    cluster = Cluster(new_node, tmp_path, 1)
    assert "cluster key file can be read by other users" not in cluster.nodes[1].log()
    cluster.key.chmod(0o640)
    cluster.nodes[1].restart()
    assert "cluster key file can be read by other users" in cluster.nodes[1].log()
