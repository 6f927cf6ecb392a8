"""What people get wrong at the command line: each mistake is named, and ends with exit code 2."""

import os
import subprocess

import pytest

from node import binary, free_ports, settings_free, wait_until

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


@pytest.mark.parametrize("flag", ["--port", "--health-port"])
def test_a_port_that_is_taken_names_the_flag(node, tmp_path, flag):
    ports = dict(zip(["--port", "--health-port"], free_ports(2), strict=True))
    ports[flag] = node.port
    message = refused(*[part for pair in ports.items() for part in pair], "--data-path", tmp_path)
    assert f"127.0.0.1:{node.port}" in message
    assert f"{flag} chooses another" in message


def test_a_data_folder_that_is_a_file_is_named(tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    assert f"'{file}' is a file: --data-path" in refused("--data-path", file)


def test_a_cluster_key_that_is_missing_names_the_setting(tmp_path):
    message = refused(
        "--data-path", tmp_path, "--set", "cluster.node=1", "--set", "cluster.members=1=127.0.0.1:18001",
        "--set", "cluster.key_file=no/such.key",
    )  # fmt: skip
    assert "cluster.key_file 'no/such.key'" in message


def test_a_node_that_is_no_member_is_named(new_node, tmp_path):
    [node] = new_cluster(new_node, tmp_path, 1)
    done = bolide("cluster", "drain", 9, "--health-port", node.health_port)
    assert done.returncode == 1
    assert "no node 9" in done.stderr and "its nodes are" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_first_node_whose_others_are_absent_says_whom_it_misses(new_node, tmp_path):
    [node] = new_cluster(new_node, tmp_path, 3, started=1)
    wait_until(lambda: "no majority of the cluster answers" in node.log(), "the log says so")
    [line] = [line for line in node.log().splitlines() if "no majority" in line]
    assert "WARN" in line and "node 2 at 127.0.0.1:" in line and "node 3 at 127.0.0.1:" in line


def new_cluster(new_node, tmp_path, count, started=None):
    """The first nodes of a cluster."""
    key = tmp_path / "cluster.key"
    key.write_text("0123456789abcdef" * 4)
    key.chmod(0o600)
    members = ",".join(f"{number}=127.0.0.1:{port}" for number, port in enumerate(free_ports(count), 1))
    settings = [f"cluster.members={members}", f"cluster.key_file={key}"]
    nodes = []
    for number in range(1, (started or count) + 1):
        every = [*settings, f"cluster.node={number}"]
        nodes.append(new_node(arguments=[part for setting in every for part in ("--set", setting)]))
    return nodes


def test_a_certificate_that_nobody_vouches_for_names_the_flags_of_the_driver(new_node):
    node = new_node(protocol="https")
    message = bolide("bench", "run", "sessions", "--endpoint", node.endpoint, "--seconds", 1).stderr
    assert "--ca-file" in message and "--insecure" in message


def test_https_at_a_port_of_http_is_guessed_by_the_driver(node):
    message = bolide("bench", "run", "sessions", "--endpoint", f"https://127.0.0.1:{node.port}/", "--seconds", 1).stderr
    assert "plain http" in message
    assert "InvalidContentType" not in message


def test_a_pipe_that_closes_early_ends_quietly(new_node):
    node = new_node()
    node.stop()
    for arguments in ["--help", "bench list", "check", "removed list", "cluster status", "ready --help"]:
        plain = bolide(*arguments.split(), cwd=node.folder)
        command = f"{binary()} {arguments} | true; echo ${{PIPESTATUS[0]}}"
        piped = subprocess.run(
            ["bash", "-c", command], capture_output=True, text=True, timeout=SECONDS_MAX, check=False, cwd=node.folder,
            env=settings_free(os.environ),
        )  # fmt: skip
        assert piped.stdout == f"{plain.returncode}\n", (arguments, piped)
        assert piped.stderr == plain.stderr, (arguments, piped)


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
