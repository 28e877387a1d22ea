"""Facts of the machine the client runs on, for run.json. Nothing secret: no name, user or path."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from pathlib import Path

from bench.wire.loop import loop_factory
from bench.wire.nvml import open_nvml

_PACKAGES = (
    "ctxbench",
    "aiohttp",
    "uvloop",
    "msgspec",
    "numpy",
    "scipy",
    "tiktoken",
)
_CPUINFO = Path("/proc/cpuinfo")


def environment() -> dict[str, str]:
    """What the client is made of; a fact that cannot be had is left out."""
    facts = {
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "platform": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cpus": str(os.cpu_count() or ""),
        "cpus_usable": _usable_cpus(),
        "cpu_model": _cpu_model(),
        "memory_gb": _memory_gb(),
        "loop": "uvloop" if loop_factory() is not None else "asyncio",
        "clock_resolution_ns": _clock_resolution(),
        "revision": revision() or "",
    }
    with open_nvml() as gpus:
        facts.update(gpus.facts() if gpus is not None else {})
    facts.update((f"version.{name}", found) for name in _PACKAGES if (found := _version(name)))
    return {name: value for name, value in facts.items() if value}


def revision() -> str | None:
    """Git revision of this package's own checkout, `+changes` behind it when files differ.

    `None` for an installed package: a repository that merely contains it is not its own.
    """
    root = Path(__file__).resolve().parent.parent.parent
    if not (root / ".git").exists() or not (root / "bench" / "wire").is_dir():
        return None
    head = _git(root, "rev-parse", "HEAD")
    if head is None:
        return None
    changes = _git(root, "status", "--porcelain", "--untracked-files=no")
    return head + ("+changes" if changes else "")


def _git(root: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(  # noqa: S603 - fixed arguments
            ["git", "-C", str(root), *arguments],  # noqa: S607 - the user's own git
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _version(name: str) -> str | None:
    from importlib import metadata  # csv, zipfile and more: loaded while servers are asked, not before

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _usable_cpus() -> str:
    affinity = getattr(os, "sched_getaffinity", None)  # not on macOS
    return str(len(affinity(0))) if affinity else ""


def _cpu_model() -> str:
    try:
        for line in _CPUINFO.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass  # no /proc on this system
    return platform.processor()


def _memory_gb() -> str:
    try:
        return f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 1e9:.1f}"
    except (AttributeError, ValueError, OSError):
        return ""


def _clock_resolution() -> str:
    return f"{time.get_clock_info('monotonic').resolution * 1e9:g}"
