"""Watched requests and windows as lines for a terminal. What a server said is made harmless first."""

from __future__ import annotations

import re

from bench.analysis.watch.described import Watched
from bench.analysis.watch.journal import LogLine
from bench.analysis.watch.totals import Totals
from bench.report.escape import visible

GAUGES = {
    "gpu_utilisation": ("GPU busy", "%", 100.0, ".0f"),
    "gpu_dram_active": ("GPU memory active", "%", 100.0, ".0f"),
    "gpu_memory_used": ("GPU memory", " GB", 1e-9, ",.1f"),
    "gpu_power": ("GPU power", " W", 1.0, ",.0f"),
    "host_load": ("host load", "", 1.0, ",.1f"),
    "host_memory_used": ("host memory", " GB", 1e-9, ",.1f"),
}
"""Gauge -> its name, the unit shown, the factor to it, its format."""


def line(one: Watched) -> str:
    """One line: a request with all its numbers, or a window and why it cannot be split."""
    if one.kind == "restart":
        return f"restart: {visible(one.why)}{_behind(_counts(one))}"
    if one.kind == "request":
        parts = [*_counts(one), *_times(one), *_speculation(one), *_load(one)]
        return "; ".join(["1 request alone", *parts, *map(visible, one.notes)])
    parts = [*_counts(one), *_times(one, mean=True), *_speculation(one), *_load(one)]
    return "; ".join(
        [f"{visible(one.why)} (not split, {one.span_s:.1f} s)", *parts, *map(visible, one.notes)]
    )


def log_head(one: LogLine) -> str:
    """`log, 120 x ERROR`; without the level where the line says it itself at its beginning."""
    level = one.level or "line"
    says_it = one.level is not None and re.search(rf"\b{re.escape(level)}\b", one.text[:80]) is not None
    return f"log, {one.count:,} x" if says_it else f"log, {one.count:,} x {visible(level, 20)}"


def totals_line(totals: Totals, watched_s: float) -> str:
    """What all of it came to."""
    more = " or more" if totals.uncounted_windows else ""
    plural = "" if totals.requests == 1 and not more else "s"
    parts = [
        f"{totals.requests}{more} request{plural} in {watched_s:.0f} s",
        f"{totals.alone} of them alone",
    ]
    sums = totals.sums
    if "prompt_tokens" in sums:
        reuse = totals.prefix_reuse
        reused = f" ({totals.reused:,.0f} reused, {reuse:.1%})" if reuse is not None else ""
        parts.append(f"{sums['prompt_tokens']:,.0f} prompt tokens{reused}")
    if "output_tokens" in sums:
        parts.append(f"{sums['output_tokens']:,.0f} output tokens")
    for name, label, form in (
        ("server_ttft_s", "server TTFT", "{:.3f} s"),
        ("queue_s", "queue", "{:.3f} s"),
        ("decode_tok_s", "decode", "{:.1f} tok/s"),
    ):
        if name in totals.spans:
            low, high = (form.format(value) for value in totals.spans[name])
            parts.append(f"{label} {low}" if low == high else f"{label} {low} to {high}")
    if totals.acceptance is not None:
        length = totals.acceptance_length
        parts.append(f"acceptance {totals.acceptance:.1%}" + (f", length {length:.2f}" if length else ""))
    if "kv_usage_peak" in totals.spans:
        parts.append(f"KV peak {totals.spans['kv_usage_peak'][1]:.1%}")
    parts += [f"{sums[name]:,.0f} {name}" for name in ("failed", "aborted", "preemptions") if sums.get(name)]
    if totals.restarts:
        parts.append(f"{totals.restarts} restart{'s' if totals.restarts > 1 else ''}")
    return "total: " + "; ".join(parts)


def _behind(parts: list[str]) -> str:
    return f" (until then {', '.join(parts)})" if parts else ""


def _counts(one: Watched) -> list[str]:
    parts = []
    off = f" +-{one.slack_tokens:.0f}" if one.slack_tokens else ""
    if one.prompt_tokens is not None:
        reused = ""
        if one.cached_tokens is not None and one.prefix_reuse is not None:
            reused = f" ({one.cached_tokens:,} reused, {one.prefix_reuse:.1%})"
        parts.append(f"{one.prompt_tokens:,}{off} prompt tokens{reused}")
    elif "prompt_tokens" in one.absent:
        parts.append(f"prompt tokens unknown: {visible(one.absent['prompt_tokens'])}")
    if one.output_tokens is not None:
        parts.append(f"{one.output_tokens:,}{off} output tokens")
    return parts


def _times(one: Watched, *, mean: bool = False) -> list[str]:
    about = "mean " if mean else ""
    parts = []
    if one.server_ttft_s is not None:
        by = " (log)" if one.sources.get("server_ttft_s", "").startswith("log") else ""
        parts.append(f"{about}server TTFT{by} {one.server_ttft_s:.3f} s")
    elif one.prefill_s is not None:
        parts.append(f"prefill at least {one.prefill_s:.3f} s")
    if one.queue_s is not None:
        parts.append(f"{about}queue {one.queue_s:.3f} s")
    if one.decode_tok_s is not None:
        parts.append(f"{about}decode {one.decode_tok_s:.1f} tok/s")
    return parts


def _speculation(one: Watched) -> list[str]:
    if one.acceptance is None:
        length = one.acceptance_length
        return [f"acceptance length {length:.2f}"] if length is not None else []
    text = f"acceptance {one.acceptance:.1%}"
    if one.acceptance_length is not None:
        text += f", length {one.acceptance_length:.2f}"
    if one.acceptance_per_position:
        text += f", by place {' '.join(f'{rate:.2f}' for rate in one.acceptance_per_position)}"
    return [text]


def _load(one: Watched) -> list[str]:
    parts = [f"KV {one.kv_usage_peak:.1%}"] if one.kv_usage_peak is not None else []
    for name in ("failed", "aborted", "preemptions"):
        if value := getattr(one, name):
            parts.append(f"{value} {name}")
    return [*parts, *_machine(one)]


def _machine(one: Watched) -> list[str]:
    parts = []
    for use in one.machine:
        head, unit, factor, form = GAUGES[use.gauge]
        mean, peak = (f"{value * factor:{form}}{unit}" for value in (use.mean, use.peak))
        parts.append(f"{head} {mean} (peak {peak})")
    return parts
