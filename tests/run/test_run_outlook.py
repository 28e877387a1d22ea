"""How long a suite will take: from earlier runs, from a calibration, and within a budget."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from run_helpers import ctxbench_here, exchanges, only_run, suite_text

from bench.errors import JournalError, SuiteError
from bench.journal import read_info
from bench.plan.estimate import estimate_trial
from bench.plan.suite import parse_suite
from bench.plan.times import calibrated
from bench.plan.trials import plan
from bench.records import Event, Exchange, Failure, Measurement, PromptRecipe, RunInfo, Trial, Verdict, Wave
from bench.records.events import STARTED
from bench.run.forecast.calibrate import lengths
from bench.run.forecast.earlier import Gaps, earlier_runs
from bench.run.forecast.expect import planned
from bench.run.forecast.outlook import AROUND_S, Outlook, fitted, forecast, warmup_tokens
from bench.run.order import Order
from bench.run.progress import Progress
from bench.run.study import start
from bench.servers.simulator import Simulator
from bench.servers.simulator import start as simulate

URL = "http://127.0.0.1:1/v1"


@pytest.fixture(scope="module")
def server() -> Iterator[Simulator]:
    with simulate("toy-target-only") as running:
        yield running


@pytest.fixture(scope="module")
def earlier(server: Simulator, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A results folder with one small run of route `a`."""
    folder = tmp_path_factory.mktemp("earlier") / "results"
    text = suite_text({"a": server.base_url})
    asyncio.run(start(Order(suite=parse_suite(text), suite_text=text, results=folder), Progress()))
    return folder


def measure(text: str, results: Path) -> RunInfo:
    order = Order(suite=parse_suite(text), suite_text=text, results=results)
    return read_info(asyncio.run(start(order, Progress())))


def cold(tier: int, ttft_s: float, route: str = "a") -> Measurement:
    return Measurement(
        trial_id=f"{route}/{tier}/cold/1",
        route=route,
        tier=tier,
        condition="cold",
        prompt_tokens=tier,
        output_tokens=16,
        ttft_s=ttft_s,
        tpot_s=0.01,
        verdict=Verdict(valid=True),
    )


def trial(tier: int, route: str = "a") -> Trial:
    return Trial(
        id=f"{route}/{tier}/cold/1", route=route, tier=tier, condition="cold", repeat=1, output_tokens=11
    )


# --- while running --------------------------------------------------------------------------------


def test_nothing_is_expected_before_anything_is_known_and_no_time_for_no_trials() -> None:
    outlook = Outlook(["a"])
    assert outlook.ttft_s(trial(1000)) is None
    assert outlook.left_s([trial(1000)]) is None
    assert outlook.left_s([]) == 0.0


def test_what_is_known_beforehand_counts_until_the_run_knows_better() -> None:
    outlook = Outlook(["a"], {"a": calibrated("a", [(1000, 1.0), (4000, 4.0)], tpot_s=0.01)})
    assert outlook.ttft_s(trial(2000)) == pytest.approx(2.0, rel=0.01)
    # Two seconds to the first token, ten steps of 10 ms, and what lies around an exchange.
    assert outlook.left_s([trial(2000)]) == pytest.approx(2.0 + 0.1 + AROUND_S, rel=0.01)
    outlook.measured(cold(2000, 3.0))
    assert outlook.ttft_s(trial(2000)) == pytest.approx(3.0)
    outlook.warmed_up("a", 100, 50.0)  # a known route takes no notice of a warm-up
    assert outlook.ttft_s(trial(2000)) == pytest.approx(3.0)


def test_a_route_not_yet_measured_is_expected_to_be_like_another() -> None:
    outlook = Outlook(["a", "b"])
    outlook.warmed_up("a", 1000, 1.0)
    assert outlook.ttft_s(trial(3000, "b")) == pytest.approx(3.0)
    outlook.measured(cold(1000, 0.5, "b"))
    assert outlook.ttft_s(trial(1000, "b")) == pytest.approx(0.5)


@pytest.mark.parametrize(("warmup", "tokens"), [("none", 0), ("tier", 512), ("short", 256)])
def test_the_warm_up_is_part_of_the_expected_time(warmup: str, tokens: int) -> None:
    checked = parse_suite(suite_text({"a": URL}, suite=f'warmup = "{warmup}"'))
    assert warmup_tokens(checked) == tokens
    models = {"a": calibrated("a", [(512, 0.512)], tpot_s=0.01)}
    found = forecast(checked, plan(checked), models)
    expected = tokens / 1000 + AROUND_S if tokens else 0.0
    assert found.warmup_s == pytest.approx(expected)


# --- earlier runs ---------------------------------------------------------------------------------


def test_runs_of_the_same_routes_and_models_tell_the_times(earlier: Path, server: Simulator) -> None:
    checked = parse_suite(suite_text({"a": server.base_url}))
    found = earlier_runs(checked, results=earlier)
    assert found.runs == (only_run(earlier).name,)
    model = found.models(checked)["a"]
    assert model.known and only_run(earlier).name in model.basis
    # The toy's laws: 2 ms + 20 us a token; whatever the machine adds, 256 tokens take at least that.
    assert model.ttft_s["cold/256"] > 0.007


def begun(second: float, name: str = STARTED) -> Event:
    return Event(name=name, at=f"2026-11-01T10:00:{second:06.3f}Z")


def answered(seconds: float, **more: Any) -> Exchange:
    return Exchange(
        trial=trial(256),
        engine="vllm",
        prompt=PromptRecipe(
            sha256="p", tokens=256, endpoint="chat", corpus="c", corpus_sha256="c", task="continue", start=0
        ),
        url=URL,
        request={},
        sent_ns=0,
        ended_ns=int(seconds * 1e9),
        **more,
    )


def test_what_an_exchange_takes_beside_itself_is_from_one_start_to_the_next_less_the_exchange() -> None:
    gaps = Gaps()
    wave = [answered(1, wave=Wave(id="w", size=2, released_ns=0))] * 2
    entries = [
        *(begun(0), answered(1.5)),  # 1.75 s to the next start
        *(begun(1.75), answered(1, failure=Failure(kind="read", message=""))),
        *(begun(10), begun(10), *wave),
        *(begun(20), answered(2), begun(25, "session")),  # another session: no gap of this exchange
        *(begun(30), answered(1)),
        begun(31.5),
    ]
    assert list(gaps.watching(entries)) == entries
    assert gaps.around_s == {"a": pytest.approx([0.25, 0.5])}


def test_a_plan_takes_the_time_around_an_exchange_from_earlier_runs_and_guesses_without(
    earlier: Path,
) -> None:
    checked = parse_suite(suite_text({"a": URL}))
    found = earlier_runs(checked, results=earlier, named=[only_run(earlier)])
    model = found.models(checked)["a"]
    assert model.around_s == statistics.median(found.around_s["a"])
    known = estimate_trial(trial(256), model, overhead_s=AROUND_S)
    guessed = estimate_trial(trial(256), msgspec.structs.replace(model, around_s=None), overhead_s=AROUND_S)
    assert known.total_s is not None and guessed.total_s is not None
    assert guessed.total_s - known.total_s == pytest.approx(AROUND_S - model.around_s)


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "b"},
        {"model": "another"},
        {"speculation": {"method": "mtp", "num_speculative_tokens": 2}},
    ],
)
def test_other_routes_models_and_speculations_tell_nothing(earlier: Path, changes: dict[str, object]) -> None:
    checked = parse_suite(suite_text({"a": URL}))
    route = msgspec.convert({**msgspec.to_builtins(checked.routes[0]), **changes}, type(checked.routes[0]))
    checked = msgspec.structs.replace(checked, routes=(route,))
    assert earlier_runs(checked, results=earlier).measurements == ()


def test_what_is_no_run_is_passed_over_unless_it_was_named(earlier: Path, tmp_path: Path) -> None:
    checked = parse_suite(suite_text({"a": URL}))
    results = tmp_path / "results"
    shutil.copytree(earlier, results)
    (results / "zzz-no-run").mkdir()
    (results / "zzy-damaged").mkdir()
    (results / "zzy-damaged" / "run.json").write_text("{")
    served = {"a": "toy"}
    assert len(earlier_runs(checked, results=results, models=served).runs) == 1
    with pytest.raises(JournalError, match="zzz-no-run"):
        earlier_runs(checked, results=results, named=[results / "zzz-no-run"])
    assert earlier_runs(checked, results=tmp_path / "nowhere").runs == ()


def test_an_earlier_run_counts_only_where_model_or_address_says_that_it_is_the_same(earlier: Path) -> None:
    elsewhere = parse_suite(suite_text({"a": URL}))
    assert earlier_runs(elsewhere, results=earlier).runs == ()
    assert earlier_runs(elsewhere, results=earlier, models={"a": "another"}).runs == ()
    (run,) = [path for path in earlier.iterdir() if path.is_dir()]
    there = parse_suite(suite_text({"a": read_info(run).suite.routes[0].base_url}))
    assert earlier_runs(there, results=earlier).runs == (run.name,)


def moved(earlier: Path, results: Path, name: str, base_url: str) -> Path:
    """A copy of the earlier run under another name, as if it had been measured at another address."""
    run = results / name
    shutil.copytree(only_run(earlier), run)
    info = json.loads((run / "run.json").read_text())
    info["suite"]["routes"][0]["base_url"] = base_url
    (run / "run.json").write_text(json.dumps(info))
    return run


def as_route_b(run: Path) -> None:
    for name in ("run.json", "journal.jsonl"):
        text = (run / name).read_text().replace('"name": "a"', '"name": "b"')
        (run / name).write_text(
            text.replace('"route":"a"', '"route":"b"').replace('"route": "a"', '"route": "b"')
        )


def test_plan_and_run_learn_from_the_same_address_and_only_without_it_from_another(
    earlier: Path, tmp_path: Path
) -> None:
    results = tmp_path / "results"
    moved(earlier, results, "2-elsewhere", "http://127.0.0.1:2/v1")
    undeclared = parse_suite(suite_text({"a": URL}))
    declared = parse_suite(suite_text({"a": URL}).replace('name = "a"', 'name = "a"\nmodel = "toy"'))
    served = {"a": "toy"}
    for found in (
        earlier_runs(declared, results=results),
        earlier_runs(undeclared, results=results, models=served),
    ):
        assert found.runs == ("2-elsewhere",)
    moved(earlier, results, "1-here", "http://LOCALHOST:1/v1")  # older, another spelling of the same server
    for found in (
        earlier_runs(undeclared, results=results),
        earlier_runs(declared, results=results),
        earlier_runs(undeclared, results=results, models=served),
    ):
        assert found.runs == ("1-here",)
    assert earlier_runs(undeclared, results=results, models={"a": "another"}).runs == ()


def test_an_address_of_its_own_is_preferred_route_by_route(earlier: Path, tmp_path: Path) -> None:
    results = tmp_path / "results"
    run = moved(earlier, results, "1-b-elsewhere", "http://127.0.0.1:3/v1")
    as_route_b(run)
    moved(earlier, results, "2-a-here", URL)
    moved(earlier, results, "3-a-elsewhere", "http://127.0.0.1:2/v1")
    found = earlier_runs(
        parse_suite(suite_text({"a": URL, "b": URL})), results=results, models={"a": "toy", "b": "toy"}
    )
    assert found.runs == ("2-a-here", "1-b-elsewhere")
    assert {m.route for m in found.measurements} == {"a", "b"} == set(found.around_s)


def test_many_runs_of_one_route_do_not_hide_an_older_one_of_another(
    earlier: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bench.run.forecast.earlier._MOST_RUNS", 1)
    results = tmp_path / "results"
    run = moved(earlier, results, "1-b", URL)
    as_route_b(run)
    moved(earlier, results, "2-a", URL)
    moved(earlier, results, "3-a", URL)
    assert earlier_runs(parse_suite(suite_text({"a": URL, "b": URL})), results=results).runs == ("3-a", "1-b")


# --- ctxbench plan --------------------------------------------------------------------------------


def test_the_plan_says_when_nothing_is_known(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(suite_text({"a": URL}))
    result = ctxbench_here(["plan", "s.toml"], tmp_path)
    assert result.returncode == 0
    rows = [line.split() for line in result.stdout.splitlines()]
    assert rows[0] == ["trials", "tokens", "condition", "route"]
    assert rows[1:4] == [["2", "256", "cold", "a"], ["2", "256", "replay", "a"], ["2", "256", "salted", "a"]]
    assert sum(int(row[0]) for row in rows[1:]) == 12
    assert "wall time not known: no earlier run of a is at hand" in result.stderr


@pytest.mark.parametrize("named", [False, True])
def test_the_plan_gives_the_time_of_each_trial_and_in_total(
    earlier: Path, server: Simulator, tmp_path: Path, named: bool
) -> None:
    (tmp_path / "s.toml").write_text(suite_text({"a": server.base_url}).replace("512]", "1024]"))
    where = ["--from", str(only_run(earlier))] if named else ["--results", str(earlier)]
    result = ctxbench_here(["plan", "s.toml", *where], tmp_path)
    table, notes = result.stdout.split("\n\n")
    lines = {line.split()[1]: line for line in table.splitlines()[1:]}
    assert lines["a/256/cold/1"].endswith("measured") and lines["a/1024/cold/1"].endswith("(1)")
    assert notes.splitlines()[0] == "(1) law, 2.0x beyond the longest prompt measured"
    assert len(lines) == 12
    assert all(re.search(r" [\d.]+ m?s  ", line) for line in lines.values())
    assert "about " in result.stderr and only_run(earlier).name in result.stderr


def test_a_plan_for_machines_has_trials_estimate_and_words(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(suite_text({"a": URL}))
    found = json.loads(ctxbench_here(["plan", "s.toml", "--json"], tmp_path).stdout)
    assert len(found["trials"]) == len(found["estimate"]["trials"]) == 12
    assert found["estimate"]["unknown"] == ["a"]


def test_the_plan_of_an_over_limit_suite_says_what_only_the_server_can_tell(tmp_path: Path) -> None:
    route = 'speculation = { method = "mtp", num_speculative_tokens = 2 }'
    text = suite_text({"a": URL}, suite='conditions = ["cold", "over-limit"]', route=route)
    found = planned(parse_suite(text), results=tmp_path)
    assert len(found.trials) == 4 and "once the server is asked" in found.notes[0]
    found = planned(parse_suite(text.replace(route, f"{route}\ndrafter_limit = 4000")), results=tmp_path)
    assert {t.side for t in found.trials} == {None, "under", "over"} and found.notes == ()


# --- budget ---------------------------------------------------------------------------------------


def test_a_budget_drops_repeats_first_then_the_largest_tiers_on_all_routes() -> None:
    text = suite_text({"a": URL, "b": URL}, suite='warmup = "none"\nconditions = ["cold"]')
    checked = parse_suite(text)
    models = {name: calibrated(name, [(256, 2.56)], tpot_s=0.01) for name in "ab"}
    # A repeat of both tiers on both routes: 2 x (2.56 + 5.12 + 2 x (15 steps of 10 ms + 0.5 s)) = 17.96 s.
    everything = fitted(checked, plan(checked), models, 36.0)
    assert everything.changes == () and len(everything.trials) == 8
    one = fitted(checked, plan(checked), models, 18.0)
    assert "repeats: 1 instead of 2" in one.changes and len(one.trials) == 4
    small = fitted(checked, plan(checked), models, 7.0)
    assert "tier 512 dropped" in small.changes
    assert {(t.route, t.tier) for t in small.trials} == {("a", 256), ("b", 256)}
    with pytest.raises(SuiteError, match="one repeat of the smallest tier"):
        fitted(checked, plan(checked), models, 5.0)


def test_a_budget_of_a_wrong_form_names_the_key() -> None:
    with pytest.raises(SuiteError, match=r"\[suite\] budget: 'soon' is no duration"):
        parse_suite(suite_text({"a": URL}, suite='budget = "soon"'))


def test_a_run_within_its_budget_calibrates_and_says_so(server: Simulator, tmp_path: Path) -> None:
    info = measure(suite_text({"a": server.base_url}, suite='budget = "1h"'), tmp_path)
    assert len(info.plan) == 12
    (note,) = [note for note in info.notes if note.startswith("calibrated: a: 256 tokens in ")]
    assert "512 tokens in" in note
    assert not [note for note in info.notes if note.startswith("budget")]


def test_what_a_budget_drops_is_never_sent_and_stands_in_the_run(
    earlier: Path, server: Simulator, tmp_path: Path
) -> None:
    results = tmp_path / "results"
    shutil.copytree(earlier, results)
    whole_s = planned(
        parse_suite(suite_text({"a": server.base_url}, suite='warmup = "none"')), results=results
    ).estimate.total_s
    assert whole_s is not None
    budget = f'budget = "{0.75 * whole_s:.3f}s"'  # between one repeat and two
    text = suite_text({"a": server.base_url}, suite=f'{budget}\nwarmup = "none"')
    info = measure(text, results)
    assert {t.repeat for t in info.plan} == {1} and len(info.plan) == 6
    notes = [note for note in info.notes if note.startswith("budget: ")]
    assert "budget: repeats: 1 instead of 2" in notes
    assert not [note for note in info.notes if note.startswith("calibrated")]  # the earlier run was enough
    sent = {e.trial.id for e in exchanges(results / info.id)}
    assert sent == {t.id for t in info.plan}


def test_a_budget_that_nothing_fits_into_refuses_before_anything_is_written(
    server: Simulator, tmp_path: Path
) -> None:
    (tmp_path / "s.toml").write_text(suite_text({"a": server.base_url}, suite='budget = "1s"'))
    result = ctxbench_here(["run", "s.toml", "--quiet"], tmp_path)
    assert result.returncode == 2 and "budget: one repeat of the smallest tier" in result.stderr
    assert not (tmp_path / "results").exists()
    result = ctxbench_here(["check", "s.toml"], tmp_path)
    assert result.returncode == 1 and "budget: one repeat of the smallest tier" in result.stdout


def test_a_check_calibrates_when_it_is_asked_to(server: Simulator, tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(suite_text({"a": server.base_url}))
    before = len(server.truth().requests)
    result = ctxbench_here(["check", "s.toml"], tmp_path)
    alone = len(server.truth().requests) - before
    assert "--calibrate finds out" in result.stdout
    result = ctxbench_here(["check", "s.toml", "--calibrate"], tmp_path)
    assert "calibrated: a: 256 tokens in" in result.stdout and "about " in result.stdout
    prompts = [request.prompt_tokens for request in server.truth().requests]
    assert prompts.count(256) >= 1 and prompts[-1] == 512 and alone <= 2


def test_calibration_lengths_are_never_below_the_shortest_tier() -> None:
    assert lengths([256, 512]) == (256, 512)
    assert lengths([6_316, 564_577]) == (16_384, 65_536)
    assert lengths([512]) == (512,)
    assert lengths([16_384, 131_072]) == (4_096, 16_384)
    assert lengths([564_577]) == (16_384, 65_536)  # and not the tier itself, which costs as much as a trial
