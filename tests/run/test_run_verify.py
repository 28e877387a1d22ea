"""Crossovers that a run has extrapolated, verified by long trials in a run of their own."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import structs
from run_helpers import ctxbench_here, exchanges, only_run, suite_text

from bench.analysis.decisions.crossover import crossovers, one_way
from bench.api import load
from bench.journal import FOLLOW_UP, Journal, read_info
from bench.plan.suite import parse_suite
from bench.plan.times import learn
from bench.records import Event, Measurement, RunInfo, ServerFacts, Verdict
from bench.records.events import FINISHED
from bench.report.content import collect
from bench.report.tables import terminal
from bench.run.order import Order
from bench.run.progress import Progress
from bench.run.study import describe
from bench.run.verify import FollowUp, planned, verify, within
from bench.servers import simulator
from bench.servers.simulator import start as simulate

# Every draft is accepted: three tokens a step of 17.6 ms, against one a step of 16 ms, so 10.2 ms a token;
# 1.2 ms of prefill a token against 0.02 ms. At 512 tokens: 1 + 512 * 1.18 / 10.2 = 60 output tokens.
PROFILES = Path(simulator.__file__).with_name("profiles")
SLOW = {"step_s = 0.004": "step_s = 0.016", "draft_s = 0.0002": "draft_s = 0.0008"}
DRAFTING = {"token_s = 2.0e-5": "token_s = 1.2e-3", "[0.8, 0.55]": "[1.0, 1.0]"}
TRUE_TOKENS = 60
SPEED = 0.6
"""Slow enough that the pauses of a busy machine are small beside what is measured."""
MTP = "speculation = { method = 'mtp', num_speculative_tokens = 2 }"


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("verify")
    paths = []
    for name, changes in (("toy-target-only", SLOW), ("toy", SLOW | DRAFTING)):
        profile = (PROFILES / f"{name}.toml").read_text("utf-8")
        for old, new in changes.items():
            assert old in profile
            profile = profile.replace(old, new)
        paths.append(folder / f"{name}.toml")
        paths[-1].write_text(profile, encoding="utf-8")
    with simulate(str(paths[0]), speed=SPEED) as plain, simulate(str(paths[1]), speed=SPEED) as drafting:
        text = suite_text(
            {"plain": plain.base_url, "mtp2": drafting.base_url},
            suite="conditions = ['cold']\ninterleave = true",
        )
        text = text.replace('name = "mtp2"', f'name = "mtp2"\n{MTP}').replace("[256, 512]", "[512]")
        text = text.replace("repeats = 2", "repeats = 1").replace("output_tokens = 16", "output_tokens = 32")
        path = folder / "s.toml"
        path.write_text(text, encoding="utf-8")
        yield path


def test_a_long_trial_on_each_route_shows_where_an_extrapolated_crossover_is(
    suite: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # on a busy machine the prediction from 32 tokens may be far off: go far enough to meet all the same
    monkeypatch.setattr("bench.analysis.decisions.verified.REACH", 2.0)
    said = ctxbench_here(
        [
            "run",
            str(suite),
            "--verify-crossover",
            "--verify-budget",
            "1h",
            "--results",
            str(tmp_path),
            "--no-report",
        ],
        tmp_path,
    )
    assert said.returncode == 0, said.stderr
    run = only_run(tmp_path)
    (found,) = load(run).verified()
    predicted = found.crossover.output_tokens or 0.0
    assert found.crossover.extrapolation is not None and found.crossover.extrapolation > 1
    assert found.output_tokens is not None and TRUE_TOKENS / 1.6 < found.output_tokens < TRUE_TOKENS * 1.6
    # the plan: one cold prompt a route, twice the prediction on both; told before, with its cost
    plan = read_info(run / FOLLOW_UP).plan
    assert sorted((one.route, one.condition) for one in plan) == [("mtp2", "cold"), ("plain", "cold")]
    assert {one.output_tokens for one in plan} == {-int(-2.0 * predicted // 1)}
    assert "2 more trials, about" in said.stderr and "of at most 60 min" in said.stderr
    assert "verified: mtp2 against plain at 512 cold: predicted" in said.stdout
    # the report shows it beside the prediction, which then needs no warning any more
    shown = terminal(collect([run]))
    assert "Verified: mtp2 against plain at 512 cold: predicted" in shown
    assert "verify before relying" not in shown
    told = ctxbench_here(["crossover", str(run), "--json"], tmp_path)
    assert [one["verified"]["output_tokens"] for one in json.loads(told.stdout)] == [found.output_tokens]
    # nothing of it is in the run's own numbers, and no prompt is sent twice
    assert {m.output_tokens for m in load(run).measurements} == {32}
    assert not {e.prompt.salt for e in exchanges(run)} & {e.prompt.salt for e in exchanges(run / FOLLOW_UP)}


def test_a_follow_up_that_was_cut_off_goes_on_with_the_run(suite: Path, tmp_path: Path) -> None:
    assert (
        ctxbench_here(["run", str(suite), "--results", str(tmp_path), "--no-report"], tmp_path).returncode
        == 0
    )
    run = only_run(tmp_path)
    # An earlier attempt got no further than its folder: that must not stand in the way for ever.
    (run / FOLLOW_UP / "scrapes").mkdir(parents=True)
    (run / FOLLOW_UP / ".lock").touch()

    class Cut(Exception):
        pass

    class CutShort(Progress):
        """Ends the first exchange of the follow-up before it is sent."""

        def begin(self, *_: object) -> None:
            raise Cut

    progress = CutShort()
    with pytest.raises(Cut):
        asyncio.run(verify(run, progress, folder=suite.parent, budget_s=3600))
    assert progress.path == run  # whoever cut it off is told to resume the run, not its follow-up
    plan = read_info(run / FOLLOW_UP).plan
    assert not exchanges(run / FOLLOW_UP)
    # the plan is there already, so neither option is needed again
    again = ctxbench_here(["run", str(suite), "--resume", str(run), "--no-report"], tmp_path)
    assert again.returncode == 0, again.stderr
    assert read_info(run / FOLLOW_UP).plan == plan
    assert [e.trial for e in exchanges(run / FOLLOW_UP)] == list(plan)
    assert load(run).verified()[0].reached == plan[0].output_tokens


def test_without_a_budget_the_follow_up_may_take_as_long_as_the_run_took(suite: Path, tmp_path: Path) -> None:
    info = info_of(
        suite_text=suite.read_text("utf-8"), suite=parse_suite(suite.read_text("utf-8")), served=4096
    )
    run = tmp_path / "run"
    with Journal.create(run, info) as journal:
        for wall_s in (40.0, 2.5):  # two sessions
            journal.append(Event(name=FINISHED, at="", data={"wall_s": wall_s}))
    assert planned(run).budget_s == 42.5 and planned(run, 7.0).budget_s == 7.0
    assert planned(run).lines() == ["verify: no crossover is extrapolated, there is nothing to verify"]
    for budget_s, left in ((60.0, 17.5), (30.0, 0.0)):
        limited = structs.replace(info, suite=structs.replace(info.suite, budget_s=budget_s))
        with Journal.resume(run) as journal:
            journal.update_info(limited)
        assert planned(run).budget_s == left


def test_a_budget_for_verification_needs_verification(suite: Path, tmp_path: Path) -> None:
    said = ctxbench_here(["run", str(suite), "--verify-budget", "1h"], tmp_path)
    assert said.returncode == 2 and "--verify-budget goes with --verify-crossover" in said.stderr


# --- Planning, without a server ---------------------------------------------------------------------


def planning(
    budget_s: float,
    *,
    served: int = 100_000,
    kv: int = 100_000,
    drafter: int | None = None,
    output: int = 64,
) -> FollowUp:
    """Two routes at two tiers: 10 s and 40 s more to the first token, won back at 0.08 s a token."""
    text = suite_text({"plain": "http://127.0.0.1:1/v1", "mtp2": "http://127.0.0.1:2/v1"})
    suite = parse_suite(text.replace("[256, 512]", "[1000, 4000]"))
    rows = [
        Measurement(
            trial_id=f"{route}/{tier}/cold/{i}",
            route=route,
            tier=tier,
            condition="cold",
            prompt_tokens=tier,
            output_tokens=output,
            ttft_s=ttft,
            tpot_s=0.1 if route == "plain" else 0.02,
            verdict=Verdict(valid=True),
        )
        for tier, more in ((1000, 10.0), (4000, 40.0))
        for i in range(3)
        for route, ttft in (("plain", tier / 1000), ("mtp2", tier / 1000 + more))
    ]
    info = info_of(suite_text=text, suite=suite, served=served, kv=kv)
    info.facts["mtp2"] = structs.replace(info.facts["mtp2"], drafter_limit=drafter)
    models = {name: learn(name, rows) for name in ("plain", "mtp2")}
    return within(info, one_way(crossovers(rows)), models, budget_s)


def info_of(*, suite_text: str, suite: object, served: int, kv: int = 100_000) -> RunInfo:
    order = Order(suite=suite, suite_text=suite_text)  # type: ignore[arg-type]
    info = describe(order, order.suite, {}, path=Path("results/r"))
    facts = {name: ServerFacts(max_model_len=served, kv_capacity_tokens=kv) for name in ("plain", "mtp2")}
    return structs.replace(info, facts=facts)


def test_both_sides_of_every_crossover_are_planned_and_their_cost_is_told() -> None:
    found = planning(3600)
    # n* = 1 + 10 / 0.08 = 126 and 1 + 40 / 0.08 = 501
    assert [target.tokens for target in found.targets] == [152, 602]
    assert {(t.route, t.tier, t.output_tokens) for t in found.trials} == {
        ("plain", 1000, 152), ("mtp2", 1000, 152), ("plain", 4000, 602), ("mtp2", 4000, 602),
    }  # fmt: skip
    # cold TTFTs 1 + 11 + 4 + 44, decoding 151 and 601 steps of 0.1 + 0.02 s, warm-ups and handling
    least = 60 + 0.12 * (151 + 601)
    assert found.estimate.total_s is not None and least < found.estimate.total_s < least + 60
    assert found.lines()[-1].startswith("verify: 4 more trials, about ")


def test_what_passes_the_budget_is_left_out_with_what_it_would_cost() -> None:
    found = planning(80)
    assert [target.tokens for target in found.targets] == [152]
    (text,) = found.left_out
    assert text.startswith("mtp2 against plain at 4,000 cold, crossover 501: ")
    assert text.endswith("more, with it over the 80 s there are")
    nothing = planning(1)
    assert not nothing.trials and len(nothing.lines()) == 2


def test_no_trial_passes_the_served_limit_or_the_room_for_its_cache() -> None:
    near = planning(3600, served=4000 + 550)
    assert [target.tokens for target in near.targets] == [152, 550]
    found = planning(3600, served=4000 + 520)  # 501 and 5% more are 526: too little of the far side
    assert [target.tokens for target in found.targets] == [152]
    assert found.left_out[0].endswith("would pass the 4,520 tokens that one of the servers holds")
    full = planning(3600, kv=4000 + 520)
    assert full.left_out == found.left_out


def test_an_output_that_outlives_the_drafter_is_told_before_it_is_sent() -> None:
    assert "mtp2 drafts only up to 4,500 tokens, which they pass" in planning(3600, drafter=4500).lines()[1]
    assert not any("drafts only" in line for line in planning(3600, drafter=4602).lines())


def test_a_crossover_that_only_lines_have_shown_is_verified_inside_the_window_too() -> None:
    assert [target.tokens for target in planning(3600, output=600).targets] == [152, 602]
