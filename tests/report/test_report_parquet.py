"""Arrow arrays made by hand are those that pyarrow makes."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pyarrow as pa
import pytest

from bench.report.parquet import arrow

COLUMNS: dict[str, list[Any]] = {
    "whole numbers": [3, None, -(2**62)],
    "whole numbers without a gap": list(range(17)),
    "fractions": [0.1, None, 1e300],
    "whole numbers among fractions": [1, 0.5, None],
    "texts": ["a", None, "", "käse \U0001f600"],
    "truth": [True, None, False, *[True] * 9],
    "nothing": [None, None],
    "no row": [],
}


@pytest.mark.parametrize("values", COLUMNS.values(), ids=COLUMNS)
def test_a_column_is_what_pyarrow_makes_of_it(values: list[Any]) -> None:
    made = arrow(values)
    made.validate(full=True)
    assert made.type == pa.array(values).type
    assert made.to_pylist() == values


def test_other_values_are_refused_by_name() -> None:
    with pytest.raises(TypeError, match="a column of list"):
        arrow([[1], None])


def test_a_table_is_written_without_pandas() -> None:
    code = "from bench.report.parquet import parquet; parquet({'a': [1.0, None], 'b': ['x', 'y']})"
    told = f"{code}; import sys; sys.exit('pandas' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", told], check=False, timeout=120).returncode == 0
