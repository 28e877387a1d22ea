"""The report of a watch: its numbers, where they come from, and what others wrote into it."""

from __future__ import annotations

import csv
import io
import json
import shlex
from pathlib import Path

import jsonschema
import msgspec
import pytest
import report_runs
from click.testing import CliRunner
from msgspec import structs
from test_report_sources import Figures

from bench.analysis.statistics.machine import PhaseUse
from bench.analysis.watch.described import Watched
from bench.analysis.watch.journal import LogLine, Seen
from bench.analysis.watch.spread import spreads
from bench.cli.report import report
from bench.errors import JournalError
from bench.journal import Journal
from bench.records import Event, Route, RunInfo, ServerFacts
from bench.report.content import collect
from bench.report.escape import visible
from bench.report.watch import export, render
from bench.report.watch.content import collect_watch
from bench.report.watch.numbers import NUMBERS, cell
from bench.report.write import write_report

SCHEMA = Path(__file__).parents[2] / "docs" / "schema" / f"watch-{export.WATCH_SCHEMA}.json"
HOSTILE = "<script>alert(1)</script>|\x1b[31m\u202e`=cmd()"
ROUTE = Route(
    name="watched",
    base_url="http://127.0.0.1:8000/v1",
    metrics_url="http://127.0.0.1:8000/metrics",
    engine="vllm",
)
FACTS = ServerFacts(
    engine="vllm",
    version="0.32.0",
    block_size=16,
    flags={"cache_dtype": "auto"},
    sources={"version": "/version", "block_size": "cache_config_info block_size"},
)
SOURCES = {
    "prompt_tokens": "counters",
    "cached_tokens": "counter cached_tokens",
    "output_tokens": "counters",
    "server_ttft_s": "histogram ttft",
    "decode_tok_s": "histogram decode",
}


def alone(second: int, prompt: int, cached: int, ttft_s: float) -> Seen:
    """A request of 101 tokens that decoded for two seconds."""
    return Seen(
        at=f"2026-11-29T10:00:{second:02}.000Z",
        watched=Watched(
            kind="request",
            proof="counters: one request finished, and no other was counted or seen",
            span_s=2.0 + ttft_s,
            pages=3,
            requests=1,
            failed=0,
            prompt_tokens=prompt,
            cached_tokens=cached,
            prefix_reuse=cached / prompt,
            output_tokens=101,
            server_ttft_s=ttft_s,
            decode_tok_s=50.0,
            kv_usage_peak=0.25,
            sources=SOURCES,
            absent={"queue_s": "vllm has no histogram of it", "acceptance": "nothing was drafted"},
        ),
    )


def window(second: int, why: str) -> Seen:
    """Three requests that overlapped, one of which failed."""
    one = Watched(
        kind="window",
        why=why,
        span_s=9.0,
        pages=9,
        requests=3,
        failed=1,
        prompt_tokens=3_000,
        output_tokens=300,
        server_ttft_s=1.5,
        kv_usage_peak=0.5,
        in_flight_peak=3,
        sources=SOURCES,
    )
    log = (LogLine(count=2, level="ERROR", text=HOSTILE, why=HOSTILE),)
    return Seen(at=f"2026-11-29T10:00:{second:02}.000Z", watched=one, log=log)


def restart(second: int) -> Seen:
    one = Watched(kind="restart", why="another process start", span_s=1.0, pages=2, output_tokens=7)
    return Seen(at=f"2026-11-29T10:00:{second:02}.000Z", watched=one)


SEEN = (
    alone(10, 1_000, 0, 4.0),
    alone(20, 1_000, 960, 0.25),
    window(30, "3 requests overlapped"),
    window(35, HOSTILE),
    restart(40),
    alone(50, 2_000, 0, 8.0),
)


def make_watch(path: Path, *seen: Seen, whole: bool = True) -> Path:
    suite = msgspec.structs.replace(report_runs.suite((), 0, 0), name="watch", conditions=(), routes=(ROUTE,))
    info = RunInfo(
        schema=1,
        id=path.name,
        created_at="2026-11-29T10:00:00.000Z",
        nonce="0",
        suite=suite,
        suite_text="",
        plan=(),
        facts={"watched": FACTS},
        environment={"python": "CPython 3.11"},
    )
    with Journal.create(path, info) as journal:
        for one in seen:
            journal.append(Event(name="watched", at=one.at, data=msgspec.to_builtins(one)))
        at = "2026-11-29T10:00:55.000Z"
        journal.append(Event(name="note", at=at, message=f"no metrics page: {HOSTILE}"))
        if whole:
            data: dict[str, object] = {"watched_s": 60.0, "pages": 61, "missed": 2}
            journal.append(Event(name="watch ended", at="2026-11-29T10:01:00.000Z", data=data))
    return path


@pytest.fixture
def watched(tmp_path: Path) -> Path:
    return make_watch(tmp_path / "friday", *SEEN)


def test_a_watch_gets_its_files_and_the_same_bytes_again(watched: Path) -> None:
    written = write_report(watched)
    plots = [f"plots/{name}.{kind}" for name in ("first_token", "decode", "day") for kind in ("png", "svg")]
    assert [str(path.relative_to(watched)) for path in written] == [
        "report.md", "watched.csv", "summary.json", *plots, "report.html",
    ]  # fmt: skip
    first = [path.read_bytes() for path in written]
    assert [path.read_bytes() for path in write_report(watched)] == first


def test_the_sums_and_spreads_are_those_of_what_was_seen(watched: Path) -> None:
    data = json.loads(export.watch_json(collect_watch(watched)))
    totals = data["totals"]
    assert (totals["requests"], totals["alone"], totals["windows"], totals["restarts"]) == (9, 3, 2, 1)
    assert (totals["prompt_tokens"], totals["cached_tokens"]) == (1_000 + 1_000 + 2_000 + 2 * 3_000, 960)
    assert totals["output_tokens"] == 3 * 101 + 2 * 300 + 7
    assert (totals["failed"], totals["acceptance"], totals["kv_usage_peak"]) == (2, None, 0.5)
    assert totals["prefix_reuse"] == pytest.approx(960 / 4_000)  # windows here do not tell
    # 0.25, 4 and 8: nine tenths of the way lie at 4 + 0.8 x 4
    assert data["alone"]["server_ttft_s"] == pytest.approx(
        {"p50": 4.0, "p90": 7.2, "p99": 7.92, "samples": 3}
    )
    assert data["unsplit"]["3 requests overlapped"] == 1
    assert data["absent"]["queue_s"] == {"vllm has no histogram of it": 3}
    assert data["restarts"] == [{"at": "2026-11-29T10:00:40.000Z", "why": "another process start"}]
    assert (data["watched_s"], data["whole"], data["pages"], data["missed"]) == (60.0, True, 61, 2)
    assert data["log"][0]["count"] == 4  # equal lines of two windows together
    assert (data["facts"]["engine"], data["facts"]["version"]) == ("vllm", "0.32.0")


def test_nine_in_ten_requests_decode_at_least_as_fast_as_p90_says() -> None:
    alone = next(one.watched for one in SEEN if one.watched.kind == "request")
    found = spreads(structs.replace(alone, decode_tok_s=float(rate)) for rate in (10, 20, 30, 40, 50))
    # a tenth and a hundredth of the way from the slowest: 10 + 0.4 x 10 and 10 + 0.04 x 10
    one = found["decode_tok_s"]
    assert (one.p50, one.p90, one.p99) == pytest.approx((30.0, 14.0, 10.4))


def test_the_published_schema_is_the_one_of_the_code_and_summaries_are_valid(
    watched: Path, tmp_path: Path
) -> None:
    assert SCHEMA.read_bytes() == export.watch_schema()
    schema = json.loads(SCHEMA.read_text("utf-8"))
    for path in (watched, make_watch(tmp_path / "nothing"), make_watch(tmp_path / "cut", whole=False)):
        jsonschema.validate(json.loads(export.watch_json(collect_watch(path))), schema)


def test_the_table_has_a_line_for_all_that_was_seen_and_empty_cells_for_what_is_missing(
    watched: Path,
) -> None:
    rows = list(csv.DictReader(io.StringIO(export.watched_csv(collect_watch(watched)))))
    assert [row["kind"] for row in rows] == ["request", "request", "window", "window", "restart", "request"]
    assert (rows[1]["cached_tokens"], rows[1]["prefix_reuse"], rows[1]["server_ttft_s"]) == (
        "960", "0.96", "0.25",
    )  # fmt: skip
    assert rows[0]["acceptance"] == "" and "acceptance: nothing was drafted" in rows[0]["missing"]
    assert "server_ttft_s: histogram ttft" in rows[0]["witnesses"]


def test_what_the_machine_did_is_in_table_csv_and_summary(tmp_path: Path) -> None:
    def using(one: Seen, mean: float, peak: float, looks: int) -> Seen:
        use = PhaseUse(phase="whole", gauge="gpu_power", devices=2, mean=mean, peak=peak, looks=looks)
        return structs.replace(one, watched=structs.replace(one.watched, machine=(use,)))

    seen = (
        using(alone(10, 1_000, 0, 4.0), 500.0, 600.0, 1),
        using(alone(20, 1_000, 0, 4.0), 900.0, 950.0, 3),
        using(window(30, "2 requests overlapped"), 700.0, 1_200.0, 5),
    )
    content = collect_watch(make_watch(tmp_path / "w", *seen))
    # (500 W x 1 + 900 W x 3) / 4 looks = 800 W.
    assert "| GPU power | requests alone | 800 W | 950 W | 4 |" in render.markdown(content)
    assert "| GPU power | windows | 700 W | 1,200 W | 5 |" in render.markdown(content)
    assert "GPU power" in render.html(content)
    rows = list(csv.DictReader(io.StringIO(export.watched_csv(content))))
    assert [row["gpu_power_mean"] for row in rows] == ["500.0", "900.0", "700.0"]
    assert (rows[0]["gpu_power_peak"], rows[0]["gpu_utilisation_mean"]) == ("600.0", "")
    data = json.loads(export.watch_json(content))
    assert data["machine"][0] == {
        "kind": "request", "gauge": "gpu_power", "devices": 2, "mean": 800.0, "peak": 950.0, "looks": 4,
    }  # fmt: skip
    jsonschema.validate(data, json.loads(SCHEMA.read_text("utf-8")))


def test_requests_alone_windows_and_restarts_stand_in_the_texts(watched: Path) -> None:
    text = render.markdown(collect_watch(watched))
    assert "9 requests in 60 s; 3 of them alone; 2 windows could not be split; 1 restart." in text
    assert "| 10:00:20 | 1,000 | 960 | 96.0% | 101 | 0.2500 | 50.0 | 25.0% | counters: one request" in text
    assert "| 10:00:30 | 3 requests overlapped | 9.0 | 3 | 3,000 | 300 | 1.500 | 50.0% | 3 |" in text
    assert "- queue: vllm has no histogram of it (3 x)" in text
    assert "- reuse: the server does not show it (2 x)" in text  # of the windows
    assert "- 2 requests ended with an error" in text
    assert "restart: another process start (until then 7 output tokens)" in text
    assert "| engine | vllm 0.32.0 |" in text
    page = render.html(collect_watch(watched))
    for found in ("10:00:20", "3 requests overlapped", "restart: another process start", "vllm 0.32.0"):
        assert found in page


def test_every_figure_of_the_page_says_where_it_comes_from(watched: Path) -> None:
    figures = Figures()
    figures.feed(render.html(collect_watch(watched)))
    assert figures.untold == []
    assert figures.told > 60


def test_a_cell_names_definition_and_witness_or_why_it_is_empty() -> None:
    number = {one.key: one for one in NUMBERS}
    request, several = SEEN[0].watched, SEEN[2].watched
    ttft = cell(request, number["server_ttft_s"])
    assert ttft == "4.000" and ttft.source.endswith("on top. Witness: histogram ttft.")
    mean = cell(several, number["server_ttft_s"])
    assert mean == "1.500" and "Mean over the requests of the window." in mean.source
    missing = cell(request, number["queue_s"])
    assert missing == "-" and missing.source.endswith("Missing: vllm has no histogram of it.")
    assert cell(request, number["prefix_reuse"]).source.endswith("Witness: counter cached_tokens, counters.")
    coarse = msgspec.structs.replace(request, prompt_tokens=1_234_560, slack_tokens=5.0)
    assert cell(coarse, number["prompt_tokens"]) == "1,234,560 ±5"


def test_foreign_text_is_shown_and_never_obeyed(watched: Path) -> None:
    content = collect_watch(watched)
    page, text = render.html(content), render.markdown(content)
    assert "<script>alert" not in page and "&lt;script&gt;alert(1)" in page
    assert "<script>" not in text and "\x1b" not in page + text and "\u202e" not in page + text
    table = export.watched_csv(content)
    assert "\x1b" not in table and visible(HOSTILE)[:10] in table
    assert all("http" not in part.partition('"')[0] for part in page.split('src="')[1:])


def test_a_watch_that_was_killed_or_saw_nothing_has_a_report_too(tmp_path: Path) -> None:
    cut = render.markdown(collect_watch(make_watch(tmp_path / "cut", *SEEN[:2], whole=False)))
    assert "2 requests in at least 55 s" in cut and "The watch was killed" in cut
    write_report(make_watch(tmp_path / "nothing"))
    assert "0 requests in 60 s" in (tmp_path / "nothing" / "report.md").read_text("utf-8")
    assert "No request could be told apart." in (tmp_path / "nothing" / "report.html").read_text("utf-8")


def test_what_is_too_much_for_a_table_is_said_to_be_in_the_csv(tmp_path: Path) -> None:
    many = [alone(10, 1_000 + i, 0, 1.0) for i in range(render.MARKDOWN_ROWS + 5)]
    content = collect_watch(make_watch(tmp_path / "many", *many))
    assert "5 more in watched.csv." in render.markdown(content)
    assert "more in watched.csv" not in render.html(content)


def test_a_watch_past_midnight_shows_the_date(tmp_path: Path) -> None:
    late = msgspec.structs.replace(SEEN[1], at="2026-11-30T00:00:01.000Z")
    text = render.markdown(collect_watch(make_watch(tmp_path / "w", SEEN[0], late)))
    assert "| 2026-11-29 10:00:10 |" in text and "| 2026-11-30 00:00:01 |" in text


def test_the_command_writes_it_and_prints_the_totals_or_the_summary(watched: Path, tmp_path: Path) -> None:
    found = CliRunner().invoke(report, [str(watched)], catch_exceptions=False)
    assert found.stdout.startswith("total: 9 requests in 60 s; 3 of them alone;")
    assert "friday: report.md, watched.csv, summary.json, " in " ".join(found.stderr.split())
    found = CliRunner().invoke(
        report, [str(watched), "--json", "--into", str(tmp_path / "in")], catch_exceptions=False
    )
    assert json.loads(found.stdout) == json.loads((tmp_path / "in" / "summary.json").read_text("utf-8"))


def test_options_that_mean_nothing_for_a_watch_are_named(watched: Path) -> None:
    plain = CliRunner().invoke(report, [str(watched)], catch_exceptions=False)
    assert "ignored" not in plain.stderr
    options = ["--base", "mtp4", "--reused", "75%", "--all"]
    found = CliRunner().invoke(report, [str(watched), *options], catch_exceptions=False)
    said = " ".join(found.stderr.split())
    assert "ignored: --base, --reused, --all (a watch has no routes and no trials)" in said
    assert (found.exit_code, found.stdout) == (0, plain.stdout)


def test_a_watch_among_runs_is_refused_and_a_run_is_no_watch(watched: Path, tmp_path: Path) -> None:
    with pytest.raises(JournalError, match=r"this is a watch, not a run: ctxbench report .*friday shows it"):
        collect([watched])
    run = report_runs.make_run(tmp_path / "run", repeats=1, only=1)
    with pytest.raises(JournalError, match="no directory that ctxbench watch --out made"):
        collect_watch(run)


def test_the_command_of_a_directory_with_spaces_can_be_pasted(tmp_path: Path) -> None:
    path = make_watch(tmp_path / "my watch; no`w", *SEEN)
    content = collect_watch(path)
    (line,) = [one for one in render.markdown(content).splitlines() if one.startswith("ctxbench report")]
    assert shlex.split(line, comments=True)[2].endswith("my watch; no'w")
    assert "ctxbench report &#39;" in render.html(content)
