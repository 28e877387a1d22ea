"""Where this user's files lie."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def cache_folder() -> Path:
    """Where caches go on this platform: `~/.cache/ctxbench`, `~/Library/Caches/ctxbench`, ..."""
    if chosen := os.environ.get("XDG_CACHE_HOME"):
        return Path(chosen) / "ctxbench"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "ctxbench"
    return Path.home() / ".cache" / "ctxbench"
