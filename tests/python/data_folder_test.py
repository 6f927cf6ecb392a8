"""Whose data folder it is, what a start sets aside, and what `bolide check` finds."""

import hashlib
import json
import shutil
import subprocess
import time

import pytest

from cluster_test import Cluster, at, drain, ids, make
from node import Refused, binary, free_ports, wait_until


def fill(node, *containers, items=20, keys=1):
    """A database with some containers of some items each, under one partition key or several."""
    node.raw("POST", "/dbs", body={"id": "d"})
    for container in containers:
        body = {"id": container, "partitionKey": {"paths": ["/pk"], "kind": "Hash", "version": 2}}
        assert node.raw("POST", "/dbs/d/colls", body=body).status == 201
        for number in range(items):
            key = "p" if keys == 1 else f"p{number % keys}"
            headers = {"x-ms-documentdb-partitionkey": f'["{key}"]'}
            created = node.raw("POST", f"/dbs/d/colls/{container}/docs", headers=headers, body={"id": str(number), "pk": key})
            assert created.status == 201, created


def count(node, container):
    """How many items of a container can be read, by the feed; None where that is refused with 503."""
    answer = node.raw("GET", f"/dbs/d/colls/{container}/docs", headers={"x-ms-max-item-count": "1000"})
    if answer.status == 503:
        return None
    assert answer.status == 200, answer
    return len(answer.json["Documents"])


def shards(node):
    return {path.name for path in (node.data / "shards").iterdir()}


def run(*arguments):
    command = [str(binary()), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def refused(node, code, *words):
    with pytest.raises(Refused) as ended:
        node.start()
    assert ended.value.code == code, ended.value
    for word in words:
        assert word in ended.value.output, ended.value
    return ended.value


# What the catalog does not know


def test_an_older_catalog_is_refused_and_no_shard_is_touched(new_node):
    node = new_node()
    fill(node, "first", keys=20)
    node.stop()
    backup = (node.data / "catalog").read_bytes()
    node.start()
    fill(node, "second")
    split = node.order("/split?container=dbs/d/colls/first")
    assert split.status == 200, split
    node.stop()
    newest, there = (node.data / "catalog").read_bytes(), shards(node)
    (node.data / "catalog").write_bytes(backup)
    refused(node, 4, "version", "restore the whole data folder")
    assert shards(node) == there
    (node.data / "catalog").write_bytes(newest)
    node.start()
    assert (count(node, "first"), count(node, "second")) == (20, 20)


def test_an_older_catalog_is_refused_without_the_watermarks_too(new_node):
    """Every shard knows the version of the catalog that has named it."""
    node = new_node()
    fill(node, "first")
    node.stop()
    backup = (node.data / "catalog").read_bytes()
    node.start()
    fill(node, "second")
    node.stop()
    (node.data / "watermarks").unlink()
    (node.data / "catalog").write_bytes(backup)
    refused(node, 4, "knows version", "restore the whole data folder")


def test_a_folder_that_the_catalog_does_not_know_is_set_aside_listed_and_deleted_by_command(new_node):
    node = new_node()
    fill(node, "kept")
    node.stop()
    [shard] = shards(node)
    stranger = node.data / "shards" / (shard.removesuffix("-0") + "-7")
    shutil.copytree(node.data / "shards" / shard, stranger)
    (node.data / "shards" / "lost+found").mkdir()
    node.start()
    assert count(node, "kept") == 20
    [removed] = node.health("/status").json["removed"]
    assert removed["name"].startswith(stranger.name) and removed["bytes"] > 0 and removed["since"] > 0
    assert node.metric("bolide_storage_removed_bytes") == removed["bytes"]
    assert "set aside" in node.log()
    assert shards(node) == {shard, "lost+found"}, "what is no shard is left alone"
    assert run("removed", "list", "--data-path", node.data).returncode == 3, "the node is running"
    node.stop()
    assert removed["name"] in run("removed", "list", "--data-path", node.data).stdout
    unknown = run("removed", "delete", "nothing", "--data-path", node.data)
    assert unknown.returncode == 2 and "'nothing'" in unknown.stderr
    assert run("removed", "delete", removed["name"], "--data-path", node.data).returncode == 0
    assert run("removed", "list", "--data-path", node.data).stdout == ""
    node.start()
    assert node.health("/status").json["removed"] == []
    assert count(node, "kept") == 20


def test_what_the_catalog_has_given_up_is_deleted_at_a_start(new_node):
    """A crash may come between the catalog and the files."""
    node = new_node()
    fill(node, "kept", "deleted")
    node.stop()
    before = shards(node)
    copies = node.folder / "copies"
    shutil.copytree(node.data / "shards", copies)
    node.start()
    assert node.raw("DELETE", "/dbs/d/colls/deleted").status == 204
    wait_until(lambda: len(shards(node)) == 1, "the files of the container are gone")
    node.stop()
    [gone] = before - shards(node)
    shutil.copytree(copies / gone, node.data / "shards" / gone)
    node.start()
    assert gone not in shards(node)
    assert node.health("/status").json["removed"] == []


def test_what_a_killed_split_leaves_is_deleted_at_a_start(new_node):
    """A split notes that it makes copies, by a file of the data folder's own id."""
    node = new_node()
    fill(node, "c", items=200, keys=50)
    node.order("/split?container=dbs/d/colls/c")
    wait_until(lambda: len(shards(node)) == 2, "the shard is split")
    node.stop()
    [part, _] = sorted(shards(node))
    folder = node.data / "shards"
    for left in ("new", "new.tmp"):
        shutil.copytree(folder / part, folder / f"{part}.{left}")
    contents = json.loads((node.data / "identity").read_bytes()[40:])["folder"]
    contents = bytes(contents)
    (folder / f"{part}.copying").write_bytes(b"BOLIDEC1" + hashlib.sha256(contents).digest() + contents)
    node.start()
    assert not [name for name in shards(node) if "." in name]
    assert node.health("/status").json["removed"] == []
    assert count(node, "c") == 200


@pytest.mark.parametrize("how", ["moved to new", "moved to new.tmp", "copied to old", "copied to new", "moved to split range"])
def test_a_folder_that_was_renamed_or_copied_by_hand_is_never_deleted(new_node, how):
    node = new_node()
    fill(node, "c", items=200, keys=50)
    node.order("/split?container=dbs/d/colls/c")
    wait_until(lambda: len(shards(node)) == 2, "the shard is split")
    node.stop()
    [part, _] = sorted(shards(node))
    act, _, name = how.partition(" to ")
    folder = node.data / "shards"
    target = folder / (part[:-1] + "0" if name == "split range" else f"{part}.{name}")
    {"moved": shutil.move, "copied": shutil.copytree}[act](folder / part, target)
    told = run("check", "--data-path", node.data)
    assert f"{target.name}: moved to removed/ by a start" in told.stdout, told.stdout
    node.start()
    [removed] = node.health("/status").json["removed"]
    kept = node.data / "removed" / removed["name"]
    assert (kept / "shard.id").exists() and list(kept.glob("*.sst"))
    if act == "copied":
        assert count(node, "c") == 200
        return
    # What was moved away by hand can be moved back.
    node.stop()
    shutil.rmtree(folder / part, ignore_errors=True)
    shutil.move(kept, folder / part)
    node.start()
    assert count(node, "c") == 200


def test_lost_sequence_numbers_are_said_and_recorded_anew(new_node):
    node = new_node()
    fill(node, "kept")
    node.stop()
    (node.data / "watermarks").unlink()
    done = run("check", "--data-path", node.data)
    assert done.returncode == 4 and "watermarks is missing" in done.stdout
    node.start()
    assert "watermarks is missing" in node.health("/status").json["lostSequences"]
    assert node.metric("bolide_storage_sequences_lost") == 1
    assert "recorded sequence numbers are lost" in node.log()
    assert count(node, "kept") == 20
    node.stop()
    assert run("check", "--data-path", node.data).returncode == 0
    node.start()
    assert node.health("/status").json["lostSequences"] is None
    assert node.metric("bolide_storage_sequences_lost") == 0


# Whose folder it is


def member(new_node, tmp_path, data=None, node=1, name="bolide", port=None):
    key = tmp_path / "cluster.key"
    key.write_text("0123456789abcdef" * 4)
    port = port or free_ports(1)[0]
    return new_node(
        start=False,
        data=data,
        arguments=[
            "--set", f"cluster.node={node}", "--set", f"cluster.members={node}=127.0.0.1:{port}",
            "--set", f"cluster.key_file={key}", "--set", f"cluster.name={name}",
        ],  # fmt: skip
    )


def led(node):
    groups = node.health("/status").json["cluster"]["groups"]
    return groups and all(group["leader"] is not None for group in groups)


def test_the_folder_of_a_member_is_refused_without_its_cluster_in_another_one_and_under_another_number(new_node, tmp_path):
    owner = member(new_node, tmp_path)
    owner.start()
    wait_until(lambda: led(owner), "the cluster has a leader")
    fill(owner, "c")
    assert owner.stop() == 0
    refused(new_node(start=False, data=owner.data), 2, "node 1 of the cluster 'bolide'")
    refused(member(new_node, tmp_path, owner.data, name="other"), 2, "cluster 'bolide'", "'other'")
    refused(member(new_node, tmp_path, owner.data, node=2), 2, "node 1", "2")
    owner.start()
    wait_until(lambda: led(owner), "the cluster has a leader")
    assert count(owner, "c") == 20
    owner.stop()
    shutil.rmtree(owner.data / "raft")
    refused(owner, 4, "Raft log")


def test_a_raft_log_whose_wal_is_missing_is_damage(new_node, tmp_path):
    """A member that has forgotten what it has voted for must not vote again."""
    owner = member(new_node, tmp_path)
    owner.start()
    wait_until(lambda: led(owner), "the cluster has a leader")
    marks = owner.data / "watermarks"
    for container in ("a", "b"):
        begun = time.time_ns()
        fill(owner, container)
        wait_until(lambda: marks.exists() and marks.stat().st_mtime_ns > begun, "the watermarks are written")  # noqa: B023
    owner.kill()
    for wal in (owner.data / "raft").glob("*.log"):
        wal.unlink()
    assert run("check", "--data-path", owner.data).returncode == 4
    refused(owner, 4, "Raft log", "missing or short")


def test_a_replica_whose_folder_is_missing_is_filled_by_the_others(new_node, tmp_path):
    cluster = Cluster(new_node, tmp_path)
    make(cluster.nodes[1])
    written = [f"{index:03}" for index in range(30)]
    for name in written:
        at(cluster.nodes[1]).create_item({"id": name, "pk": name})
    cluster.wait_level(("shop", "items"))
    lost = cluster.nodes[3]
    assert lost.stop() == 0
    for folder in (lost.data / "shards").iterdir():
        shutil.rmtree(folder)
    lost.start()
    cluster.wait_led()
    cluster.wait_level(("shop", "items"))
    cluster.nodes[1].kill()
    cluster.wait_led()
    assert ids(at(lost)) == written


def test_the_folder_of_a_standalone_node_is_refused_in_a_cluster(new_node, tmp_path):
    alone = new_node()
    fill(alone, "c")
    alone.stop()
    refused(member(new_node, tmp_path, alone.data), 2, "standalone")
    alone.start()
    assert count(alone, "c") == 20


@pytest.mark.parametrize("number", [1, 3])
def test_a_node_that_was_taken_out_while_it_was_down_ends_with_exit_code_2(new_node, tmp_path, number):
    """Whether it dials the others (the higher number does) or not."""
    cluster = Cluster(new_node, tmp_path)
    make(cluster.nodes[2])
    cluster.nodes[number].kill()
    wait_until(lambda: drain(cluster, number, by=2).returncode == 0, "the node is taken out")
    refused(cluster.nodes[number], 2, f"node {number} was taken out of the cluster", "empty data folder")
    assert cluster.nodes[number].log().count("connected") < 20


@pytest.mark.parametrize(
    ("magic", "words"), [(b"BOLIDEC1", "older version"), (b"BOLIDEC4", "newer version"), (b"NOTHING!", "damaged")]
)
def test_a_catalog_of_another_layout_is_called_by_its_name(new_node, magic, words):
    node = new_node()
    fill(node, "c", items=1)
    node.stop()
    catalog = (node.data / "catalog").read_bytes()
    (node.data / "catalog").write_bytes(magic + catalog[8:])
    ended = refused(node, 4, words)
    assert words == "damaged" or "damaged" not in ended.output.rsplit("bolide:", 1)[-1]


# Checks


def everything(folder):
    """All files of a folder with their contents and times."""
    found = {}
    for path in sorted(folder.rglob("*")):
        about = path.stat()
        contents = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        found[str(path.relative_to(folder))] = (contents, about.st_mtime_ns, about.st_ctime_ns, about.st_mode)
    return found


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_check_changes_nothing_and_finds_nothing_in_a_whole_folder(new_node, end):
    node = new_node()
    fill(node, "one", "two")
    in_use = run("check", "--data-path", node.data)
    assert in_use.returncode == 3 and "in use" in in_use.stderr
    getattr(node, end)()
    before = everything(node.data)
    done = run("check", "--data-path", node.data)
    assert done.returncode == 0, done
    assert "nothing is damaged" in done.stdout
    assert everything(node.data) == before
    assert run("check", "--data-path", node.folder / "missing").returncode == 2


def test_a_check_without_the_identity_says_what_a_start_does(new_node):
    node = new_node()
    fill(node, "one")
    node.stop()
    (node.data / "identity").unlink()
    done = run("check", "--data-path", node.data)
    assert done.returncode == 0 and "restores from the catalog" in done.stdout, done
    node.start()
    assert count(node, "one") == 20
    assert (node.data / "identity").exists()


def test_a_check_refuses_shards_without_a_catalog_as_a_start_does(new_node):
    node = new_node()
    fill(node, "one")
    node.stop()
    for file in ("catalog", "identity", "watermarks", "clock"):
        (node.data / file).unlink()
    done = run("check", "--data-path", node.data)
    assert done.returncode == 4 and "there is no catalog beside it" in done.stdout, done
    refused(node, 4, "there is no catalog beside it")


@pytest.mark.parametrize("file", ["clock", "time", "node", "filled"])
def test_a_check_reads_the_small_files_too(new_node, file):
    node = new_node()
    fill(node, "one", items=1)
    node.stop()
    (node.data / file).write_bytes(b"garbage")
    done = run("check", "--data-path", node.data)
    assert done.returncode == 4 and f"damaged  {file}" in done.stdout, done


def test_a_check_names_what_is_damaged_and_changes_nothing(new_node):
    node = new_node()
    fill(node, "one", "two")
    node.stop()
    hurt, whole = sorted(shards(node))
    table = max((node.data / "shards" / hurt).glob("*.sst"), key=lambda path: path.stat().st_size)
    contents = bytearray(table.read_bytes())
    contents[100] ^= 0x40
    table.write_bytes(contents)
    before = everything(node.data)
    done = run("check", "--data-path", node.data)
    assert done.returncode == 4, done
    assert f"damaged  {hurt}" in done.stdout and f"ok       {whole}" in done.stdout
    assert everything(node.data) == before
