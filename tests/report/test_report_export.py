"""Tables for machines: read back without loss, valid against their schema."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import jsonschema
import msgspec
import pytest
import report_samples as samples

from bench.analysis.decisions.baseline import read_table
from bench.report import export
from bench.report.rows import columns

SCHEMA = Path(__file__).parents[2] / "docs" / "schema" / f"summary-{export.SUMMARY_SCHEMA}.json"


def test_measurements_come_back_from_the_table_as_they_were() -> None:
    content = samples.content()
    back = read_table(export.measurements_csv(content), kind="csv", source="measurements.csv")
    for one, other in zip(content.measurements, back, strict=True):
        for name in (
            "trial_id", "route", "condition", "tier", "repeat", "prompt_tokens", "output_tokens", "ttft_s",
            "total_s", "decode_tok_s", "drafts", "accepted_tokens", "acceptance", "prefix_reuse",
        ):  # fmt: skip
            kept, back_again = getattr(one, name), getattr(other, name)
            # what can be computed from the raw columns is computed anew
            same = pytest.approx(kept, rel=1e-12) if isinstance(kept, float) else kept
            assert back_again == same, name
        assert other.verdict.valid == one.verdict.valid
        assert [r.id for r in other.verdict.reasons] == [r.id for r in one.verdict.reasons]


def test_missing_is_an_empty_cell_and_never_a_number() -> None:
    rows = list(csv.DictReader(io.StringIO(export.measurements_csv(samples.content((samples.failed(),))))))
    assert rows[0]["ttft_s"] == rows[0]["prompt_tokens"] == rows[0]["acceptance"] == ""
    assert rows[0]["valid"] == "false" and rows[0]["reasons"] == "failed"
    assert rows[0]["missing"] == "ttft_s: no text arrived"
    assert rows[0]["failure"] == "refused: nobody listens on 127.0.0.1:8000"


def test_texts_are_quoted_as_the_csv_module_quotes_them() -> None:
    refused = samples.failed(message='the port, "8000", is closed')
    text = export.measurements_csv(samples.content((refused, samples.failed(message="nobody listens"))))
    rows = list(csv.reader(io.StringIO(text)))
    again = io.StringIO()
    csv.writer(again, lineterminator="\n").writerows(rows)
    assert text == again.getvalue()
    failures = [row[rows[0].index("failure")] for row in rows[1:]]
    assert failures == ['refused: the port, "8000", is closed', "refused: nobody listens"]


def test_every_measured_field_has_a_column() -> None:
    names = set(columns())
    nested = {"sources", "absent", "verdict", "window"}
    assert set(samples.measurements()[0].__struct_fields__) - nested <= names
    assert len(names) == len(columns())


def test_the_published_schema_is_the_one_of_the_code() -> None:
    assert SCHEMA.read_bytes() == export.summary_schema()


def test_summaries_are_valid_against_the_published_schema() -> None:
    schema = json.loads(SCHEMA.read_text("utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    for content in (samples.content(), samples.content((samples.failed(),)), samples.content(())):
        data = json.loads(export.summary_json(content))
        jsonschema.validate(data, schema)
    assert "NaN" not in export.summary_json(samples.content()).decode()


def test_the_summary_counts_what_was_excluded() -> None:
    data = msgspec.json.decode(export.summary_json(samples.content()), type=export.SummaryFile)
    assert (data.valid, data.excluded, data.base) == (35, {"replay_missed": 1}, "target-only")
    assert data.crossovers == samples.CROSSOVERS


def test_parquet_holds_the_same_rows() -> None:
    import pyarrow.parquet as pq

    content = samples.content()
    data = export.measurements_parquet(content)
    assert data is not None and data == export.measurements_parquet(content)
    rows = pq.read_table(io.BytesIO(data)).to_pylist()
    assert [row["ttft_s"] for row in rows] == [m.ttft_s for m in content.measurements]
