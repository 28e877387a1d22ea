"""What Ctrl-C cut off: told as such, and no trial that was excluded."""

from __future__ import annotations

import report_samples as samples
from msgspec import structs

from bench.records import Crossover, Failure, Measurement, Reason, Verdict
from bench.report.choice import choices
from bench.report.content import Content
from bench.report.export import summary_file
from bench.report.words import excluded_line, remedies

MEETING = Crossover(
    route="mtp4", base="target-only", tier=6_316, condition="cold", status="crosses", wins="above",
    output_tokens=1_700.0, low=1_600.0, high=1_800.0, spread="range", samples=(2, 2),
)  # fmt: skip


def cut(one: Measurement) -> Measurement:
    verdict = Verdict(valid=False, reasons=(Reason(id="cut_off"),))
    failure = Failure(kind="cancelled", message="interrupted while the exchange was running")
    return structs.replace(one, verdict=verdict, failure=failure, attempt=9)


def excluded_in(content: Content) -> str:
    (one,) = choices(content)
    return one.excluded


def test_it_is_no_excluded_trial_of_its_cell() -> None:
    rows = samples.measurements()
    first = next(one for one in rows if (one.tier, one.condition) == (6_316, "cold"))
    whole = samples.content(rows, crossovers=(MEETING,))
    assert excluded_in(whole) == excluded_in(samples.content((cut(first), *rows), crossovers=(MEETING,)))


def test_a_route_of_which_all_was_cut_off_is_not_measured() -> None:
    rows = [
        cut(one) if (one.route, one.tier) == ("target-only", 6_316) else one for one in samples.measurements()
    ]
    found = excluded_in(samples.content(tuple(rows), crossovers=(MEETING,)))
    assert found.endswith("; target-only not measured (cut off)")


def test_summary_and_remedy_give_its_own_reason_and_blame_no_server() -> None:
    one = cut(samples.measurements()[0])
    assert summary_file(samples.content((one,))).excluded == {"cut_off": 1}
    (remedy,) = remedies([one])
    assert remedy.startswith("1 x the request was cut off by Ctrl-C or `kill`") and "--resume" in remedy
    assert "the request was cut off" in excluded_line(one) and "interrupted" not in excluded_line(one)
