"""What config/dist says when it cannot make packages: one line, and nothing is left behind."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from conftest import is_root

ROOT = Path(__file__).parents[2]
TOOLS = [
    "ar", "awk", "bash", "cat", "cc", "chmod", "cp", "cut", "dirname", "du", "find", "git", "grep", "gzip", "head", "id",
    "install", "ls", "make", "md5sum", "mkdir", "mktemp", "mv", "python3", "readelf", "rm", "rmdir", "sed", "sha256sum",
    "sort", "stat", "strip", "tail", "tar", "uname", "xargs",
]  # fmt: skip


def dist(*arguments, **options):
    return subprocess.run(
        [ROOT / "config/dist", *map(str, arguments)], capture_output=True, text=True, stdin=subprocess.DEVNULL, **options
    )


def path_without(folder, *missing):
    """A PATH that has the tools of config/dist but for some."""
    bin_folder = folder / "bin"
    bin_folder.mkdir()
    for tool in {*TOOLS, "cargo", "c++"} - set(missing):
        found = shutil.which(tool)
        if found:
            (bin_folder / tool).symlink_to(found)
    # An empty folder of cargo's, too: config/dist looks there.
    return {**os.environ, "PATH": str(bin_folder), "CARGO_HOME": str(folder / "cargo")}


def one_line(result):
    [line] = result.stderr.splitlines()
    assert line.startswith("config/dist: ")
    return line


def test_an_unknown_argument_is_named(tmp_path):
    result = dist("--outptu", tmp_path / "out")
    assert result.returncode == 2
    assert "unknown argument '--outptu'" in one_line(result)


def test_a_program_that_is_not_there_is_named(tmp_path):
    result = dist("--binary", "nowhere/bolide", "--output", tmp_path / "out", cwd=tmp_path)
    assert result.returncode == 1
    assert f"there is no program at {tmp_path}/nowhere/bolide" in one_line(result)
    assert not (tmp_path / "out").exists()


def test_a_folder_that_cannot_be_made_is_named(packages, tmp_path):
    (tmp_path / "file").touch()
    result = dist("--binary", packages / "bolide", "--output", tmp_path / "file/out")
    assert result.returncode == 1
    assert f"cannot write into the folder {tmp_path}/file/out" in one_line(result)


@pytest.mark.parametrize("program", ["/bin/true", "text"])
def test_another_program_is_refused(tmp_path, program):
    if program == "text":
        program = tmp_path / "text"
        program.write_text("no program\n")
    result = dist("--binary", program, "--output", tmp_path / "out")
    assert result.returncode == 1
    assert f"config/dist: {program} is " in one_line(result)
    assert not (tmp_path / "out").exists()


def test_a_failure_leaves_earlier_packages_alone(packages, tmp_path):
    shutil.copytree(packages, tmp_path / "out")
    assert dist("--binary", "/bin/true", "--output", tmp_path / "out").returncode == 1
    assert {path.name for path in (tmp_path / "out").iterdir()} == {path.name for path in packages.iterdir()}
    subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=tmp_path / "out", check=True)


@pytest.mark.parametrize("tool, package", [("readelf", "binutils"), ("python3", "python3"), ("cargo", "cargo")])
def test_a_missing_tool_is_named(packages, tmp_path, tool, package):
    environment = path_without(tmp_path, tool)
    result = dist("--binary", packages / "bolide", "--output", tmp_path / "out", env=environment)
    assert result.returncode == 1
    assert f"there is no {tool}, which is in the package {package}" in one_line(result)
    assert not (tmp_path / "out").exists()


# Hides every libclang from the processes of one mount namespace.
WITHOUT_LIBCLANG = """
set -e
for folder in /usr/lib/llvm*/lib /usr/lib/*-linux-gnu /usr/lib64 /usr/local/lib; do
    compgen -G "$folder/libclang*" >/dev/null || continue
    name=$(echo "$folder" | tr / _)
    mkdir "$1/$name" "$1/$name/upper" "$1/$name/work"
    mount -t overlay overlay -o "lowerdir=$folder,upperdir=$1/$name/upper,workdir=$1/$name/work" "$folder"
    rm "$folder"/libclang[-.]*
done
shift
exec "$@"
"""


@pytest.mark.skipif(not is_root(), reason="only root can hide libclang from a process")
def test_a_build_without_libclang_says_so(tmp_path):
    environment = path_without(tmp_path)
    environment.pop("LIBCLANG_PATH", None)
    # The linker's cache still knows the libraries that are hidden.
    ldconfig = tmp_path / "bin/ldconfig"
    ldconfig.write_text("#!/bin/sh\n")
    ldconfig.chmod(0o755)
    # An overlay cannot lie on another one, which /tmp may be.
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    script = f'mount -t tmpfs tmpfs "$1"\n{WITHOUT_LIBCLANG}'
    unshare = [shutil.which("unshare"), "--mount", shutil.which("bash"), "-c", script, "bash", hidden]
    env = [shutil.which("env"), f"PATH={environment['PATH']}", f"CARGO_HOME={environment['CARGO_HOME']}"]
    command = [*unshare, *env, ROOT / "config/dist", "--output", tmp_path / "out"]
    result = subprocess.run(command, capture_output=True, text=True, env={**environment, "PATH": os.environ["PATH"]})
    if "mount" in result.stderr:
        pytest.skip(f"cannot hide libclang here: {result.stderr.strip()}")
    assert result.returncode == 1
    [line] = result.stderr.splitlines()
    assert line.startswith("config/prerequisites: missing: libclang, and there is none of apt-get, dnf, brew")
    assert not (tmp_path / "out").exists()
