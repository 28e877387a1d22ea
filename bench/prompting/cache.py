"""What is kept between runs in the user's cache folder: proofs, salts, token borders.

Every entry can be lost at any time: it is only made again. A damaged one counts as lost.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


def write_bytes(path: Path, data: bytes | memoryview) -> bool:
    """Puts a file in place at once, or not at all. A full or read-only disk is no error: `False`."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=".new-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            Path(name).replace(path)
        except OSError:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError:
        return False
    return True


def write_json(path: Path, value: Mapping[str, Any]) -> bool:
    """A small JSON object with its own checksum."""
    body = json.dumps(value, sort_keys=True)
    digest = hashlib.sha256(body.encode()).hexdigest()
    return write_bytes(path, f"{digest}\n{body}\n".encode())


def read_json(path: Path) -> dict[str, Any] | None:
    """What `write_json` wrote; `None` when it is not there or not whole."""
    try:
        digest, body, *_ = path.read_text(encoding="utf-8").split("\n")
        if hashlib.sha256(body.encode()).hexdigest() != digest:
            return None
        value = json.loads(body)
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def write_array(path: Path, array: NDArray[Any]) -> str | None:
    """Writes raw array bytes; their SHA-256, or `None` when the disk refuses."""
    data = np.ascontiguousarray(array)
    digest = hashlib.sha256(data.data).hexdigest()
    return digest if write_bytes(path, data.data.cast("B") if data.size else b"") else None


def map_array(path: Path, dtype: str, digest: str) -> NDArray[Any] | None:
    """The array as a read-only memory map; `None` when it is not there or its checksum is wrong.

    The checksum is of the file read piece by piece: the map itself takes memory only where it is used.
    """
    try:
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        if found != digest:
            return None
        if path.stat().st_size == 0:
            return np.empty(0, dtype=dtype)
        # A plain view of it: reading an item of a memmap itself takes ten times as long.
        return np.memmap(path, dtype=dtype, mode="r").view(np.ndarray)
    except (OSError, ValueError):
        return None
