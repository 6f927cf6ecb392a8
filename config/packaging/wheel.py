#!/usr/bin/env python3
"""Writes the Python wheel: the program as a script, which pip puts beside `python`.

usage: wheel.py TREE VERSION MACHINE GLIBC EPOCH OUTPUT
"""

import base64
import hashlib
import sys
import time
import zipfile
from pathlib import Path

HERE = Path(__file__).parent
LICENCES = ("LICENSE-APACHE", "LICENSE-MIT", "THIRD-PARTY.txt")


def metadata(version):
    lines = [
        "Metadata-Version: 2.4",
        "Name: bolide",
        f"Version: {version}",
        "Summary: A document database node with exact time to live that speaks the Azure Cosmos DB for NoSQL protocol",
        "License-Expression: MIT OR Apache-2.0",
        *(f"License-File: {name}" for name in LICENCES),
        "Description-Content-Type: text/markdown",
    ]
    return "\n".join(lines) + "\n\n" + (HERE / "package.md").read_text()


def record_line(name, content):
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(content)}\n"


def main():
    tree, version, machine, glibc, epoch, output = sys.argv[1:]
    tag = f"py3-none-manylinux_{glibc.replace('.', '_')}_{machine}"
    info = f"bolide-{version}.dist-info"
    wheel = f"Wheel-Version: 1.0\nGenerator: bolide\nRoot-Is-Purelib: false\nTag: {tag}\n"
    files = [
        (f"bolide-{version}.data/scripts/bolide", 0o755, (Path(tree) / "bolide").read_bytes()),
        (f"{info}/METADATA", 0o644, metadata(version).encode()),
        (f"{info}/WHEEL", 0o644, wheel.encode()),
        *((f"{info}/licenses/{name}", 0o644, (Path(tree) / name).read_bytes()) for name in LICENCES),
    ]
    record = "".join(record_line(name, content) for name, _, content in files) + f"{info}/RECORD,,\n"
    files.append((f"{info}/RECORD", 0o644, record.encode()))
    # The zip format knows no second before 1980.
    made = max(time.gmtime(int(epoch))[:6], (1980, 1, 1, 0, 0, 0))
    with zipfile.ZipFile(Path(output) / f"bolide-{version}-{tag}.whl", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, mode, content in files:
            entry = zipfile.ZipInfo(name, made)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100000 | mode) << 16
            archive.writestr(entry, content)


if __name__ == "__main__":
    main()
