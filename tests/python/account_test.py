"""The account that clients read first."""

import json

from node import EMULATOR_KEY


def test_account_names_its_locations_as_the_client_reached_it(node):
    account = node.raw("GET", "/").json
    assert account["id"] and account["id"] != "localhost"
    for kind in ["writableLocations", "readableLocations"]:
        [location] = account[kind]
        assert location["databaseAccountEndpoint"] == f"http://127.0.0.1:{node.port}/"
        assert location["name"]
    named = node.raw("GET", "/", headers={"host": f"localhost:{node.port}"}).json
    assert named["writableLocations"][0]["databaseAccountEndpoint"] == f"http://localhost:{node.port}/"


def test_account_has_what_each_sdk_insists_on(node):
    account = node.raw("GET", "/").json
    assert account["_rid"] and "_self" in account
    assert account["userConsistencyPolicy"]["defaultConsistencyLevel"] == "Session"
    assert account["userReplicationPolicy"]["maxReplicasetSize"] >= 1
    assert isinstance(json.loads(account["queryEngineConfiguration"]), dict)
    assert account["enableMultipleWriteLocations"] is False
    assert not any(name.startswith("thinClient") for name in account)


def test_sdk_reads_it(client):
    account = client.get_database_account()
    assert account.ConsistencyPolicy["defaultConsistencyLevel"] == "Session"
    assert len(account.WritableLocations) == 1


def test_settings_come_from_file_environment_and_flags_in_this_order(new_node, tmp_path):
    config = tmp_path / "bolide.toml"
    config.write_text('[server]\naccount = "from-file"\nregion = "West US"\n')
    node = new_node(
        arguments=["--config", str(config), "--set", "server.region=East US"],
        environment={"BOLIDE_SERVER__ACCOUNT": "from-environment", "BOLIDE_SERVER__REGION": "North Europe"},
    )
    account = node.raw("GET", "/", key=EMULATOR_KEY).json
    assert account["id"] == "from-environment"
    assert account["writableLocations"][0]["name"] == "East US"
