"""Starting, being looked at, stopping, and what stays over a restart."""

import re
import subprocess

import pytest
from azure.cosmos import CosmosClient, PartitionKey

from node import EMULATOR_KEY, Refused, binary, free_ports


def test_start_prints_endpoint_key_and_connection_string(new_node):
    node = new_node()
    printed = node.output()
    assert f"127.0.0.1:{node.port}" in printed
    assert EMULATOR_KEY in printed
    connection_string = re.search(r"AccountEndpoint=\S+?;\s*AccountKey=[A-Za-z0-9+/=]+;?", printed)
    assert connection_string, printed
    with CosmosClient.from_connection_string(connection_string.group()) as client:
        assert list(client.list_databases()) == []


def test_health_port_answers_alive_ready_status_and_metrics(node):
    assert node.health("/alive").status == 200
    assert node.health("/ready").status == 200
    assert isinstance(node.health("/status").json, dict)
    metrics = node.health("/metrics")
    assert metrics.status == 200
    assert re.search(rb"^bolide_\w+", metrics.body, re.M)
    assert node.health("/nothing-here").status == 404


def test_sigterm_stops_with_exit_code_0_and_everything_is_there_after_a_restart(new_node):
    node = new_node()
    client = node.client()
    container = client.create_database("kept").create_container("kept", PartitionKey("/pk"), default_ttl=1000)
    item = container.create_item({"id": "kept", "pk": "p", "text": "ä €"})
    assert node.restart() == 0
    container = node.client().get_database_client("kept").get_container_client("kept")
    assert container.read()["defaultTtl"] == 1000
    assert container.read_item("kept", "p") == item


def test_log_sequence_and_timestamps_go_on_after_a_restart(new_node):
    node = new_node()
    container = node.client().create_database("d").create_container("c", PartitionKey("/pk"))
    before = container.create_item({"id": "before", "pk": "p"})
    lsn_before = int(container.client_connection.last_response_headers["lsn"])
    node.restart()
    container = node.client().get_database_client("d").get_container_client("c")
    after = container.create_item({"id": "after", "pk": "p"})
    assert after["_ts"] >= before["_ts"]
    assert int(container.client_connection.last_response_headers["lsn"]) > lsn_before
    assert after["_rid"] != before["_rid"]


def test_second_process_on_the_same_data_folder_refuses_with_exit_code_3(new_node):
    first = new_node()
    with pytest.raises(Refused) as refused:
        new_node(data=first.data)
    assert refused.value.code == 3
    assert str(first.data) in refused.value.output
    assert list(first.client().list_databases()) == []


def test_port_in_use_is_said_and_ends_the_process(new_node):
    first = new_node()
    second = new_node(start=False)
    second.port = first.port
    with pytest.raises(Refused) as refused:
        second.start()
    assert refused.value.code != 0
    assert str(first.port) in refused.value.output


@pytest.mark.parametrize("arguments", [["--protocol", "gopher"], ["--port", "none"], ["--no-such-flag"]])
def test_bad_command_line_ends_with_exit_code_2(arguments):
    done = subprocess.run([binary(), "serve", *arguments], capture_output=True, text=True, timeout=30)
    assert done.returncode == 2
    assert arguments[-1] in done.stderr


def test_misspelt_setting_is_refused_with_the_nearest_right_one(tmp_path):
    (tmp_path / "bolide.toml").write_text("[server]\npotr = 8081\n")
    port, health_port = free_ports(2)
    done = subprocess.run(
        [binary(), "serve", "--config", str(tmp_path / "bolide.toml"), "--data-path", str(tmp_path / "data"),
         "--port", str(port), "--health-port", str(health_port)],
        capture_output=True, text=True, timeout=30,
    )  # fmt: skip
    assert done.returncode == 2
    assert "potr" in done.stderr


def test_help_explains_every_flag():
    done = subprocess.run([binary(), "serve", "--help"], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0
    for flag in ["--data-path", "--port", "--health-port", "--protocol", "--key-file", "--config", "--host"]:
        assert flag in done.stdout
