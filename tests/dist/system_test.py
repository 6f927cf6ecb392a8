"""What a package brings for the system beside the program: the unit, completions, man pages."""

import shutil
import signal
import socket
import subprocess

import pytest


def run(*command, **options):
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, **options)


@pytest.fixture(scope="module")
def tree(package, tmp_path_factory):
    """The unpacked archive."""
    folder = tmp_path_factory.mktemp("tar")
    subprocess.run(["tar", "-xzf", package("*.tar.gz"), "-C", folder], check=True)
    [tree] = folder.iterdir()
    return tree


needs_systemd = pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not installed")


@needs_systemd
def test_unit_has_no_mistakes(tree, tmp_path):
    # The unit runs what a package has installed; here the program is elsewhere.
    unit = tmp_path / "bolide.service"
    text = (tree / "systemd/bolide.service").read_text()
    assert "ExecStart=/usr/bin/bolide " in text
    unit.write_text(text.replace("ExecStart=/usr/bin/bolide ", f"ExecStart={tree}/bolide "))
    result = run("systemd-analyze", "verify", "--man=no", unit)
    assert (result.returncode, result.stdout + result.stderr) == (0, "")


@needs_systemd
def test_unit_is_exposed_little(tree):
    # In tenths; a unit without any restriction has 96.
    result = run("systemd-analyze", "security", "--offline=true", "--threshold=15", tree / "systemd/bolide.service")
    assert result.returncode == 0, result.stdout[-500:]


@pytest.mark.parametrize("kind", ["file", "abstract"])
def test_node_tells_the_service_manager_that_it_serves_and_stops(tree, tmp_path, installed, kind):
    address = str(tmp_path / "notify") if kind == "file" else f"@bolide-{tmp_path.name}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.settimeout(60)
        manager.bind(address.replace("@", "\0", 1) if kind == "abstract" else address)
        node = installed([tree / "bolide"], environment={"NOTIFY_SOCKET": address}, start=False)
        node.spawn()
        assert manager.recv(64) == b"READY=1"
        assert node.health("/ready").status == 200
        node.process.send_signal(signal.SIGTERM)
        assert manager.recv(64) == b"STOPPING=1"
        assert node.process.wait(60) == 0


def test_node_serves_without_the_service_manager_that_it_was_told_of(tree, tmp_path, installed):
    missing = tmp_path / "nobody"
    node = installed([tree / "bolide"], environment={"NOTIFY_SOCKET": str(missing)})
    node.answers_a_query()
    assert str(missing) in node.log()
    assert node.stop() == 0


def test_bash_completes_commands_and_flags(tree):
    script = f"""
        source {tree}/completions/bolide.bash
        COMP_WORDS=(bolide {{word}}); COMP_CWORD=1
        _bolide bolide {{word}} bolide
        echo "${{{{COMPREPLY[*]}}}}"
    """
    for word, expected in [("compl", "completions"), ("--health", "--health-port")]:
        result = run("bash", "-c", script.format(word=word))
        assert (result.stdout.split(), result.stderr) == ([expected], "")


@pytest.mark.parametrize("shell, file", [("zsh", "_bolide"), ("fish", "bolide.fish")])
def test_other_shells_can_read_their_completions(tree, shell, file):
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not installed")
    result = run(shell, "--no-exec", tree / "completions" / file)
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.skipif(not shutil.which("man"), reason="man is not installed")
def test_man_pages_render_without_warnings(tree):
    pages = sorted((tree / "man/man1").iterdir())
    assert len(pages) > 10
    for page in pages:
        result = run("man", "--warnings", "--local-file", page, env={"PATH": "/usr/bin:/bin", "MANWIDTH": "120", "LC_ALL": "C.UTF-8"})
        assert (result.returncode, result.stderr) == (0, ""), page.name
        assert page.name.removesuffix(".1") in result.stdout
