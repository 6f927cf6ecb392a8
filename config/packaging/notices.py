#!/usr/bin/env python3
"""Writes the licence notices of everything that is linked into the program.

usage: notices.py TARGET FILE

The crates are those that `cargo metadata` resolves for the target, without build and test dependencies. Every licence
file in a crate's sources is quoted, those of C and C++ libraries within it too; a crate without any is listed with its
SPDX expression.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

LICENCE = re.compile(r"^(un)?(licen[cs]e|copying|copyright|notice)([-_.].*)?$", re.IGNORECASE)
# Sources that are in a crate but not in the program.
NOT_LINKED = {"benches", "contrib", "doc", "docs", "examples", "programs", "snappy", "test", "tests"}
# What a project offers besides another licence, which is the one that is taken.
ALTERNATIVE = re.compile(r"\A\s*GNU (AFFERO )?GENERAL PUBLIC LICENSE")

HEADER = """\
Third-party notices of Bolide {version}

The program contains the software below. Bolide itself is under MIT OR Apache-2.0: LICENSE-MIT, LICENSE-APACHE.
Where a project offers the GNU GPL beside another licence (RocksDB: Apache-2.0, zstd: BSD-3-Clause), the other one is
taken and the text of the GPL is left out.

The Rust standard library is under MIT OR Apache-2.0; its notices are part of the Rust distribution.
libstdc++ is under GPL-3.0 with the GCC Runtime Library Exception 3.1, which permits programs under any licence.
"""


def fail(message):
    sys.exit(f"notices.py: {message}")


def metadata(target):
    command = [os.environ.get("CARGO", "cargo"), "metadata", "--locked", "--format-version", "1", "--filter-platform", target]
    answer = subprocess.run(command, capture_output=True, text=True)
    if answer.returncode:
        fail(f"'{' '.join(command)}' failed: {answer.stderr.strip().splitlines()[-1]}")
    return json.loads(answer.stdout)


def linked_packages(data):
    """The packages that the root needs at run time, by name and version."""
    nodes = {node["id"]: node for node in data["resolve"]["nodes"]}
    root = data["resolve"]["root"]
    seen, open_ids = {root}, [root]
    while open_ids:
        for dependency in nodes[open_ids.pop()]["deps"]:
            is_linked = any(kind["kind"] is None for kind in dependency["dep_kinds"])
            if is_linked and dependency["pkg"] not in seen:
                seen.add(dependency["pkg"])
                open_ids.append(dependency["pkg"])
    packages = [package for package in data["packages"] if package["id"] in seen - {root}]
    return sorted(packages, key=lambda package: (package["name"], package["version"]))


def licence_files(folder):
    """The licence files of a crate and of what it brings along, in a fixed order."""
    for parent, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in NOT_LINKED and not name.startswith("."))
        for name in sorted(files):
            if LICENCE.match(name) and not name.endswith((".rs", ".py", ".html")):
                yield Path(parent, name)


def main():
    if len(sys.argv) != 3:
        fail("usage: notices.py TARGET FILE")
    data = metadata(sys.argv[1])
    root = next(package for package in data["packages"] if package["id"] == data["resolve"]["root"])
    packages = linked_packages(data)
    # Texts that differ in nothing but spaces are one.
    texts_by_words, owners = {}, {}
    lines = []
    for package in packages:
        folder = Path(package["manifest_path"]).parent
        name = f"{package['name']} {package['version']}"
        texts = 0
        for path in licence_files(folder):
            text = path.read_text(encoding="utf-8", errors="replace").strip("\n")
            if not ALTERNATIVE.match(text):
                words = " ".join(text.split())
                texts_by_words.setdefault(words, text)
                owners.setdefault(words, []).append(f"{name}: {path.relative_to(folder)}")
                texts += 1
        expression = package["license"] or "no SPDX expression"
        without = "" if texts else f"; the crate has no licence file; by {', '.join(package['authors']) or 'its authors'}"
        lines.append(f"  {name}: {expression}{without}")
    rule = "=" * 80
    parts = [HEADER.format(version=root["version"]), f"{len(packages)} crates and their licences\n\n" + "\n".join(lines) + "\n"]
    for words, text in texts_by_words.items():
        parts.append(f"{rule}\n" + "\n".join(owners[words]) + f"\n{rule}\n\n{text}\n")
    Path(sys.argv[2]).write_text("\n".join(parts), encoding="utf-8")


if __name__ == "__main__":
    main()
