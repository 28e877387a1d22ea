"""measurements.parquet: columns of Python values, made into Arrow arrays by hand.

`pyarrow.array` would do that, and imports pandas before it looks at anything: half a second on every
report for a table of some kilobytes.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from types import NoneType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq


def parquet(columns: Mapping[str, Sequence[Any]]) -> bytes:
    """A Parquet file of columns of one length. `None` is null."""
    table = pa.Table.from_arrays([arrow(values) for values in columns.values()], names=list(columns))
    out = io.BytesIO()
    pq.write_table(table, out)
    return out.getvalue()


def arrow(values: Sequence[Any]) -> Any:
    """The values of one column as `pyarrow.array` would have them: all of one kind (whole numbers and
    fractions together are fractions), or `None`.

    Raises `TypeError` for other values.
    """
    kinds = set(map(type, values))
    nulls = None
    if NoneType in kinds:
        kinds.remove(NoneType)
        nulls = _bits(np.array([value is not None for value in values]))
    if not kinds:
        return pa.nulls(len(values))
    if kinds == {str}:
        return _texts(values, nulls)
    if kinds == {bool}:
        truth = np.array([bool(value) for value in values])
        return pa.Array.from_buffers(pa.bool_(), len(values), [nulls, _bits(truth)])
    if not kinds <= {int, float}:
        raise TypeError(f"a column of {', '.join(sorted(kind.__name__ for kind in kinds))}")
    kind, dtype = (pa.float64(), np.float64) if float in kinds else (pa.int64(), np.int64)
    numbers = values if nulls is None else [0 if value is None else value for value in values]
    data = pa.py_buffer(np.array(numbers, dtype=dtype))
    return pa.Array.from_buffers(kind, len(values), [nulls, data])


def _texts(values: Sequence[str | None], nulls: Any) -> Any:
    """Texts one after the other in UTF-8, and where each begins; a missing one is empty."""
    coded = [b"" if value is None else value.encode() for value in values]
    begins = np.zeros(len(coded) + 1, dtype=np.int32)
    np.cumsum([len(text) for text in coded], out=begins[1:])
    parts = [nulls, pa.py_buffer(begins), pa.py_buffer(b"".join(coded))]
    return pa.Array.from_buffers(pa.string(), len(coded), parts)


def _bits(truth: np.ndarray) -> Any:
    """A bit a value, the first one lowest."""
    return pa.py_buffer(np.packbits(truth, bitorder="little"))
