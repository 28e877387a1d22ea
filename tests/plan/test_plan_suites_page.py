"""The page of ready suites: every suite is on it, and its numbers are what the estimate says."""

from __future__ import annotations

import re

import pytest

from bench.plan.durations import words
from bench.plan.suite import parse_suite, read_suite
from bench.plan.times import calibrated
from bench.plan.trials import plan
from bench.resources import shipped
from bench.run.forecast.outlook import forecast

SUITES = {path.stem: path for path in shipped("prompts", "suites").glob("*.toml")}
PAGE = (shipped("prompts").parent / "docs" / "suites.md").read_text()
ROWS = re.findall(
    r"^\| \[([\w-]+)\]\(#([\w-]+)\) \| (\d+) \| ([\d,]+) \| ([\d,]+) \| ([^|]+) \|$", PAGE, re.M
)


def test_every_ready_suite_has_its_row_and_its_section() -> None:
    assert sorted(name for name, *_ in ROWS) == sorted(SUITES)
    assert all(name == link and f"\n## {name}\n" in PAGE for name, link, *_ in ROWS)


@pytest.mark.parametrize(("name", "trials", "prefill", "decode", "time"), [(r[0], *r[2:]) for r in ROWS])
def test_trials_and_expected_time_are_those_of_the_plan(
    name: str, trials: str, prefill: str, decode: str, time: str
) -> None:
    suite, _ = read_suite(SUITES[name])
    limits = {route.name: route.drafter_limit for route in suite.routes if route.drafter_limit}
    planned = plan(suite, limits)
    assert len(planned) == int(trials)
    rate = float(prefill.replace(",", ""))
    longest = max(trial.tier for trial in planned)
    points = [(tokens, tokens / rate) for tokens in (longest // 4, longest)]
    step_s = 1 / float(decode.replace(",", ""))
    models = {route.name: calibrated(route.name, points, step_s) for route in suite.routes}
    expected = forecast(suite, planned, models)
    assert expected.total_s is not None
    assert words(expected.total_s) == time
    assert suite.budget_s is None or expected.high_s is None or expected.high_s < suite.budget_s


@pytest.mark.parametrize("name", sorted(SUITES))
def test_a_key_that_stands_there_as_a_comment_may_be_switched_on(name: str) -> None:
    text = SUITES[name].read_text()
    on = re.sub(r"^# (?=[a-z_]+ = )", "", text, flags=re.MULTILINE)
    assert parse_suite(on, name=name).name == name
