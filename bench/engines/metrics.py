"""One metrics page -> canonical values.

A page is foreign text: its size is bounded, a bad line costs its family alone (and not even that where
the line stands again and whole), NaN and infinity are absent. A page is first cut down to the families
a dialect knows (a vLLM page of 57 kB holds some sixty lines of them), and only these are read.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

from msgspec import Struct

from bench.engines.base import Alias, Dialect, Values
from bench.engines.exposition import Labels, read_sample

MAX_CHARS = 16_000_000
MAX_BAD_LINES = 20
MAX_LINE = 65_536
_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_ROUTERS = (
    "this page is a router's, which repeats its servers' names: give the engine's own page as metrics_url"
)


class Page(Struct, frozen=True, kw_only=True):
    """What a dialect knows of one metrics page."""

    values: dict[str, float] = {}
    """Canonical name -> value; a metric that is not on the page is not in here."""
    info: dict[str, str] = {}
    """Labels of the engine's configuration family, as they stand."""
    unknown: tuple[str, ...] = ()
    """Canonical names, without suffix, that stand on the page and are not in `values` because not all of
    their lines could be read: a sum without one of them would look like a fall."""
    bad_lines: tuple[str, ...] = ()
    """Lines of needed families that could not be read, at most twenty, cut to 200 characters."""
    problem: str | None = None
    """Why there is nothing, or not all, to be read."""


def read_page(text: str, dialect: Dialect, headers: Mapping[str, str] | None = None) -> Page:
    """Read a page in text or OpenMetrics form.

    Counters are summed over engines and label sets; gauges that are fractions or capacities give
    the largest. `headers` are those of the answer, for engines that tell their process start there.
    Never raises: `Page.problem` says what is wrong.
    """
    if len(text) > MAX_CHARS:
        return Page(problem=f"the metrics page has {len(text):,} characters, more than {MAX_CHARS:,}")
    if text.lstrip()[:1] in ("{", "[", "<"):
        return Page(problem="the answer is no metrics page (JSON or HTML)")
    wanted = _wanted(dialect)
    groups, others = _needed_lines(text, wanted)
    samples: dict[str, list[tuple[Labels, float]]] = {}
    bad: list[str] = []
    lossy: set[str] = set()
    for sample, lines in groups.items():
        parsed, broken = _parse(lines)
        samples[sample] = parsed
        bad += [line[:200] for line in broken]
        if broken and _loses(lines, broken):
            lossy.add(sample)
    if _is_routers(samples):
        return Page(problem=_ROUTERS)
    values, unknown = _values(dialect, samples, lossy)
    start = _start_header(headers)
    if start is not None:
        values.setdefault("process_start", start)
    return Page(
        values=values,
        unknown=tuple(sorted(unknown)),
        info=_info(dialect, samples),
        bad_lines=tuple(bad[:MAX_BAD_LINES]),
        problem=_problem(dialect, groups, samples, bad, others),
    )


@lru_cache(maxsize=32)
def _wanted(dialect: Dialect) -> dict[str, str]:
    """Every spelling of a needed sample name -> the sample's own name, without prefix and `_total`."""
    wanted: dict[str, str] = {}
    names = [(alias.sample, alias.kind, alias.prefixed) for alias in dialect.aliases]
    names += [(family, "gauge", True) for family in _info_families(dialect)]
    for sample, kind, prefixed in names:
        endings = {"histogram": ("_sum", "_count"), "counter": ("", "_total")}.get(kind, ("",))
        starts = [p + mark for p in dialect.prefixes for mark in ":_"] if prefixed else [""]
        for start in starts:
            for ending in endings:
                own = sample + (ending if kind == "histogram" else "")
                wanted[f"{start}{sample}{ending}"] = own
    return wanted


def _needed_lines(text: str, wanted: Mapping[str, str]) -> tuple[dict[str, list[str]], int]:
    """Lines of needed families by sample name, and how many other sample lines there are."""
    groups: dict[str, list[str]] = {}
    others = 0
    for line in text.split("\n"):
        if not line or line[0] == "#":
            continue
        cut = line.find("{")
        name = line[:cut] if cut > 0 else line.split(" ", 1)[0]
        own = wanted.get(name)
        if own is None and ("\t" in line or line[0] == " "):  # rare forms of white space
            found = _NAME.match(line.lstrip())
            own = wanted.get(found[0]) if found else None
        if own is None:
            others += 1
        else:
            groups.setdefault(own, []).append(line.strip())
    return groups, others


def _parse(lines: list[str]) -> tuple[list[tuple[Labels, float]], list[str]]:
    """Samples of one family, and its lines that cannot be read."""
    good: list[tuple[Labels, float]] = []
    bad: list[str] = []
    for line in lines:
        try:
            if len(line) > MAX_LINE:
                raise ValueError("too long a line")
            good.append(read_sample(line))
        except ValueError:
            bad.append(line)
    return good, bad


def _loses(lines: list[str], broken: list[str]) -> bool:
    """Whether a family lacks a series: one of its broken lines has no whole line of the same labels."""
    if len(broken) > MAX_BAD_LINES:
        return True
    bad = set(broken)
    whole = tuple(line.rpartition("}")[0] or line.split(" ")[0] for line in lines if line not in bad)
    return not all(line.startswith(whole) for line in broken)


def _values(
    dialect: Dialect, samples: Mapping[str, list[tuple[Labels, float]]], lossy: set[str]
) -> tuple[dict[str, float], set[str]]:
    """Values by canonical name, and the names whose samples are among the lossy ones."""
    values: dict[str, float] = {}
    unknown: set[str] = set()
    done: set[str] = set()
    for alias in dialect.aliases:
        if alias.name in done:
            continue
        endings = ("_sum", "_count") if alias.kind == "histogram" else ("",)
        if lossy and any(alias.sample + ending in lossy for ending in endings):
            unknown.add(alias.name)
            done.add(alias.name)
            continue
        for ending in endings:
            found = _merge(alias, samples.get(alias.sample + ending, []), dialect.replica_labels)
            for suffix, value in found.items():
                values[alias.name + ending + suffix] = value
            if found:
                done.add(alias.name)
    return values, unknown


def _merge(
    alias: Alias, series: list[tuple[Labels, float]], replica_labels: tuple[str, ...]
) -> dict[str, float]:
    """Suffix -> value over all series an alias counts; replicas of one rank are counted once."""
    ranks: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
    for labels, value in series:
        if not math.isfinite(value) or not _counts(alias, labels):
            continue
        suffix = f".{labels.get(alias.by, '')}" if alias.by else ""
        own = tuple(sorted(item for item in labels.items() if item[0] not in replica_labels))
        key = (suffix, own)
        ranks[key] = max(ranks[key], value) if key in ranks else value
    merged: dict[str, float] = {}
    for (suffix, _), value in ranks.items():
        if suffix not in merged:
            merged[suffix] = value
        else:
            merged[suffix] = max(merged[suffix], value) if alias.largest else merged[suffix] + value
    return merged


def _counts(alias: Alias, labels: Labels) -> bool:
    return all(labels.get(label, "") in allowed for label, allowed in alias.only) and not any(
        labels.get(label, "") in refused for label, refused in alias.never
    )


def _info_families(dialect: Dialect) -> tuple[str, ...]:
    return ((dialect.info_family,) if dialect.info_family else ()) + dialect.more_info


def _info(dialect: Dialect, samples: Mapping[str, list[tuple[Labels, float]]]) -> dict[str, str]:
    info: dict[str, str] = {}
    for family in _info_families(dialect):
        if found := samples.get(family):
            info = {**found[0][0], **info}
    return info


def _is_routers(samples: Mapping[str, list[tuple[Labels, float]]]) -> bool:
    """A router repeats its servers' names, as gauges of what it read there some time ago."""
    series = [labels for group in samples.values() for labels, _ in group]
    return any("server" in labels and "model_name" not in labels for labels in series)


def without(values: Values, unknown: Sequence[str]) -> Values:
    """`values` without those of the names in `unknown`, whatever their suffix."""
    if not unknown:
        return values
    return {name: value for name, value in values.items() if _family(name) not in unknown}


def _family(name: str) -> str:
    """The name that a value has its own from: `ttft` of `ttft_sum`, `a_per_pos` of `a_per_pos.0`."""
    return name.partition(".")[0].removesuffix("_sum").removesuffix("_count")


def _start_header(headers: Mapping[str, str] | None) -> float | None:
    """llama.cpp's `Process-Start-Time-Unix`: a clock of its own, fit for comparing only."""
    for name, value in (headers or {}).items():
        if name.lower() == "process-start-time-unix" and re.fullmatch(r"[0-9]{1,20}", value.strip()):
            return float(value)
    return None


def _problem(
    dialect: Dialect,
    groups: Mapping[str, list[str]],
    samples: Mapping[str, list[tuple[Labels, float]]],
    bad: list[str],
    others: int,
) -> str | None:
    if bad:
        return f"{len(bad)} line(s) of the metrics page cannot be read, first: {bad[0][:80]!r}"
    if not dialect.aliases:
        return None
    if not groups and not others:
        return "the metrics page is empty"
    own = {alias.sample for alias in dialect.aliases if alias.prefixed}
    if not any(sample.removesuffix("_sum").removesuffix("_count") in own for sample in groups):
        return f"the metrics page has no family of {dialect.name}"
    return None
