"""Runs Microsoft's own tests of azure-cosmos against a node: fetches the source distribution of the pinned version, which carries
them, starts a node, and runs the files that selection.toml chooses, in two processes side by side."""

import collections
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from xml.etree import ElementTree

HERE = Path(__file__).resolve().parent
TESTS = HERE.parent
sys.path[:0] = [str(TESTS / "python"), str(HERE)]

from node import EMULATOR_KEY, Node, settings_free  # noqa: E402
from selection import load  # noqa: E402

# The whole run; a test of its own ends earlier.
SUITE_SECONDS_MAX = 600
TEST_SECONDS_MAX = 240
WORKERS = 2


def pinned_version():
    requirements = (TESTS / "python" / "requirements.txt").read_text()
    return re.search(r"^azure-cosmos==(\S+)", requirements, re.M).group(1)


def fetch(version):
    """The folder of the suite's tests; fetched by pip when it is not there yet."""
    folder = Path(sys.prefix) / "sdk-suite" / version
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        command = [
            sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
            "--no-binary", "azure-cosmos", "--dest", scratch, f"azure-cosmos=={version}",
        ]  # fmt: skip
        if subprocess.run(command).returncode != 0:
            sys.exit(f"the source distribution of azure-cosmos {version} cannot be fetched: see what pip says above")
        (archive,) = Path(scratch).glob("*.tar.gz")
        with tarfile.open(archive) as packed:
            packed.extractall(scratch, filter="data")
        (tests,) = Path(scratch).glob("*/tests")
        tests.rename(folder)
    return folder


def check_complete(suite, selection):
    """Every file of the suite is run or left out with a reason; none is named that is not there."""
    there = {path.name for path in suite.glob("test_*.py")} - {"test_config.py"}
    named = collections.Counter([*selection["run"], *selection["files"]])
    twice = [name for name, times in named.items() if times > 1]
    if twice or set(named) != there:
        missing, unknown = sorted(there - set(named)), sorted(set(named) - there)
        sys.exit(f"selection.toml does not fit the suite: missing {missing}, unknown {unknown}, named twice {twice}")


def start(suite, environment, files, report):
    command = [
        sys.executable, "-m", "pytest", "-q", "-p", "selection", "-p", "no:cacheprovider", "--tb=short", "-W", "ignore",
        "--timeout", str(TEST_SECONDS_MAX), "--junitxml", str(report), *files,
    ]  # fmt: skip
    return subprocess.Popen(command, cwd=suite, env=environment)


def count(report):
    """The tests that passed, by pytest's own report."""
    (suite,) = ElementTree.parse(report).getroot().iter("testsuite")
    numbers = {name: int(suite.get(name)) for name in ("tests", "failures", "errors", "skipped")}
    return numbers["tests"] - numbers["failures"] - numbers["errors"] - numbers["skipped"]


def main():
    suite = fetch(pinned_version())
    selection = load()
    check_complete(suite, selection)
    node = Node()
    environment = {
        **settings_free(os.environ), "ACCOUNT_HOST": node.endpoint, "ACCOUNT_KEY": EMULATOR_KEY,
        "PYTHONPATH": os.pathsep.join([str(HERE), str(HERE / "stand_ins")]),
    }  # fmt: skip
    # Not by a plugin: the ids of some tests are made anew in every process, so no two collect the same.
    shares = [selection["run"][first::WORKERS] for first in range(WORKERS)]
    try:
        with tempfile.TemporaryDirectory() as scratch:
            reports = [Path(scratch) / f"{number}.xml" for number in range(WORKERS)]
            runs = [start(suite, environment, *each) for each in zip(shares, reports)]
            codes = [run.wait(SUITE_SECONDS_MAX) for run in runs]
            counts = [count(report) for report in reports]
        assert "panicked" not in node.log(), node.log()[-2000:]
    finally:
        node.close()
    print(f"{sum(counts)} of Microsoft's tests passed, in {len(selection['run'])} files")
    reasons = collections.Counter([*selection["tests"].values(), *selection["files"].values()])
    print("left out, tests and files:")
    for reason, times in reasons.most_common():
        print(f"  {times:3} {reason}")
    sys.exit(next((code for code in codes if code), 0))


main()
