"""Which trials share a prompt text: texts, not trials, are independent of each other.

A cold prompt, its salted twin and its replays hold the same text. What a drafter makes of a text (its
acceptance, so the decode rate) is common to them, and more of them say nothing of other texts. So the trials
of a text are put together, by their median, before any interval, test or count of what is enough.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from operator import attrgetter

import numpy as np
from msgspec import structs

from bench.analysis.statistics import bootstrap
from bench.analysis.statistics.bootstrap import Floats
from bench.records import Estimate, Measurement

_Group = tuple[str, int, str, int]


def text_keys(rows: Sequence[Measurement]) -> list[str | None]:
    """A name of each row's text, equal for rows that share it; `None`: a table that does not tell.

    A replay has its cold prompt's hash. A salted twin has another one; it belongs to the cold prompt of
    its repeat, where that is one of the rows, and not several.
    """
    if not any(row.condition == "salted" for row in rows):
        return [row.pair for row in rows]
    plain: dict[_Group, set[str]] = defaultdict(set)
    for row in rows:
        if row.pair is not None and row.condition != "salted":
            plain[_group(row)].add(row.pair)
    return [_key(row, plain.get(_group(row), set())) for row in rows]


def _group(row: Measurement) -> _Group:
    return (row.source, row.tier, row.task, row.repeat)


def _key(row: Measurement, plain: set[str]) -> str | None:
    if row.pair is not None and row.condition == "salted" and len(plain) == 1:
        (twin,) = plain
        return twin
    return row.pair


class Texts:
    """Measurements of one route put together by text, texts in their order of appearance.

    Where a table does not tell which rows share a text, each of them is one.
    """

    def __init__(self, rows: Sequence[Measurement]) -> None:
        self.rows = rows
        places: dict[object, int] = {}
        keys = [key if key is not None else (number,) for number, key in enumerate(text_keys(rows))]
        self.places = np.array([places.setdefault(key, len(places)) for key in keys], dtype=np.int64)
        self.keys = tuple(key if isinstance(key, str) else None for key in places)

    def __len__(self) -> int:
        """Number of texts."""
        return len(self.keys)

    def medians(self, values: Floats) -> Floats:
        """The median of each text's values (rows,), NaN standing for none; texts without any are left out."""
        known = ~np.isnan(values)
        places, values = self.places[known], values[known]
        if values.size == 0 or len(self) == len(self.rows):
            return values
        order = np.lexsort((values, places))
        ordered = values[order]
        _, starts, counts = np.unique(places[order], return_index=True, return_counts=True)
        middle: Floats = (ordered[starts + (counts - 1) // 2] + ordered[starts + counts // 2]) / 2
        return middle

    def column(self, field: str) -> Floats:
        """The median of one field for each text that has it."""
        return self.medians(self.values(field))

    def values(self, field: str) -> Floats:
        """One field of every row, NaN where it is absent."""
        return np.array(list(map(attrgetter(field), self.rows)), dtype=float)

    def median(self, field: str) -> Estimate | None:
        """Median over texts with its spread; `None` where no row has the field."""
        values = self.values(field)
        if np.isnan(values).all():
            return None
        return told(bootstrap.median(self.medians(values)), int(np.count_nonzero(~np.isnan(values))))

    def middle_curves(self, curves: Floats) -> Floats:
        """Curves (rows, columns) put together by text, (texts, columns)."""
        if len(self) == len(self.rows):
            return curves
        return np.stack([np.median(curves[self.places == place], axis=0) for place in range(len(self))])


def told(estimate: Estimate, trials: int) -> Estimate:
    """An estimate over texts that says how many trials there were, where these are more."""
    return estimate if trials == estimate.samples else structs.replace(estimate, trials=trials)


def are_paired(a: Texts, b: Texts) -> bool:
    """Whether both sides have exactly the same texts."""
    return None not in a.keys and set(a.keys) == set(b.keys)
