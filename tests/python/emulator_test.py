"""A node in the place of the Cosmos DB emulator: its variables and flags, its key, its names, and the lines that tools wait for."""

import os
import re
import subprocess

import pytest

from authentication_test import a_key
from node import EMULATOR_KEY, Refused, binary, free_ports, settings_free

# As the testcontainers modules set them; PORT comes with each test.
TESTCONTAINERS = {"PROTOCOL": "http", "ENABLE_TELEMETRY": "false", "ENABLE_EXPLORER": "false"}
SECONDS_MAX = 60


def in_place_of_the_emulator(new_node, environment=None, arguments=(), **options):
    """A node whose address comes from the emulator's variables alone."""
    node = new_node(start=False, **options)
    node.environment = {
        "PORT": str(node.port), "BOLIDE_SERVER__HEALTH_PORT": str(node.health_port), "DATA_PATH": str(node.data), **(environment or {}),
    }  # fmt: skip
    node.command = lambda: [str(binary()), "serve", "--emulator", *arguments]
    return node


def refused(environment, *arguments):
    command = [binary(), "serve", "--emulator", *arguments]
    every = {**settings_free(os.environ), **environment}
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, check=False, env=every)
    assert done.returncode == 2, done
    assert done.stdout == "" and done.stderr.count("\n") == 1, done
    return done.stderr


def ready(node, *arguments):
    command = [binary(), "ready", *arguments]
    every = {**settings_free(os.environ), "BOLIDE_SERVER__HEALTH_PORT": str(node.health_port)}
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, check=False, env=every)


def test_the_variables_of_testcontainers_start_a_node_that_the_sdk_uses(new_node):
    node = in_place_of_the_emulator(new_node, TESTCONTAINERS, ["--host", "0.0.0.0"]).start()
    lines = node.output().splitlines()
    assert f"Now listening on: {node.endpoint}" in lines
    assert "System is now fully ready to accept requests" in lines
    node.client().create_database("d")
    assert [database["id"] for database in node.client().list_databases()] == ["d"]


def test_what_has_no_counterpart_is_named_in_one_line_and_the_open_key_in_another(new_node):
    environment = {**TESTCONTAINERS, "CERT_SECRET": "hush", "QUERY_BUFFER_SIZE_KB": "64"}
    node = in_place_of_the_emulator(new_node, environment, ["--host", "0.0.0.0", "--explorer-port", "1234"]).start()
    [line] = [line for line in node.log().splitlines() if "without a counterpart" in line]
    for name in ["CERT_SECRET", "ENABLE_EXPLORER", "ENABLE_TELEMETRY", "QUERY_BUFFER_SIZE_KB", "--explorer-port"]:
        assert name in line
    assert "hush" not in node.log() and "PROTOCOL" not in line
    [warning] = [line for line in node.log().splitlines() if "knows the account's key" in line]
    assert "WARN" in warning and "0.0.0.0" in warning


def test_on_loopback_with_nothing_ignored_there_is_nothing_to_warn_of(new_node):
    node = in_place_of_the_emulator(new_node).start()
    assert "WARN" not in node.log()


def test_without_the_mode_the_variables_and_lines_of_the_emulator_are_nothing(new_node):
    node = new_node(environment={"PORT": "http", "PROTOCOL": "ftp", "KEY_FILE": "/no/such", "DATA_PATH": "/no/such"})
    assert node.raw("GET", "/dbs").status == 200
    assert "Now listening on" not in node.output() and "fully ready" not in node.output()
    with pytest.raises(Refused) as refusal:
        new_node(arguments=["--host", "0.0.0.0"])
    assert refusal.value.code == 2 and "--emulator" in refusal.value.output


@pytest.mark.parametrize(
    ("variable", "value"),
    [("PORT", "http"), ("PORT", "99999"), ("PROTOCOL", "ftp"), ("LOG_LEVEL", "loud"), ("CERT_PATH", "/no/such.pfx")],
)
def test_a_wrong_value_is_one_line_that_names_it_and_the_variable(variable, value):
    message = refused({variable: value})
    assert f"environment variable {variable}" in message and value in message


def test_a_misspelt_variable_of_our_own_is_an_error_as_ever():
    assert "did you mean BOLIDE_SERVER__PORT?" in refused({"BOLIDE_SERVER__PROT": "1", "PORT": "8081"})


def test_the_emulators_flags_are_for_its_mode_only(tmp_path):
    done = subprocess.run(
        [binary(), "--enable-explorer", "--data-path", tmp_path], capture_output=True, text=True, timeout=SECONDS_MAX, check=False
    )
    assert done.returncode == 2 and "--enable-explorer" in done.stderr and "--emulator" in done.stderr


def test_mapped_ports_and_the_names_of_the_engine_are_answered_as_they_were_asked_for(new_node):
    environment = {"GATEWAY_PUBLIC_ENDPOINT": "db.example.org:8081"}
    node = in_place_of_the_emulator(new_node, environment, ["--host", "0.0.0.0"]).start()
    for host in ["host.docker.internal:49153", "localhost:49153", "cosmos:8081", "172.17.0.1:49153", "db.example.org:80"]:
        account = node.raw("GET", "/", {"host": host}).json
        assert account["writableLocations"][0]["databaseAccountEndpoint"] == f"http://{host}/", host
    assert node.raw("GET", "/dbs", {"host": "evil.example"}).status == 403


def test_https_insecure_is_https_with_a_certificate_for_the_engines_names(new_node):
    node = in_place_of_the_emulator(new_node, {"PROTOCOL": "https-insecure"}, protocol="https").start()
    assert node.raw("GET", "/dbs").status == 200
    assert f"Now listening on: https://127.0.0.1:{node.port}/" in node.output()
    certificate = subprocess.run(
        ["openssl", "x509", "-in", node.data / "tls/cert.pem", "-noout", "-ext", "subjectAltName"],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert "host.docker.internal" in certificate


def test_a_certificate_and_its_key_in_one_pem_file_are_taken(new_node, tmp_path):
    made = in_place_of_the_emulator(new_node, {"PROTOCOL": "https"}, protocol="https").start()
    made.stop()
    both = tmp_path / "both.pem"
    both.write_text((made.data / "tls/key.pem").read_text() + (made.data / "tls/cert.pem").read_text())
    node = in_place_of_the_emulator(new_node, {"CERT_PATH": str(both)}, protocol="https").start()
    assert node.raw("GET", "/dbs").status == 200
    assert not (node.data / "tls").exists(), "no development certificate is made"


def test_a_key_file_is_the_account_s_key_and_needs_no_warning(new_node, tmp_path):
    file = tmp_path / "key"
    file.write_text(a_key("a"))
    file.chmod(0o600)
    node = in_place_of_the_emulator(new_node, {"KEY_FILE": str(file)}, ["--host", "0.0.0.0"], key=a_key("a")).start()
    assert node.raw("GET", "/dbs").status == 200
    assert node.raw("GET", "/dbs", key=EMULATOR_KEY).status == 401
    assert "WARN" not in node.log() and a_key("a") not in node.output()


def test_a_quiet_log_still_prints_the_lines_that_tools_wait_for(new_node):
    node = in_place_of_the_emulator(new_node, {"LOG_LEVEL": "quiet", **TESTCONTAINERS}).start()
    assert node.log() == ""
    assert "Now listening on: " in node.output()


def test_ready_says_so_in_one_line_and_by_its_exit_code(new_node):
    node = in_place_of_the_emulator(new_node)
    before = ready(node)
    assert before.returncode == 1 and "nobody answers" in before.stderr and str(node.health_port) in before.stderr
    node.start()
    for arguments in [[], ["--strict"], ["--health-endpoint", f"http://localhost:{node.health_port}"]]:
        done = ready(node, *arguments)
        assert (done.returncode, done.stdout, done.stderr) == (0, "ready\n", ""), arguments
    wrong = ready(node, "--health-port", str(node.port))
    assert wrong.returncode == 1 and "is it the health port" in wrong.stderr
    [unused] = free_ports(1)
    assert ready(node, "--health-port", str(unused)).returncode == 1
    assert ready(node, "--health-port", "x").returncode == 2


def test_the_banner_is_one_block_and_no_line_is_of_the_runtime(new_node):
    node = in_place_of_the_emulator(new_node, TESTCONTAINERS, ["--host", "0.0.0.0"])
    # One file for both, as a terminal or the log of a container has them.
    node.log_path = node.output_path
    node.start()
    banner = re.search(r"^Bolide .*\n(?:  .*\n)+Now listening on: .*\nSystem is now fully ready.*\n", node.output(), re.M)
    assert banner, node.output()
    assert "actix" not in node.output().lower(), node.output()
