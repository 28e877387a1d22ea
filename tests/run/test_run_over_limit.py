"""Both sides of the drafter limit: which prompts are sent, and what their verdicts say."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import msgspec
import pytest
from run_helpers import TOKENIZER, ctxbench_here, exchanges, only_run

from bench.analysis.verdicts.measure import measure_all
from bench.engines.context import judge
from bench.errors import SuiteError
from bench.journal import read_info
from bench.plan.suite import parse_suite
from bench.plan.trials import plan, side_tiers
from bench.records import Measurement, Speculation
from bench.run.order import Order
from bench.run.progress import Progress
from bench.run.study import start
from bench.servers.simulator import Profile, load_profile
from bench.servers.simulator import start as simulate

LIMIT, OUTPUT, K = 1000, 48, 2


def low_limit(past: str = "no-drafts", **changes: object) -> Profile:
    """The toy server with a drafter that ends at 1,000 tokens of 4,096."""
    toy = load_profile("toy")
    assert toy.speculation is not None
    drafter = msgspec.structs.replace(toy.speculation, drafter_limit=LIMIT, past_limit=past, **changes)
    return msgspec.structs.replace(toy, speculation=drafter, max_model_len=4096)


def suite(base_url: str, *, conditions: str = '"cold", "over-limit"', route: str = "") -> str:
    return f"""
[suite]
name = "limit"
tiers = [256]
conditions = [{conditions}]
output_tokens = {OUTPUT}
repeats = 1
warmup = "none"
[prompt]
corpus = "synthetic"
tokenizer = '{TOKENIZER}'
[[route]]
name = "mtp2"
base_url = "{base_url}"
speculation = {{ method = "mtp", num_speculative_tokens = {K} }}
{route}
"""


DECLARED = f"drafter_limit = {LIMIT}"


def measured(text: str, folder: Path) -> dict[str, Measurement]:
    """The run's measurements by trial, after a run from that suite."""
    order = Order(suite=parse_suite(text), suite_text=text, results=folder / "results", folder=folder)
    run = asyncio.run(start(order, Progress()))
    return {m.trial_id: m for m in measure_all(read_info(run), exchanges(run))}


def test_the_sides_lie_where_the_last_draft_fits_and_where_the_first_one_does_not() -> None:
    checked = parse_suite(suite("http://127.0.0.1:1/v1", route=DECLARED))
    sides = side_tiers(checked, checked.routes[0], LIMIT)
    # The first draft needs prompt + k <= limit: 998 + 2 is the last prompt that gets one.
    assert sides == {"under": LIMIT - OUTPUT - K, "over": 999}
    config = {"max_position_embeddings": LIMIT, "num_nextn_predict_layers": 1, "model_type": "mimo"}
    verdict = judge(
        config,
        served=4096,
        speculation=Speculation(method="mtp", num_speculative_tokens=K),
        version="0.32.0",
        allow_long=True,
        tiers=(sides["under"], sides["over"]),
        output_tokens=OUTPUT,
    )
    assert [tier.kind for tier in verdict.tiers] == ["speculative", "fallback"]


@pytest.mark.parametrize(("output", "k"), [(1, 1), (16, 1), (128, 4), (2, 8)])
def test_the_sides_hold_for_other_shapes(output: int, k: int) -> None:
    text = suite("http://127.0.0.1:1/v1", route=DECLARED).replace(
        f"output_tokens = {OUTPUT}", f"output_tokens = {output}"
    )
    checked = parse_suite(text.replace(f"tokens = {K} }}", f"tokens = {k} }}"))
    sides = side_tiers(checked, checked.routes[0], LIMIT)
    last_step = sides["under"] + output - 2 + k  # the sequence in the last step that can still draft
    assert last_step + k <= LIMIT and sides["under"] + k <= LIMIT
    assert sides["over"] + k == LIMIT + 1


def test_a_side_that_is_a_tier_already_moves_away_from_the_limit() -> None:
    text = suite("http://127.0.0.1:1/v1", route=DECLARED).replace("[256]", "[950, 999, 1000]")
    checked = parse_suite(text)
    assert side_tiers(checked, checked.routes[0], LIMIT) == {"under": 949, "over": 1001}


def test_only_speculating_routes_with_a_limit_get_these_prompts_and_ids_stay_unique() -> None:
    text = (
        suite("http://127.0.0.1:1/v1", route=DECLARED) + '[[route]]\nname = "t"\nbase_url = "http://h:1/v1"\n'
    )
    trials = plan(parse_suite(text.replace("repeats = 1", "repeats = 2")), {"mtp2": LIMIT, "t": LIMIT})
    assert [(t.id, t.tier) for t in trials if t.side] == [
        ("mtp2/under-limit/cold/1", 950),
        ("mtp2/over-limit/cold/1", 999),
        ("mtp2/under-limit/cold/2", 950),
        ("mtp2/over-limit/cold/2", 999),
    ]
    assert len({t.id for t in trials}) == len(trials)


def test_without_a_speculating_route_the_condition_is_refused() -> None:
    text = suite("http://127.0.0.1:1/v1").replace("speculation", "# speculation")
    with pytest.raises(SuiteError, match='"over-limit" needs a route with speculation'):
        parse_suite(text)


def test_past_the_limit_nothing_is_drafted_and_the_log_holds_one_warning(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    with simulate(low_limit("no-drafts"), log_file=log) as server:
        found = measured(suite(server.base_url, route=f'{DECLARED}\nlog = "server.log"'), tmp_path)
    under, over = found["mtp2/under-limit/cold/1"], found["mtp2/over-limit/cold/1"]
    assert under.verdict.valid and under.verdict.speculation == "as declared"
    assert (under.drafts or 0) > 0 and (under.acceptance or 0) > 0.3
    assert over.verdict.valid and over.verdict.speculation == "fallback"
    assert (over.drafts, over.acceptance) == (0, None)
    reasons = {reason.id: reason.detail for reason in over.verdict.warnings}
    assert "1 warning in the log" in reasons["speculation_fallback"]
    # vLLM 0.32 is known to go on with empty drafts, or to have no gate at all.
    assert reasons["fallback_unlike_version"].startswith(
        "no drafts; vllm 0.32.0 is known for: drafts without"
    )
    assert "log_flood" not in reasons


def test_past_the_limit_drafts_go_on_without_acceptance_as_this_version_does(tmp_path: Path) -> None:
    with simulate(low_limit("zero-accepted")) as server:
        found = measured(suite(server.base_url, route=DECLARED), tmp_path)
    over = found["mtp2/over-limit/cold/1"]
    assert over.verdict.valid and over.verdict.speculation == "fallback"
    assert over.accepted_tokens == 0 and over.acceptance == 0.0
    # Every step but the first token's verifies empty drafts.
    assert over.drafts == OUTPUT - 1
    reasons = {reason.id: reason.detail for reason in over.verdict.warnings}
    assert "drafts without acceptance, as vllm 0.32.0 does" in reasons["speculation_fallback"]
    assert "warning" not in reasons["speculation_fallback"]  # no log was given, so none is counted
    assert "fallback_unlike_version" not in reasons


def test_a_flood_of_warnings_is_told_with_its_count_and_the_excerpt_is_kept(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    # The fault's drafter ends at a quarter of the served 4,096 tokens.
    with simulate(low_limit("no-drafts"), log_file=log, faults=["warning-per-step"]) as server:
        found = measured(suite(server.base_url, route='drafter_limit = 1024\nlog = "server.log"'), tmp_path)
    over = found["mtp2/over-limit/cold/1"]
    reasons = {reason.id: reason.detail for reason in over.verdict.warnings}
    assert f"{OUTPUT - 1} warnings in the log" in reasons["speculation_fallback"]
    assert "drafter context limit is reached" in reasons["log_flood"]
    run = only_run(tmp_path / "results")
    sent = next(e for e in exchanges(run) if e.trial.side == "over")
    assert sent.log is not None and sent.log.file is not None
    assert (run / sent.log.file).read_text().count("drafter context limit is reached") == OUTPUT - 1


def test_a_limit_declared_too_low_is_seen_by_what_is_accepted_past_it(tmp_path: Path) -> None:
    with simulate("toy") as server:
        found = measured(suite(server.base_url, route="drafter_limit = 600"), tmp_path)
    over = found["mtp2/over-limit/cold/1"]
    assert over.verdict.speculation == "as declared"
    assert "drafts_past_limit" in [reason.id for reason in over.verdict.warnings]


def test_the_limit_comes_from_the_models_config_and_the_facts_keep_it(tmp_path: Path) -> None:
    config = {"max_position_embeddings": LIMIT, "num_nextn_predict_layers": 1, "model_type": "mimo"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with simulate(low_limit("zero-accepted")) as server:
        # Served beyond what the config covers: the rules say so, and the run is forced.
        text = suite(server.base_url, route='config = "config.json"')
        (tmp_path / "s.toml").write_text(text)
        result = ctxbench_here(["run", "s.toml", "--force", "--quiet", "--no-report"], tmp_path)
        assert result.returncode == 0, result.stderr
    info = read_info(only_run(tmp_path / "results"))
    facts = info.facts["mtp2"]
    assert facts.drafter_limit == LIMIT
    assert facts.sources["drafter_limit"] == "context rules"
    assert facts.past_drafter_limit == ("drafts without acceptance", "no gate")
    assert {trial.tier for trial in info.plan if trial.side} == {950, 999}


def test_the_check_says_what_is_missing_and_what_will_be_sent(tmp_path: Path) -> None:
    with simulate(low_limit()) as server:
        (tmp_path / "unknown.toml").write_text(suite(server.base_url))
        (tmp_path / "known.toml").write_text(suite(server.base_url, route=DECLARED))
        (tmp_path / "high.toml").write_text(suite(server.base_url, route="drafter_limit = 4096"))
        said = {
            name: ctxbench_here(["check", f"{name}.toml"], tmp_path) for name in ("unknown", "known", "high")
        }
    told = {name: " ".join(result.stdout.split()) for name, result in said.items()}  # lines may be wrapped
    assert said["known"].returncode == 0, said["known"].stdout
    assert "drafter limit 1,000 (declared in the suite): prompts of 950 and 999 tokens" in told["known"]
    assert said["unknown"].returncode == 1
    assert "the drafter limit is not known: give config = or drafter_limit =" in told["unknown"]
    assert said["high"].returncode == 1
    assert "nothing can be sent past the drafter limit of 4,096" in told["high"]


def test_the_report_shows_both_sides(tmp_path: Path) -> None:
    with simulate(low_limit("zero-accepted")) as server:
        (tmp_path / "s.toml").write_text(suite(server.base_url, route=DECLARED))
        result = ctxbench_here(["run", "s.toml", "--quiet"], tmp_path)
    assert result.returncode == 0, result.stderr
    report = (only_run(tmp_path / "results") / "report.md").read_text()
    assert "950" in report and "999" in report
    rows = [line for line in report.splitlines() if line.startswith("| mtp2 ") or "fallback) |" in line]
    assert [row.split(" | ")[1].strip() for row in rows[:3]] == ["256", "950", "999"]
    assert "mtp2 (fallback)" in rows[2] and "| 0.0% |" in rows[2]
    assert "mtp2, 950 tokens, under the drafter limit: " in report
    over = next(line for line in report.splitlines() if "999 tokens, over the drafter limit" in line)
    assert "47 drafts, 0.0% accepted" in over and "as vllm 0.32.0 does" in over
