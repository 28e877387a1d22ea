"""Which trials share a prompt text: texts, not trials, are independent of each other.

A cold prompt, its salted twin, its replays and all of these sent again hold the same text. What a drafter
makes of a text (its acceptance, so the decode rate) is common to them, and more of them say nothing of other
texts. So the trials of a text are put together, by their median, before any interval, test or count of what
is enough. Two routes or runs that were sent the same texts are compared text by text (`in_pairs`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from operator import attrgetter

import numpy as np
from msgspec import structs

from bench.analysis.statistics import bootstrap
from bench.analysis.statistics.bootstrap import Floats
from bench.records import Estimate, Measurement

_Group = tuple[str, int, str, int]

PAIRS = 6
"""Pairs from which on the signed-rank test can decide: with five its smallest two-sided p is 0.0625."""


def text_keys(rows: Sequence[Measurement]) -> list[str | None]:
    """A name of each row's text, equal for rows that share it; `None`: a table that does not tell.

    Rows without `text_key` go by their prompt's hash. A replay has its cold prompt's; a salted twin has
    another one and belongs to the cold prompt of its repeat, where that is one of the rows, and not several.
    """
    hashed = [row for row in rows if not row.text_key]
    plain: dict[_Group, set[str]] = defaultdict(set)
    if any(row.condition == "salted" for row in hashed):
        for row in hashed:
            if row.pair is not None and row.condition != "salted":
                plain[_group(row)].add(row.pair)
    return [row.text_key or _key(row, plain.get(_group(row), set())) for row in rows]


def _group(row: Measurement) -> _Group:
    return (row.source, row.tier, row.task, row.repeat)


def _key(row: Measurement, plain: set[str]) -> str | None:
    if row.pair is not None and row.condition == "salted" and len(plain) == 1:
        (twin,) = plain
        return twin
    return row.pair


class Texts:
    """Measurements of one route put together by text.

    Texts stand in the order of their names, whatever the order of their trials: drawn by the same stream
    they give the same resamples, on both sides and after a trial was sent again. Where a table does not
    tell which rows share a text, each of them is one; these come last.
    """

    def __init__(self, rows: Sequence[Measurement], keys: Sequence[str | None] | None = None) -> None:
        self.rows = rows
        given = text_keys(rows) if keys is None else keys
        self.row_keys = tuple(given)
        """Of each row, the name of its text."""
        named = sorted({key for key in given if key is not None})
        unknown = sum(key is None for key in given)
        self.keys: tuple[str | None, ...] = (*named, *(None,) * unknown)
        """Of each text, its name."""
        at = {key: place for place, key in enumerate(named)}
        nameless = iter(range(len(named), len(self.keys)))
        places = [next(nameless) if key is None else at[key] for key in given]
        self._places = np.array(places, dtype=np.int64)

    def __len__(self) -> int:
        """Number of texts."""
        return len(self.keys)

    def rows_of(self, keys: Collection[str]) -> list[int]:
        """Places of the rows of these texts, in their order."""
        return [place for place, key in enumerate(self.row_keys) if key in keys]

    def only(self, keys: Collection[str]) -> Texts:
        """These texts alone."""
        kept = self.rows_of(keys)
        return Texts([self.rows[place] for place in kept], [self.row_keys[place] for place in kept])

    def medians(self, values: Floats) -> Floats:
        """The median of each text's values (rows,), NaN standing for none; texts without any are left out."""
        known = ~np.isnan(values)
        places, values = self._places[known], values[known]
        if values.size == 0:
            return values
        order = np.lexsort((values, places))
        ordered = values[order]
        if len(self) == len(self.rows):
            return ordered
        _, starts, counts = np.unique(places[order], return_index=True, return_counts=True)
        middle: Floats = (ordered[starts + (counts - 1) // 2] + ordered[starts + counts // 2]) / 2
        return middle

    def column(self, field: str) -> Floats:
        """The median of one field for each text that has it."""
        return self.medians(self.values(field))

    def values(self, field: str) -> Floats:
        """One field of every row, NaN where it is absent."""
        found = list(map(attrgetter(field), self.rows))
        if found.count(None) == len(found):  # numpy takes its time over what is no number
            return np.full(len(found), np.nan)
        return np.array(found, dtype=float)

    def median(self, field: str) -> Estimate | None:
        """Median over texts with its spread; `None` where no row has the field."""
        values = self.values(field)
        if np.isnan(values).all():
            return None
        return told(bootstrap.median(self.medians(values)), int(np.count_nonzero(~np.isnan(values))))

    def middle(self, field: str) -> float | None:
        """The value of `median` without its spread."""
        values = self.column(field)
        return bootstrap.middle(values) if values.size else None

    def middle_curves(self, curves: Floats) -> Floats:
        """Curves (rows, columns) put together by text, (texts, columns)."""
        if len(self) == len(self.rows):
            return curves[np.argsort(self._places)]
        return np.stack([np.median(curves[self._places == place], axis=0) for place in range(len(self))])


def told(estimate: Estimate, trials: int) -> Estimate:
    """An estimate over texts that says how many trials there were, where these are more."""
    return estimate if trials == estimate.samples else structs.replace(estimate, trials=trials)


def in_pairs(a: Texts, b: Texts) -> frozenset[str] | None:
    """The texts by which two sides are compared in pairs; `None`: each side stands for itself.

    In pairs where both have the same texts, or share `PAIRS` of them or more and half of those that the
    smaller side has. So the design decides, that is which texts were sent and measured, and no time or rate.
    """
    shared = frozenset(key for key in {*a.keys} & {*b.keys} if key is not None)
    whole = len(shared) == len(a) == len(b)
    enough = len(shared) >= PAIRS and 2 * len(shared) >= min(len(a), len(b))
    return shared if shared and (whole or enough) else None


def left_out(a: Texts, b: Texts, pairs: Collection[str]) -> tuple[int, int] | None:
    """How many texts of each side are in no pair; `None`: all are in one."""
    out = len(a) - len(pairs), len(b) - len(pairs)
    return out if any(out) else None


def pairs_told(pairs: int, out: tuple[int, int], names: tuple[str, str]) -> str:
    """Says how many pairs there are, and how many texts of the named sides are in none."""
    names = names if names[0] != names[1] else ("the new run", "the baseline")
    parts = [f"{count:,} of {name}" for name, count in zip(names, out, strict=True) if count]
    return f"compared on the {pairs:,} texts that both sides have; left out: {' and '.join(parts)}"
