"""Which threads a command starts before it measures anything."""

from __future__ import annotations

import os

_THREADS = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def numpy_alone() -> None:
    """Loads numpy without a thread of its linear algebra for every core.

    Nothing here multiplies matrices that are worth one, and when they are made they spin for a while: on
    the cores of the server that is measured, and ahead of what the command itself has to load. What the
    environment says already stays; what is set for this is taken back, since servers that a suite starts
    are given this environment.
    """
    ours = [name for name in _THREADS if name not in os.environ]
    os.environ.update(dict.fromkeys(ours, "1"))
    try:
        import numpy as np  # noqa: F401 - what counts is that it is loaded now
    finally:
        for name in ours:
            del os.environ[name]
