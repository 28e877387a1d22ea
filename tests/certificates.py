"""Certificates that tests sign for themselves."""

from __future__ import annotations

import subprocess
from pathlib import Path


def self_signed(folder: Path, name: str) -> Path:
    """Certificate and key in one file, for `DNS:host` or `IP:number`."""
    both, key = folder / "both.pem", folder / "key.pem"
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
    ]
    told = ["-days", "2", "-subj", f"/CN={name.partition(':')[2]}", "-addext", f"subjectAltName={name}"]
    subprocess.run([*command, *told, "-keyout", str(key), "-out", str(both)], check=True, capture_output=True)
    both.write_text(both.read_text() + key.read_text())
    return both
