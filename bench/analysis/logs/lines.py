"""One log line: its level, its time, and its template (numbers, ids and addresses masked)."""

from __future__ import annotations

import re

from msgspec import Struct

TEMPLATE_CHARS = 300
"""A template longer than this is cut."""
_LINE_CHARS = 4096
"""No more of a line than this is looked at."""

_LEVELS = "TRACE|DEBUG|INFO|NOTICE|WARN|WARNING|ERROR|CRITICAL|FATAL"
_LETTERS = {
    "I": "INFO",
    "W": "WARNING",
    "E": "ERROR",
    "D": "DEBUG",
    "WARN": "WARNING",
    "FATAL": "CRITICAL",
}
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")

# What docker, docker compose and journald put before the line of the server itself.
_WRAPPERS = (
    re.compile(r"[\w.-]{1,64} +\| "),
    re.compile(
        r"(?P<ts>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d) (?:\S+ [\w.@-]+\[\d+\]: )?"
    ),
    re.compile(r"(?P<ts>[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d) \S+ [\w.@-]+(?:\[\d+\])?: "),
)
# How servers begin a line. `ts` ends at the second: two lines with one stamp came within a second.
_HEADS = (
    # vLLM: (APIServer pid=1) WARNING 11-29 14:55:33 [model.py:2152] ...; V0 without the brackets
    re.compile(
        r"(?:\([^)]{0,80}pid=\d+\) )?(?P<lvl>" + _LEVELS + r") (?P<ts>\d\d-\d\d \d\d:\d\d:\d\d)"
        r"(?:\.\d+)? (?:\[[^\]]{0,120}\] |\S+:\d+\] )?(?P<msg>.*)"
    ),
    # SGLang: [2026-11-29 14:55:33 TP0] ...
    re.compile(
        r"(?:\(\w+ pid=\d+[^)]*\) *)?\[(?P<ts>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?:[.,]\d+)?"
        r"(?: (?:DP|TP|EP|PP)\d+)*\] "
        r"(?:(?P<lvl>" + _LEVELS + r")\b[: ]*)?(?P<msg>.*)"
    ),
    # llama.cpp: minutes.seconds.milliseconds.microseconds since its start
    re.compile(r"(?P<ts>\d+\.\d\d)\.\d{3}\.\d{3} (?P<lvl>[IWED]) (?P<msg>.*)"),
    # LMDeploy and other Python loggers: 2026-11-29 14:55:33,123 - lmdeploy - INFO - file.py:12 - ...
    re.compile(
        r"(?P<ts>\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d)(?:[.,]\d+)? - [\w.]+ - (?:\[?\w+:\d+\]? - )?"
        r"(?P<lvl>" + _LEVELS + r") - (?:[\w./-]+:\d+ - )?(?P<msg>.*)"
    ),
    # anything that starts with an ISO time
    re.compile(
        r"\[?(?P<ts>\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d)(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?\]?[ ,:-]*"
        r"(?:\[?(?P<lvl>" + _LEVELS + r")\b\]?[: -]*)?(?P<msg>.*)"
    ),
    # uvicorn, Python's default format, and glog-like heads: WARNING:name:..., INFO:     ...
    re.compile(r"\[?(?P<lvl>" + _LEVELS + r")\b\]?(?::[\w.]+:|[: ]) *(?P<msg>.*)"),
    re.compile(r"(?:\S{1,200}:\d+: )?(?P<lvl>)(?P<msg>\w*Warning: .*)"),
)

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]{0,200}(?:\x07|\x1b\\)?|.)")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_SECRETS = (
    re.compile(
        r"(?i)\b((?:vllm_|hf_|open_?ai_)?"
        r"(?:api[_-]?key|hf_token|auth[_-]?token|access[_-]?token|authorization|password|secret)s?['\"]?\s*[:=]\s*)(?:\[?['\"][^'\"]*['\"]\]?|[^\s,)}\]]+)"
    ),
    re.compile(r"()\b(?:Bearer|Basic) +[\w.~+/=-]{6,}"),
    re.compile(r"()\b(?:sk|hf|xox[bp]|ghp)[-_][\w-]{8,}"),
)
_SECRET_HINTS = (
    "api",
    "auth",
    "access",
    "secret",
    "passw",
    "hf_",
    "hf-",
    "bearer ",
    "basic ",
    "sk-",
    "sk_",
    "xox",
    "ghp",
)
_MASKS = (
    (re.compile(r"\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b"), "<id>"),
    (re.compile(r"\b(?:cmpl|chatcmpl|req|request|rid|embd|resp)[-_](?=[\w-]*\d)[\w-]{6,}"), "<id>"),
    (re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b"), "<address>"),
    (re.compile(r"\b0x[0-9a-fA-F]+\b"), "<address>"),
    (re.compile(r"\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{8,64}\b"), "<id>"),
    (re.compile(r"(?<![A-Za-z_\d.])\d+(?:[.,:]\d+)*(?:[eE][-+]?\d+)?%?"), "#"),
    (re.compile(r"#(?:, ?#)+"), "#, ..."),
    (re.compile(r"\s+"), " "),
)


class Line(Struct, frozen=True, kw_only=True):
    """A log line taken apart."""

    level: str | None
    stamp: str | None
    """Its time to the second, as written; `None` when it has none."""
    message: str
    """Without head, escape sequences, control characters and secrets."""


def read_line(raw: bytes) -> Line:
    """Take a line apart; any bytes will do."""
    text = clean(raw.decode("utf-8", errors="replace"))
    stamp: str | None = None
    for wrapper in _WRAPPERS:
        match = wrapper.match(text)
        if match is not None:
            stamp = match.groupdict().get("ts") or stamp
            text = text[match.end() :]
    for head in _HEADS:
        match = head.match(text)
        if match is not None:
            groups = match.groupdict()
            level = groups.get("lvl") or ("WARNING" if "lvl" in groups and groups["lvl"] == "" else None)
            level = _LETTERS.get(level, level) if level else None
            return Line(level=level, stamp=stamp or groups.get("ts"), message=without_secrets(groups["msg"]))
    return Line(level=None, stamp=stamp, message=without_secrets(text))


def clean(text: str) -> str:
    """Bounded, without escape sequences and characters that steer a terminal."""
    return _CONTROL.sub("", _ANSI.sub("", text[:_LINE_CHARS]))


def without_secrets(text: str) -> str:
    """API keys and the like, masked."""
    lower = text.lower()
    if not any(hint in lower for hint in _SECRET_HINTS):
        return text
    for secret in _SECRETS:
        text = secret.sub(r"\1<secret>", text)
    return text


def template(message: str) -> str:
    """The message with numbers, ids and addresses masked, cut to `TEMPLATE_CHARS`."""
    text = message
    for pattern, mask in _MASKS:
        text = pattern.sub(mask, text)
    text = text.strip()
    return text if len(text) <= TEMPLATE_CHARS else text[: TEMPLATE_CHARS - 3] + "..."


def sortable(stamp: str) -> str | None:
    """`2026-11-29 14:55:33`, or `11-29 14:55:33` for stamps without a year; `None`: no calendar time."""
    if re.fullmatch(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d", stamp):
        return stamp.replace("T", " ")
    if re.fullmatch(r"\d\d-\d\d \d\d:\d\d:\d\d", stamp):
        return stamp
    match = re.fullmatch(r"([A-Z][a-z]{2}) ([ \d]\d) (\d\d:\d\d:\d\d)", stamp)
    if match and match[1] in _MONTHS:
        return f"{_MONTHS.index(match[1]) + 1:02d}-{match[2].replace(' ', '0')} {match[3]}"
    return None


def is_before(stamp: str, since: str) -> bool | None:
    """Whether a stamp lies before `since` (`YYYY-MM-DD HH:MM:SS`); `None` when it cannot be compared.

    Stamps are compared as the log writes them: no time zones, and across a new year no stamp
    without a year is right.
    """
    value = sortable(stamp)
    if value is None:
        return None
    return value < (since if len(value) > 14 else since[5:])
