"""What people get wrong at the command line: each mistake is named, and ends with exit code 2."""

import os
import subprocess

import pytest

from node import binary, free_ports, settings_free

SECONDS_MAX = 60


def bolide(*arguments, **options):
    command = [binary(), *map(str, arguments)]
    environment = settings_free(os.environ)
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, check=False, env=environment, **options)


def refused(*arguments):
    done = bolide("serve", *arguments)
    assert done.returncode == 2, done
    assert "panicked" not in done.stderr, done
    return done.stderr


def test_a_host_without_an_address_is_named(tmp_path):
    message = refused("--host", "no-such-host.invalid", "--data-path", tmp_path)
    assert "'no-such-host.invalid'" in message
    assert "well-known key" not in message


def test_equal_ports_are_named(tmp_path):
    [port] = free_ports(1)
    message = refused("--port", port, "--health-port", port, "--data-path", tmp_path)
    assert f"server.port and server.health_port are both {port}" in message


def test_a_region_that_no_sdk_knows_is_refused_with_the_nearest(tmp_path):
    assert "'West Europe'" in refused("--set", "server.region=Wst Europe", "--data-path", tmp_path)


def test_a_key_file_without_a_key_says_what_is_expected(tmp_path):
    file = tmp_path / "keys"
    file.write_text("this is no key\n")
    message = refused("--key-file", file, "--data-path", tmp_path / "data")
    assert str(file) in message
    assert "base64" in message
    assert "expected `" not in message


def test_a_certificate_means_https_and_contradicts_http(new_node, tmp_path):
    made = new_node(protocol="https")
    made.stop()
    files = ["--tls-cert", made.data / "tls/cert.pem", "--tls-key", made.data / "tls/key.pem"]
    assert "--protocol https" in refused(*files, "--protocol", "http", "--data-path", tmp_path)
    node = new_node(protocol="https", start=False, arguments=map(str, files))
    command = node.command()
    at = command.index("--protocol")
    node.command = lambda: command[:at] + command[at + 2 :]
    node.start()
    assert node.raw("GET", "/dbs").status == 200
    assert "serves https://" in node.output()


@pytest.mark.parametrize("protocol", ["http", "https"])
def test_joining_at_a_port_of_clients_says_so(new_node, tmp_path, protocol):
    node = new_node(protocol=protocol)
    key = tmp_path / "cluster.key"
    key.write_text("0123456789abcdef" * 4)
    own, *ports = free_ports(3)
    message = refused(
        "--data-path", tmp_path / "data", "--port", ports[0], "--health-port", ports[1], "--set", f"cluster.address=127.0.0.1:{own}",
        "--set", f"cluster.key_file={key}", "--join", f"127.0.0.1:{node.port}",
    )  # fmt: skip
    assert "REST or health port" in message, message
    assert "bytes is too long" not in message, message


@pytest.mark.parametrize(("command", "listed"), [("bench", "run"), ("cluster", "drain")])
def test_a_command_without_what_it_is_to_do_lists_its_commands(command, listed):
    done = bolide(command)
    assert done.returncode == 2
    assert f"\n  {listed} " in done.stderr, done.stderr


def test_a_node_is_a_number():
    message = bolide("cluster", "drain", "x").stderr
    assert "'x'" in message
    assert "a whole number is expected" in message


def test_a_workload_names_no_types_of_the_program(tmp_path):
    file = tmp_path / "w.toml"
    file.write_text('about = "x"\n[operations]\nread = 1\n[items]\ncount = "many"\n')
    message = bolide("bench", "run", file).stderr
    assert "line 5" in message
    assert "a whole number" in message
    assert "u32" not in message


@pytest.mark.parametrize("arguments", [["--help"], ["key"], ["cluster", "status", "--help"], ["bench"], ["--port", "x"]])
def test_a_pipe_that_closes_early_is_no_panic(arguments):
    reader, writer = os.pipe()
    os.close(reader)
    try:
        plain = bolide(*arguments)
        with open(os.devnull) as nothing:
            done = subprocess.run(
                [binary(), *arguments], stdin=nothing, stdout=writer, stderr=writer, timeout=SECONDS_MAX, check=False
            )
    finally:
        os.close(writer)
    # A panic ends with 101.
    assert done.returncode == plain.returncode
