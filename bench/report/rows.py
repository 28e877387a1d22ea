"""Measurements as flat columns: those of measurements.csv, its Parquet twin, and frames in Python."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from operator import attrgetter
from typing import Any

from bench.records import Failure, Measurement, Reason, RunInfo
from bench.report.escape import visible
from bench.report.labels import labelled_routes

_LEADING = (
    "trial_id", "route", "condition", "prompt_tokens", "output_tokens", "ttft_s", "total_s",
    "speculation", "num_speculative_tokens", "drafts", "draft_tokens", "accepted_tokens",
    "prefix_queries", "prefix_hits", "valid", "reasons",
)  # fmt: skip
"""Columns that `ctxbench import` knows, and those that a reader looks for first."""

_NESTED = {"sources", "absent", "failure", "verdict", "acceptance_per_position", "window"}
_PLAIN = tuple(name for name in Measurement.__struct_fields__ if name not in _NESTED)

Table = dict[str, list[Any]]
"""Column -> its values, a row each; missing is `None`."""


@cache
def columns() -> tuple[str, ...]:
    """The columns of measurements, in order: the only list of them. A new field gets one by itself."""
    return (
        *_LEADING,
        *(name for name in _PLAIN if name not in _LEADING),
        "acceptance_per_position",
        "failure",
        "figures",
        "warnings",
        "condition_held",
        "speculation_seen",
        "witnesses",
        "missing",
    )


def measurement_table(rows: Sequence[Measurement], infos: Iterable[RunInfo] = ()) -> Table:
    """Measurements as flat columns of numbers, texts and truth values, in their order.

    `infos`: the runs they are of, which tell what is declared of their routes; `rows` go by the labels of
    `labels.py` then. Lists of a row become one text, as CSV needs it.
    """
    verdicts = [one.verdict for one in rows]
    made: Table = {name: list(map(attrgetter(name), rows)) for name in _PLAIN}
    made |= _declared(rows, infos)
    made |= {
        "prefix_queries": [one.prompt_tokens if one.cached_tokens is not None else None for one in rows],
        "prefix_hits": made["cached_tokens"],
        "valid": [one.valid for one in verdicts],
        "reasons": [_ids(one.reasons) for one in verdicts],
        "figures": [_figures(one.reasons) for one in verdicts],
        "warnings": [_ids(one.warnings) for one in verdicts],
        "condition_held": [one.reuse for one in verdicts],
        "speculation_seen": [one.speculation for one in verdicts],
        "acceptance_per_position": [_positions(one.acceptance_per_position) for one in rows],
        "failure": [_failure(one.failure) for one in rows],
        "witnesses": [_pairs(tuple(one.sources.items())) for one in rows],
        "missing": [_pairs(tuple(one.absent.items())) for one in rows],
    }
    return {name: made[name] for name in columns()}


def _declared(rows: Sequence[Measurement], infos: Iterable[RunInfo]) -> Table:
    """Method and k that the suites declare for the route of each row."""
    declared = {route.name: route.speculation for route in labelled_routes(infos, rows)}
    found = [declared.get(one.route) for one in rows]
    return {
        "speculation": [one.method if one is not None else None for one in found],
        "num_speculative_tokens": [one.num_speculative_tokens if one is not None else None for one in found],
    }


def _ids(reasons: Iterable[Reason]) -> str | None:
    return "; ".join(reason.id for reason in reasons) or None


def _figures(reasons: Iterable[Reason]) -> str | None:
    """The figures of an exclusion."""
    return "; ".join(visible(reason.detail, 200) for reason in reasons if reason.detail) or None


def _positions(shares: tuple[float, ...] | None) -> str | None:
    return " ".join(f"{share:.6g}" for share in shares) if shares else None


def _failure(failure: Failure | None) -> str | None:
    return f"{failure.kind}: {visible(failure.message)}" if failure is not None else None


@lru_cache(maxsize=1024)  # rows of a run mostly have the same
def _pairs(items: tuple[tuple[str, str], ...]) -> str | None:
    return "; ".join(f"{key}: {visible(value, 200)}" for key, value in sorted(items)) or None
