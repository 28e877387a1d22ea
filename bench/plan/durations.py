"""Durations as people write and read them: `1h 30m`, `3 h 05 min`."""

from __future__ import annotations

import re

from bench.errors import SuiteError

_UNITS = {"d": 86_400.0, "h": 3_600.0, "m": 60.0, "min": 60.0, "s": 1.0}
_NUMBER = r"[0-9]{1,9}(?:\.[0-9]{1,6})?"
_PART = re.compile(rf"({_NUMBER})\s*(d|h|min|m|s)\s*")


def parse_duration(text: str, *, bare: str | None = None) -> float:
    """Seconds of `4h`, `90 min`, `1h 30m`, `45s`; `SuiteError` otherwise.

    `bare`: the unit of a number without one, where that is allowed.
    """
    named = f"{text.strip()}{bare}" if bare and re.fullmatch(_NUMBER, text.strip()) else text.strip()
    parts = _PART.findall(named)
    if not parts or _PART.sub("", named):
        raise SuiteError(f"{text[:40]!r} is no duration: write it like '4h', '90min' or '1h 30m'")
    seconds = sum(float(number) * _UNITS[unit] for number, unit in parts)
    if seconds <= 0:
        raise SuiteError(f"{text[:40]!r} is no time at all")
    return seconds


def told_apart(first_s: float, second_s: float) -> tuple[str, str]:
    """Two unequal durations as `words` tells them; where these are equal or no time, in seconds with as many
    digits as make them differ: `0.95 s` and `0.9 s` as `0.95 s` and `0.90 s`."""
    told = words(first_s), words(second_s)
    for digits in range(1, 10):
        if told[0] != told[1] and "0 s" not in told:
            break
        told = f"{first_s:.{digits}f} s", f"{second_s:.{digits}f} s"
    return told


def words(seconds: float) -> str:
    """`47 s`, `12 min`, `3 h 05 min`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02d} min"
