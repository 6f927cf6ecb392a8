#!/usr/bin/env python3
"""Writes the npm package: the program, and a script that runs it. It has no install scripts.

usage: npm.py TREE VERSION MACHINE GLIBC EPOCH OUTPUT
"""

import gzip
import io
import json
import sys
import tarfile
from pathlib import Path

CPUS = {"x86_64": "x64", "aarch64": "arm64"}
HERE = Path(__file__).parent


def manifest(version, cpu, glibc):
    return {
        "name": "bolide",
        "version": version,
        "description": "A document database node with exact time to live that speaks the Azure Cosmos DB for NoSQL protocol",
        "license": "MIT OR Apache-2.0",
        "bin": {"bolide": "bin/bolide.js"},
        "os": ["linux"],
        "cpu": [cpu],
        "libc": ["glibc"],
        "engines": {"node": ">=16"},
        # What bin/bolide.js compares the system with.
        "bolide": {"os": "linux", "cpu": cpu, "glibc": glibc},
    }


def main():
    tree, version, machine, glibc, epoch, output = sys.argv[1:]
    tree, cpu = Path(tree), CPUS[machine]
    files = [
        ("package.json", 0o644, json.dumps(manifest(version, cpu, glibc), indent=2).encode() + b"\n"),
        ("README.md", 0o644, (HERE / "package.md").read_bytes()),
        *((name, 0o644, (tree / name).read_bytes()) for name in ("LICENSE-APACHE", "LICENSE-MIT", "THIRD-PARTY.txt")),
        ("bin/bolide.js", 0o755, (HERE / "npm" / "bolide.js").read_bytes()),
        ("bin/bolide", 0o755, (tree / "bolide").read_bytes()),
    ]
    path = Path(output) / f"bolide-{version}-linux-{cpu}.tgz"
    with open(path, "wb") as raw, gzip.GzipFile("", "wb", mtime=int(epoch), fileobj=raw) as packed:
        with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as archive:
            for name, mode, content in files:
                entry = tarfile.TarInfo(f"package/{name}")
                entry.size, entry.mode, entry.mtime = len(content), mode, int(epoch)
                archive.addfile(entry, io.BytesIO(content))


if __name__ == "__main__":
    main()
