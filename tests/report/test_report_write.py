"""Reports on whole run directories: deterministic, complete, and never in the way."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from pathlib import Path

import msgspec
import pytest
import report_runs
import report_samples as samples

from bench.errors import JournalError
from bench.journal import Journal, read_entries
from bench.records import Chunks, Event, Exchange
from bench.report import drill, html, style
from bench.report.content import collect
from bench.report.detail import CURVE_POINTS, Detail
from bench.report.figures_more import reuse
from bench.report.gaps import EDGES_S, GapCounts
from bench.report.plots import PLOTS
from bench.report.tables import terminal
from bench.report.write import write_report

TEXTS = {"report.md", "report.html", "measurements.csv", "summary.json", "measurements.parquet"}


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return report_runs.make_run(tmp_path_factory.mktemp("runs") / "20261129T100000Z-small")


def digests(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }


def test_a_report_holds_every_file_and_every_plot(small: Path) -> None:
    written = {str(path.relative_to(small)) for path in write_report(small)}
    alone = set(PLOTS) - {"wave"}  # nothing was released together here
    plots = {f"plots/{name}.{kind}" for name in alone for kind in ("png", "svg")}
    assert written == TEXTS | plots
    page = (small / "report.html").read_text("utf-8")
    assert page.count("<figure>") == len(alone)
    assert "http" not in page.replace("http://www.w3.org/", "").replace("http-equiv", "").replace(
        "http://127.0.0.1:8000", ""
    )
    assert not [path for path in small.rglob("*.tmp")]


def test_the_same_run_gives_the_same_bytes(small: Path, tmp_path: Path) -> None:
    copy = tmp_path / small.name
    shutil.copytree(small, copy, ignore=shutil.ignore_patterns("plots", "report*", "meas*", "summ*"))
    write_report(small, plots=False)
    write_report(copy, plots=False)
    before = digests(small)
    assert {name: before[name] for name in digests(copy)} == digests(copy)


def test_the_same_figure_gives_the_same_bytes(small: Path) -> None:
    content = collect([small])
    with style.drawing():
        first, second = reuse(content), reuse(content)
        assert first is not None and second is not None
        assert style.svg(first) == style.svg(second)
        assert style.png(first) == style.png(second)


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("interrupted", {"only": 7}, "left for ctxbench run --resume: 20 trials"),
        ("only-failures", {"fail": True, "only": 12}, "refused: nobody listens"),
        ("single", {"only": 1}, "1 of 27 planned trials measured and valid"),
        ("empty", {"only": 0}, "Nothing was measured."),
        ("no-metrics", {"metrics": False, "only": 9}, "metrics"),
    ],
)
def test_a_report_works_on_whatever_a_run_left(
    tmp_path: Path, name: str, options: dict[str, object], said: str
) -> None:
    run = report_runs.make_run(tmp_path / name, repeats=1, **options)  # type: ignore[arg-type]
    written = write_report(run, plots=name == "only-failures")
    assert {path.name for path in written} >= TEXTS
    text = (run / "report.md").read_text("utf-8")
    assert said in text
    shown = terminal(collect([run]))
    for output in (text, shown, (run / "report.html").read_text("utf-8").split("<style>")[0]):
        assert not re.search(r"\bnan\b|\bNone\b(?![.:])", output)
    json.loads((run / "summary.json").read_bytes())


def test_a_torn_last_line_is_no_obstacle(tmp_path: Path) -> None:
    run = report_runs.make_run(tmp_path / "torn", repeats=1, only=3)
    with (run / "journal.jsonl").open("ab") as file:
        file.write(b'{"kind":"exchange","trial":{"id":"half')
    assert len(collect([run]).measurements) == 3


def test_what_is_no_run_is_refused_in_one_line_and_nothing_is_written(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="not a run directory"):
        write_report(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_numbers_of_the_report_are_those_of_the_server(small: Path) -> None:
    content = collect([small])
    assert all(m.verdict.valid for m in content.measurements)
    one = next(m for m in content.measurements if m.trial_id == "mtp4/1024/cold/1")
    # the made-up server: (20 ms + 0.8 ms a token) x 1.25 for the drafter, wobbling by under 1%
    assert one.ttft_s == pytest.approx((0.02 + 0.0008 * 1_024) * 1.25, rel=0.01)
    assert one.decode_tok_s == pytest.approx(1 / 0.011, rel=0.01)
    assert one.acceptance == pytest.approx(48 / 64)
    replay = next(m for m in content.measurements if m.trial_id == "mtp4/1024/replay/1.1")
    assert replay.cached_tokens == (1_023 // 16 - 1) * 16
    found = {(c.route, c.base, c.tier, c.condition): c for c in content.crossovers}
    crossing = found["mtp4", "target-only", 1_024, "cold"]
    late = (0.02 + 0.0008 * 1_024) * 0.25
    assert crossing.output_tokens == pytest.approx(1 + late / (0.030 - 0.011), rel=0.1)


def test_harness_time_is_what_lies_between_exchanges_and_is_no_wait(small: Path) -> None:
    run = collect([small]).runs[0]
    # 8 ms and 5 ms between two requests of a route, of which 1 ms idle, 2 ms settling, 0.4 ms connecting
    assert run.harness_s is not None
    within_a_route = 3 * 17
    assert run.harness_s == pytest.approx(within_a_route * 0.0096, rel=0.01)


def test_a_finished_run_tells_its_own_harness_time(tmp_path: Path) -> None:
    run = report_runs.make_run(tmp_path / "told", repeats=1, only=3)
    with Journal.resume(run) as journal:
        for part in (1.5, 0.5):
            data: dict[str, object] = {"wall_s": 100.0, "server_s": 100.0 - part, "harness_s": part}
            journal.append(Event(name="finished", at="2026-11-29T11:00:00Z", data=data))
    found = collect([run]).runs[0]
    assert (found.harness_s, found.span_s) == (2.0, 200.0)


def test_exchanges_are_reduced_while_they_are_read(tmp_path: Path) -> None:
    run = report_runs.make_run(tmp_path / "long", repeats=1, only=2, output_tokens=4_001, samples=900)
    details = collect([run]).details
    assert {len(d.curve_s) for d in details} == {CURVE_POINTS}
    assert {len(d.sample_s) for d in details} == {CURVE_POINTS}
    assert all(d.curve_count[0] == 1 and d.curve_count[-1] == 4_001 for d in details)


def test_several_runs_are_told_apart_by_their_names(small: Path, tmp_path: Path) -> None:
    other = report_runs.make_run(tmp_path / "other", repeats=1, only=9)  # the first route alone
    content = collect([small, other])
    assert content.base == "target-only"
    assert {f"{small.name}:mtp4", "other:mtp4", "mtp2", "target-only"} == set(content.routes)
    assert max(map(len, terminal(content).splitlines())) <= 100
    details = {(d.source, d.trial_id) for d in content.details}
    assert {(m.source, m.trial_id) for m in content.measurements} == details


def test_gaps_are_counted_by_route_without_keeping_them(small: Path) -> None:
    gaps = collect([small]).gaps
    # 65 tokens at 4 a step make 17 chunks, so 16 gaps, in 18 trials
    assert gaps["mtp4"].total == 16 * 18
    assert GapCounts.merge([gaps, gaps])["mtp4"].total == 2 * 16 * 18


def test_five_thousand_trials_stay_under_five_megabytes() -> None:
    base = samples.measurements()
    many = tuple(
        msgspec.structs.replace(base[i % 36], trial_id=f"{base[i % 36].trial_id}-{i}", order=i)
        for i in range(5_000)
    )
    curve = tuple(float(i) for i in range(CURVE_POINTS))
    details = tuple(detail(m.source, m.trial_id, m.route, curve) for m in many)
    content = samples.content(many, details=details)
    found = drill.drill(content)
    assert len(found.json) <= drill.BUDGET and found.shown == 5_000 and "reduced" in found.note
    assert len(html.render(content).encode()) < 5_000_000
    few = drill.drill(content, budget=200_000)
    assert 0 < few.shown < 5_000 and "all are in measurements.csv" in few.note
    assert len(few.json) <= 200_000


def detail(source: str, trial_id: str, route: str, curve: tuple[float, ...]) -> Detail:
    return Detail(
        source=source,
        trial_id=trial_id,
        attempt=1,
        route=route,
        started_at="2026-11-29T10:00:00Z",
        status=200,
        first_text_s=1.0,
        last_text_s=2.0,
        uploaded_s=0.1,
        headers_s=0.2,
        ended_s=2.0,
        connect_s=0.01,
        idle_wait_s=0.1,
        settle_s=0.1,
        curve_s=curve,
        curve_count=tuple(range(len(curve))),
        curve_unit="tokens",
        sample_s=curve,
        kv_usage=(0.5,) * len(curve),
        said="x" * 280,
        prompt="ab, salt: Amber",
    )


def test_a_cold_row_stands_for_its_salted_samples_too(small: Path) -> None:
    rows = {(c.summary.route, c.summary.tier, c.condition): c for c in collect([small]).cells}
    cold, salted = rows["mtp4", 256, "cold"], rows["mtp4", 256, "salted"]
    assert len(cold.valid) == cold.summary.valid == 4 and len(salted.valid) == 2


def test_a_pause_between_two_parts_of_a_run_is_no_harness_time(tmp_path: Path) -> None:
    run = report_runs.make_run(tmp_path / "paused", repeats=1, only=2)
    before = collect([run]).runs[0]
    *_, last = read_entries(run)
    assert isinstance(last, Exchange) and before.span_s is not None
    an_hour_later = msgspec.structs.replace(last, sent_ns=last.sent_ns + 3_600_000_000_000)
    with Journal.resume(run) as journal:
        journal.append(Event(name="session", at="2026-11-29T12:00:00Z"))
        journal.append(an_hour_later)
    after = collect([run]).runs[0]
    assert after.harness_s == before.harness_s
    assert after.span_s == pytest.approx(before.span_s + last.ended_ns / 1e9)


def test_gaps_lie_between_chunks_with_text() -> None:
    counts = GapCounts()
    counts.add(Chunks(at_ns=(0, 10_000_000, 30_000_000, 31_000_000), chars=(0, 4, 4, 0), kinds="ecce"))
    assert counts.total == 1
    place = int(counts.counts.argmax())
    assert EDGES_S[place] <= 0.020 <= EDGES_S[place + 1]
