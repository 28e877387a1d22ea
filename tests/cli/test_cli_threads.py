"""Threads that a command brings along."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.cli.threads import numpy_alone

LOOK = """
import json, os, pathlib, threading
from bench.cli.threads import numpy_alone
numpy_alone()
tasks = pathlib.Path("/proc/self/task")
print(json.dumps({
    "threads": len(list(tasks.iterdir())) if tasks.exists() else threading.active_count(),
    "set": {name: value for name, value in os.environ.items() if name.endswith("_NUM_THREADS")},
}))
"""


def looked(**environment: str) -> dict[str, object]:
    clean = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    root = Path(__file__).resolve().parents[2]
    command = [sys.executable, "-c", LOOK]
    done = subprocess.run(
        command,
        env={**clean, **environment},
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    found: dict[str, object] = json.loads(done.stdout)
    return found


def test_numpy_brings_no_threads_and_the_environment_of_servers_stays_as_it_was() -> None:
    assert looked() == {"threads": 1, "set": {}}


def test_a_number_of_threads_that_the_user_has_set_is_kept() -> None:
    found = looked(OPENBLAS_NUM_THREADS="2")
    assert found["set"] == {"OPENBLAS_NUM_THREADS": "2"}


def test_where_numpy_is_loaded_already_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    before = dict(os.environ)
    numpy_alone()
    assert dict(os.environ) == before
