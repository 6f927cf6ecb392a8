"""Each package is installed as a person would do it, and a node from it is queried."""

import base64
import csv
import hashlib
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import time
import zipfile
from pathlib import Path

import pytest

from conftest import is_root
from node import wait_until

ROOT = Path(__file__).parents[2]
LICENCES = {"LICENSE-APACHE", "LICENSE-MIT", "THIRD-PARTY.txt"}


def run(*command, **options):
    options.setdefault("check", True)
    result = subprocess.run([str(part) for part in command], capture_output=True, text=True, **{**options, "check": False})
    if options["check"] and result.returncode:
        raise AssertionError(f"{command} ended with {result.returncode}: {result.stdout}{result.stderr}")
    return result


def version():
    return re.search(r'^version = "(.*)"$', (ROOT / "Cargo.toml").read_text(), re.M)[1]


def assert_is_bolide(*program):
    assert run(*program, "--version").stdout.startswith(f"bolide {version()} (")


# Python


def wheel_tag(path):
    return path.stem.split("-", 2)[2].rsplit("-", 1)[1]


def test_wheel_installs_and_serves(package, tmp_path, first_query):
    run(sys.executable, "-m", "venv", tmp_path / "venv")
    began = time.monotonic()
    run(tmp_path / "venv/bin/pip", "install", "--no-index", package("*.whl"))
    node = first_query("pip install", began, [tmp_path / "venv/bin/bolide"])
    assert_is_bolide(tmp_path / "venv/bin/bolide")
    assert node.stop() == 0
    run(tmp_path / "venv/bin/pip", "uninstall", "--yes", "bolide")
    assert not (tmp_path / "venv/bin/bolide").exists()


def test_wheel_record_names_every_file_with_its_hash(package):
    with zipfile.ZipFile(package("*.whl")) as wheel:
        [record] = [name for name in wheel.namelist() if name.endswith(".dist-info/RECORD")]
        rows = {name: (digest, size) for name, digest, size in csv.reader(io.StringIO(wheel.read(record).decode()))}
        assert set(rows) == set(wheel.namelist())
        assert rows.pop(record) == ("", "")
        for name, (digest, size) in rows.items():
            content = wheel.read(name)
            hashed = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            assert (digest, int(size)) == (f"sha256={hashed}", len(content)), name
        assert {Path(name).name for name in rows if "/licenses/" in name} == LICENCES


def test_auditwheel_agrees_with_the_tag(package):
    wheel = package("*.whl")
    # It looks for tools beside its interpreter only by PATH.
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    told = " ".join(run("auditwheel", "show", wheel, env={**os.environ, "PATH": path}).stdout.split())
    assert f'consistent with the following platform tag: "{wheel_tag(wheel)}"' in told


@pytest.mark.parametrize("platform", ["manylinux_2_17_x86_64", "musllinux_1_2_x86_64", "macosx_14_0_arm64", "win_amd64"])
def test_pip_refuses_the_wheel_on_other_platforms(package, tmp_path, platform):
    wheel = package("*.whl")
    result = run(
        sys.executable, "-m", "pip", "install", "--no-index", "--platform", platform, "--only-binary=:all:",
        "--target", tmp_path / "here", wheel, check=False,
    )  # fmt: skip
    assert result.returncode == 1
    assert f"{wheel.name} is not a supported wheel on this platform" in result.stderr
    assert not (tmp_path / "here").exists()


# JavaScript


@pytest.fixture(scope="module")
def npm_folder(package, tmp_path_factory):
    folder = tmp_path_factory.mktemp("npm")
    (folder / "package.json").write_text("{}")
    run("npm", "install", "--no-audit", "--no-fund", "--offline", package("*.tgz"), cwd=folder)
    return folder


def is_alive(node):
    try:
        return node.health("/alive").status == 200
    except OSError:
        return False


def npx_command(package, folder):
    """Runs npx in a folder with nothing but the package: it takes paths from where it is."""
    archive = shutil.copy(package("*.tgz"), folder)
    script = f'cd "{folder}" && exec npx --yes ./{Path(archive).name} "$@"'
    return ["setsid", "sh", "-c", script, "npx"], {"npm_config_cache": str(folder / "cache")}


def test_npx_in_an_empty_folder_serves(package, tmp_path, first_query):
    command, environment = npx_command(package, tmp_path)
    node = first_query("npx", time.monotonic(), command, environment=environment)
    # npx ends its shell, and by the signal itself; the node ends in its own time.
    assert node.stop() in (0, -signal.SIGTERM)
    wait_until(lambda: not is_alive(node), "the node stops with npx")
    assert "stopping" in node.log() and "told to stop again" not in node.log()
    told = run(*command, "--version", env={**os.environ, **environment}).stdout
    assert told.startswith(f"bolide {version()} (")


def test_npx_stops_the_node_cleanly_on_ctrl_c(package, tmp_path, installed):
    command, environment = npx_command(package, tmp_path)
    node = installed(command, environment=environment)
    process = node.process
    # What a terminal does: to npx, its shell and the wrapper alike.
    os.killpg(process.pid, signal.SIGINT)
    process.wait(30)
    wait_until(lambda: not is_alive(node), "the node stops with npx")
    assert "stopping" in node.log() and "told to stop again" not in node.log()


def test_npm_package_has_no_install_scripts(package):
    with tarfile.open(package("*.tgz")) as archive:
        names = set(archive.getnames())
        manifest = json.load(archive.extractfile("package/package.json"))
    assert names >= {f"package/{name}" for name in LICENCES}
    assert "scripts" not in manifest and "dependencies" not in manifest
    assert (manifest["os"], manifest["libc"]) == (["linux"], ["glibc"])


def test_npm_wrapper_passes_the_exit_code_on(npm_folder):
    program = npm_folder / "node_modules/.bin/bolide"
    assert_is_bolide(program)
    wrong = run(program, "--colour", check=False)
    assert wrong.returncode == 2
    assert "--colour" in wrong.stderr and len(wrong.stderr.splitlines()) == 1


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_npm_wrapper_passes_signals_on_once(npm_folder, installed, how):
    node = installed([npm_folder / "node_modules/.bin/bolide"])
    process = node.process
    # As a terminal does it: to this process, and to npx, which passes it on. A second one would end the node at once.
    process.send_signal(how)
    process.send_signal(how)
    assert process.wait(30) == 0
    assert "stopping" in node.log()
    assert "told to stop again" not in node.log()
    assert not is_alive(node)


FAKE_SYSTEMS = {
    "darwin-arm64": "Object.defineProperty(process, 'platform', { value: 'darwin' });"
    "Object.defineProperty(process, 'arch', { value: 'arm64' });",
    "linux-riscv64": "Object.defineProperty(process, 'arch', { value: 'riscv64' });",
    "glibc 2.17": "process.report.getReport = () => ({ header: { glibcVersionRuntime: '2.17' } });",
    "without glibc": "process.report.getReport = () => ({ header: {} });",
}


@pytest.mark.parametrize("system", FAKE_SYSTEMS)
def test_npm_wrapper_names_a_system_that_it_was_not_made_for(npm_folder, tmp_path, system):
    fake = tmp_path / "fake.js"
    fake.write_text(FAKE_SYSTEMS[system])
    wrapper = npm_folder / "node_modules/bolide/bin/bolide.js"
    result = run("node", "--require", fake, wrapper, "--version", check=False)
    assert (result.returncode, result.stdout) == (1, "")
    [line] = result.stderr.splitlines()
    assert line.startswith("bolide: this package is for linux-") and system in line


# The archive and the Debian package


def test_archive_unpacks_and_serves(package, tmp_path, first_query):
    path = package("*.tar.gz")
    began = time.monotonic()
    run("tar", "-xzf", path, "-C", tmp_path)
    [folder] = tmp_path.iterdir()
    assert folder.name == path.name.removesuffix(".tar.gz")
    node = first_query("tar", began, [folder / "bolide"])
    assert node.stop() == 0
    for name in [
        *LICENCES, "README.md", "completions/bolide.bash", "completions/_bolide", "completions/bolide.fish",
        "man/man1/bolide.1", "man/man1/bolide-serve.1", "systemd/bolide.service", "config/bolide.toml",
    ]:  # fmt: skip
        assert (folder / name).stat().st_size > 0, name


def test_notices_have_the_licences_of_crates_and_of_the_c_libraries_in_them(package):
    with tarfile.open(package("*.tar.gz")) as archive:
        [name] = [name for name in archive.getnames() if name.endswith("/THIRD-PARTY.txt")]
        notices = archive.extractfile(name).read().decode()
    for owner in [
        r"librocksdb-sys \S+: rocksdb/LICENSE.Apache", r"librocksdb-sys \S+: rocksdb/LICENSE.leveldb",
        r"zstd-sys \S+: zstd/LICENSE", r"lz4-sys \S+: liblz4/lib/LICENSE", r"tikv-jemalloc-sys \S+: jemalloc/COPYING",
        r"tokio \S+: LICENSE", r"hyper \S+: LICENSE",
    ]:  # fmt: skip
        assert re.search(rf"^{owner}$", notices, re.M), owner
    assert re.search(r"^  fxhash \S+: Apache-2.0/MIT; the crate has no licence file", notices, re.M)


@pytest.fixture(scope="module")
def unpacked_deb(package, tmp_path_factory):
    folder = tmp_path_factory.mktemp("deb")
    run("dpkg-deb", "-x", package("*.deb"), folder)
    return folder


def test_deb_unpacks_and_serves(unpacked_deb, installed):
    program = unpacked_deb / "usr/bin/bolide"
    assert_is_bolide(program)
    node = installed([program], arguments=["--config", str(unpacked_deb / "etc/bolide/bolide.toml")])
    node.answers_a_query()
    assert node.stop() == 0
    assert run(program, "check", "--data-path", node.data).returncode == 0


def test_deb_says_what_it_needs(package):
    fields = run("dpkg-deb", "--field", package("*.deb"), "Version", "Depends").stdout
    assert f"Version: {version()}\n" in fields
    glibc = re.search(r"manylinux_(\d+)_(\d+)", package("*.whl").name)
    assert f"Depends: libc6 (>= {glibc[1]}.{glibc[2]}), libgcc-s1" in fields


@pytest.mark.skipif(not is_root(), reason="dpkg installs as root only")
def test_deb_installs_makes_its_user_and_keeps_settings_and_data(package, tmp_path):
    admin = tmp_path / "var/lib/dpkg"
    for folder in [admin / "info", admin / "updates", tmp_path / "etc", tmp_path / "var/lib/bolide"]:
        folder.mkdir(parents=True)
    for name in ["status", "available"]:
        (admin / name).touch()
    (tmp_path / "var/lib/bolide/precious").touch()
    # An empty root has neither a shell for the scripts nor the libraries.
    dpkg = ["dpkg", f"--root={tmp_path}", "--force-script-chrootless", "--force-depends", "--force-not-root"]
    run(*dpkg, "--install", package("*.deb"))
    assert_is_bolide(tmp_path / "usr/bin/bolide")
    if shutil.which("systemd-sysusers"):
        assert re.search(r"^bolide:.*:/var/lib/bolide:", (tmp_path / "etc/passwd").read_text(), re.M)
    settings = tmp_path / "etc/bolide/bolide.toml"
    assert '\ndata_path = "/var/lib/bolide"\n' in settings.read_text()
    settings.write_text(settings.read_text() + "# mine\n")
    run(*dpkg, "--force-confold", "--install", package("*.deb"))
    run(*dpkg, "--remove", "bolide")
    assert settings.read_text().endswith("# mine\n")
    assert not (tmp_path / "usr/bin/bolide").exists()
    run(*dpkg, "--purge", "bolide")
    assert not settings.exists()
    assert (tmp_path / "var/lib/bolide/precious").exists()


# Sums


def test_sums_cover_every_artefact_and_name_one_with_a_flipped_bit(packages, package, tmp_path):
    told = run("sha256sum", "--check", "SHA256SUMS", cwd=packages).stdout
    assert {line.split(":")[0] for line in told.splitlines()} == {path.name for path in packages.iterdir()} - {"SHA256SUMS"}
    for path in packages.iterdir():
        shutil.copy(path, tmp_path)
    damaged = tmp_path / package("*.tar.gz").name
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 1
    damaged.write_bytes(content)
    result = run("sha256sum", "--check", "--quiet", "SHA256SUMS", cwd=tmp_path, check=False)
    assert result.returncode == 1
    assert result.stdout == f"{damaged.name}: FAILED\n"
