"""Damaged, cut, zeroed and missing files: whatever a node answers with 200 is right and complete, or it says why it does not answer."""

import json
import random
import shutil
import time

import pytest

from data_folder_test import count, fill, run
from node import Node, Refused, wait_until

# How long the sweep may take in a default run; it covers more on a faster machine.
THOROUGH_SWEEP_SECONDS_MAX = 240
SWEEP_SECONDS_MAX = 15
ITEMS = 40
PATH = "/dbs/d/colls/{}/docs"
CONTAINERS = ("hurt", "healthy")


def body(container, number):
    return {"id": str(number), "pk": "p", "container": container, "text": f"{number}" * 40}


def folder_of(node, container):
    """The folder of a container's only shard."""
    rid = node.raw("GET", f"/dbs/d/colls/{container}").json["_rid"].rstrip("=")
    return node.data / "shards" / f"{rid}-0"


def fill_all(node, items=ITEMS):
    fill(node, *CONTAINERS, "marker", items=0)
    for container in CONTAINERS:
        write(node, container, range(items))


def write(node, container, numbers):
    for number in numbers:
        written = node.raw(
            "POST", PATH.format(container), headers={"x-ms-documentdb-partitionkey": '["p"]'}, body=body(container, number)
        )
        assert written.status == 201, written


def wait_recorded(node):
    """Waits until the node has recorded all that was written to the containers by now."""
    marks = node.data / "watermarks"
    # The first record may have been begun before the last write.
    for number in range(2):
        begun = time.time_ns()
        write(node, "marker", [number])
        wait_until(lambda: marks.exists() and marks.stat().st_mtime_ns > begun, "the watermarks are written")  # noqa: B023


def wrong_answers(node, items):
    """What is wrong with the answers that say 200 or 404; those that say 503 are refusals."""
    wrong, refusals = [], 0
    for container in CONTAINERS:
        expected = {str(number): body(container, number) for number in items}
        asked = [node.raw("GET", PATH.format(container), headers={"x-ms-max-item-count": "1000"})]
        query = {"query": "SELECT VALUE COUNT(1) FROM c", "parameters": []}
        headers = {
            "x-ms-documentdb-isquery": "True", "content-type": "application/query+json",
            "x-ms-documentdb-partitionkey": '["p"]',
        }  # fmt: skip
        asked.append(node.raw("POST", PATH.format(container), headers=headers, body=json.dumps(query)))
        for number in items:
            path = PATH.format(container) + f"/{number}"
            asked.append(node.raw("GET", path, headers={"x-ms-documentdb-partitionkey": '["p"]'}))
        for index, answer in enumerate(asked):
            if answer.status == 503:
                refusals += 1
                continue
            if answer.status != 200:
                wrong.append((container, index, answer))
                continue
            if index == 1:
                right = answer.json["Documents"] == [len(expected)]
            else:
                found = answer.json["Documents"] if index == 0 else [answer.json]
                found = {item["id"]: {name: item[name] for name in item if not name.startswith("_")} for item in found}
                right = found == (expected if index == 0 else {str(items[index - 2]): expected[str(items[index - 2])]})
            if not right:
                wrong.append((container, index, answer))
    return wrong, refusals


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """A data folder after a clean stop, with several files of each kind."""
    node = Node()
    fill_all(node, ITEMS // 2)
    node.restart()
    for container in CONTAINERS:
        write(node, container, range(ITEMS // 2, ITEMS))
    assert node.stop() == 0
    kept = tmp_path_factory.mktemp("stopped") / "data"
    shutil.copytree(node.data, kept)
    node.close()
    return kept


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """A data folder after kill -9, with all that was written recorded, in SST files and in the WAL."""
    node = Node()
    fill_all(node, ITEMS // 2)
    node.restart()
    for container in CONTAINERS:
        write(node, container, range(ITEMS // 2, ITEMS))
    wait_recorded(node)
    node.kill()
    kept = tmp_path_factory.mktemp("killed") / "data"
    shutil.copytree(node.data, kept)
    node.close()
    return kept


def flip(path, chance):
    contents = bytearray(path.read_bytes())
    at = chance.randrange(len(contents))
    contents[at] ^= 1 << chance.randrange(8)
    path.write_bytes(contents)
    return at


def cut(path, chance):
    at = chance.randrange(path.stat().st_size)
    with open(path, "r+b") as file:
        file.truncate(at)
    return at


def zero(path, chance):
    contents = bytearray(path.read_bytes())
    at = chance.randrange(len(contents))
    length = min(len(contents) - at, chance.choice([1, 7, 512, 4096]))
    contents[at : at + length] = bytes(length)
    path.write_bytes(contents)
    return at, length


def remove(path, _):
    path.unlink()


MUTATIONS = {"flip": flip, "cut": cut, "zero": zero, "remove": remove}
# The engine's own diary and empty locks hold no data; the clock has tests of its own.
NO_DATA = ("LOCK", "LOG", "lock", "clock", "reserve")


def is_data(path):
    return path.is_file() and not path.name.startswith(NO_DATA)


def try_out(new_node, stopped, name, mutation, chance):
    """Damages one file of a copy and looks at what a check and a start make of it."""
    node = new_node(start=False)
    shutil.copytree(stopped, node.data, ignore=shutil.ignore_patterns("reserve"))
    path = node.data / name
    if mutation != "remove" and path.stat().st_size == 0:
        return "empty"
    how = MUTATIONS[mutation](path, chance)
    where = f"{mutation} {name} {how}"
    checked = run("check", "--data-path", node.data)
    assert checked.returncode in (0, 4), (where, checked)
    try:
        node.start()
    except Refused as refused:
        assert refused.code == 4, (where, refused)
        assert checked.returncode == 4, f"{where}: a start refuses what a check takes: {refused}"
        return "refused"
    wrong, refusals = wrong_answers(node, range(ITEMS))
    assert not wrong, (where, wrong[:3], node.log()[-3000:])
    if refusals:
        assert checked.returncode == 4, f"{where}: a check finds nothing, {refusals} answers are refused"
        assert "ERROR" in node.log(), where
        shards = [shard for one in node.health("/status").json["containers"] for shard in one["shards"]]
        assert any(shard["error"] or shard.get("damage") for shard in shards), (where, shards)
    node.kill()
    shutil.rmtree(node.data)
    return "503" if refusals else "right"


def sweep(new_node, stopped, seconds_max, seed, rounds):
    chance = random.Random(seed)
    print(f"--seed={seed}")
    names = sorted(str(path.relative_to(stopped)) for path in stopped.rglob("*") if is_data(path))
    cases = [(name, mutation) for name in names for mutation in MUTATIONS]
    deadline = time.monotonic() + seconds_max
    outcomes = {}
    for _ in range(rounds):
        chance.shuffle(cases)
        for name, mutation in cases:
            if time.monotonic() > deadline:
                return outcomes
            outcome = try_out(new_node, stopped, name, mutation, chance)
            outcomes[outcome] = outcomes.get(outcome, 0) + 1
    return outcomes


def seed_of(request):
    return request.config.getoption("--seed") or random.randrange(2**32)


def test_after_a_clean_stop_no_damaged_file_leads_to_a_wrong_answer(new_node, stopped, request):
    outcomes = sweep(new_node, stopped, SWEEP_SECONDS_MAX, seed_of(request), rounds=1)
    print(outcomes)
    assert outcomes.get("refused", 0) + outcomes.get("503", 0) > 0, outcomes


def test_after_a_kill_nothing_that_was_recorded_goes_missing_unnoticed(new_node, killed, request):
    outcomes = sweep(new_node, killed, SWEEP_SECONDS_MAX, seed_of(request), rounds=1)
    print(outcomes)
    assert outcomes.get("refused", 0) + outcomes.get("503", 0) > 0, outcomes


@pytest.mark.thorough
@pytest.mark.parametrize("end", ["stopped", "killed"])
def test_no_damage_anywhere_leads_to_a_wrong_answer(new_node, request, end):
    folder = request.getfixturevalue(end)
    print(sweep(new_node, folder, THOROUGH_SWEEP_SECONDS_MAX, seed_of(request), rounds=30))


# kill -9


def records(wal):
    """Where the records of a small WAL begin: checksum (4), length (2), type (1), data."""
    starts, at = [], 0
    while at + 7 <= len(wal):
        starts.append(at)
        at += 7 + int.from_bytes(wal[at + 4 : at + 6], "little")
    return starts


def longer(wal):
    """One bit in the length of a record in the middle: it seems to reach beyond the file."""
    wal[records(wal)[10] + 5] ^= 0x40


def without_header(wal):
    at = records(wal)[10]
    wal[at : at + 7] = bytes(7)


def halved(wal):
    del wal[records(wal)[10] :]


def emptied(wal):
    wal.clear()


@pytest.mark.parametrize("damage", [longer, without_header, halved, emptied, None], ids=lambda one: one and one.__name__ or "deleted")
def test_a_damaged_short_or_missing_wal_stops_its_shard_only(new_node, damage):
    node = new_node()
    fill_all(node, 21)
    wait_recorded(node)
    folder = folder_of(node, "hurt")
    node.kill()
    [wal] = folder.glob("*.log")
    if damage:
        contents = bytearray(wal.read_bytes())
        damage(contents)
        wal.write_bytes(contents)
    else:
        wal.unlink()
    checked = run("check", "--data-path", node.data)
    assert checked.returncode == 4 and f"damaged  {folder.name}" in checked.stdout, checked
    node.start()
    assert (count(node, "hurt"), count(node, "healthy")) == (None, 21)
    assert "cannot be opened" in node.log() and "damaged" in node.log()
    ready = node.health("/ready").body.decode()
    assert "hurt" in ready and "damaged" in ready


def test_a_torn_last_record_is_dropped_and_its_bytes_are_logged(new_node):
    """Nobody was told of it: the crash came before its fsync."""
    node = new_node()
    fill_all(node, 21)
    folder = folder_of(node, "hurt")
    node.kill()
    [wal] = folder.glob("*.log")
    with open(wal, "ab") as file:
        file.write(b"\x01\x02\x03\x04\xff\x00\x01unfinished")
    node.start()
    assert (count(node, "hurt"), count(node, "healthy")) == (21, 21)
    assert "torn_bytes=17" in node.log()


# Folders


def test_a_missing_shard_folder_stops_its_shard_only(new_node):
    node = new_node()
    fill_all(node)
    folder = folder_of(node, "hurt")
    node.stop()
    shutil.rmtree(folder)
    node.start()
    assert (count(node, "hurt"), count(node, "healthy")) == (None, ITEMS)
    assert "is missing" in node.log()
    assert not folder.exists(), "nothing empty takes its place"
    assert "missing" in node.health("/ready").body.decode()


def test_without_any_shard_folder_nothing_is_served(new_node):
    """A volume that is not mounted."""
    node = new_node()
    fill_all(node)
    node.stop()
    (node.data / "shards").rename(node.folder / "elsewhere")
    node.start()
    assert (count(node, "hurt"), count(node, "healthy")) == (None, None)
    node.stop()
    (node.folder / "elsewhere").rename(node.data / "shards")
    node.start()
    assert (count(node, "hurt"), count(node, "healthy")) == (ITEMS, ITEMS)


def test_the_folder_of_another_shard_is_noticed(new_node):
    node = new_node()
    fill_all(node)
    hurt, healthy = folder_of(node, "hurt"), folder_of(node, "healthy")
    node.stop()
    shutil.rmtree(hurt)
    shutil.copytree(healthy, hurt)
    node.start()
    assert (count(node, "hurt"), count(node, "healthy")) == (None, ITEMS)
    assert "the folder is that of range 0" in node.log()


def test_the_folder_of_another_data_folder_is_noticed(new_node):
    node, other = new_node(), new_node()
    for each in (node, other):
        fill_all(each)
    hurt, foreign = folder_of(node, "hurt"), folder_of(other, "hurt")
    node.stop()
    other.stop()
    shutil.rmtree(hurt)
    shutil.copytree(foreign, hurt)
    node.start()
    assert (count(node, "hurt"), count(node, "healthy")) == (None, ITEMS)
    assert "another data folder" in node.log()


# Reading


def test_damage_that_is_met_while_reading_is_logged_counted_and_shown(new_node):
    node = new_node()
    fill(node, *CONTAINERS, items=0)
    for number in range(100):
        item = {"id": str(number), "pk": "p", "text": random.randbytes(1_000).hex()}
        headers = {"x-ms-documentdb-partitionkey": '["p"]'}
        assert node.raw("POST", PATH.format("hurt"), headers=headers, body=item).status == 201
    folder = folder_of(node, "hurt")
    node.stop()
    table = max(folder.glob("*.sst"), key=lambda path: path.stat().st_size)
    with open(table, "r+b") as file:
        file.seek(table.stat().st_size // 4)
        file.write(b"\xde\xad\xbe\xef" * 10_000)
    node.start()
    assert count(node, "hurt") is None
    assert "damaged files were read" in node.log()
    assert node.metric("bolide_storage_damage_total") > 0
    containers = {one["container"]: one["shards"] for one in node.health("/status").json["containers"]}
    [hurt], [healthy] = containers["dbs/d/colls/hurt"], containers["dbs/d/colls/healthy"]
    assert hurt["damage"]["count"] > 0 and hurt["damage"]["first"]
    assert healthy["damage"] is None
    lines = node.log().count("damaged files were read")
    for number in range(100):
        node.raw("GET", PATH.format("hurt") + f"/{number}", headers={"x-ms-documentdb-partitionkey": '["p"]'})
    assert node.log().count("damaged files were read") < lines + 20, "the log has a bound"
