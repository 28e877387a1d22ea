"""The preflight sees a fault before the first expensive request, and a run is refused for it."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest
from fault_runs import TOKENIZER, run_on

from bench.errors import EngineError
from bench.plan.suite import parse_suite
from bench.run.preflight.checks import Check
from bench.run.preflight.whole import preflight
from bench.run.study import Order
from bench.servers import simulator

REFUSED = {
    "refused": ("server", "nobody listens"),
    "loading": ("server", "HTTP 503: The model is still loading"),
    "reset-upload": ("request", "the connection broke before the answer began"),
    "hang-headers": ("request", "no text within 2 s of sending"),
    "unauthorized": ("request", "HTTP 401"),
    "model-missing": ("request", "HTTP 404: The model `the-model-you-asked-for` does not exist"),
    "buffered": ("stream", "all at once"),
    "malformed-json": ("request", "no JSON"),
    "empty-answer": ("request", "no text"),
    "usage-missing": ("usage", "no usage"),
    "usage-impossible": ("usage", "cannot be true"),
    "early-stop": ("ignore_eos", "8 of 16 tokens"),
    "clamped-output": ("output", "8 of 16 tokens"),
    "truncated-prompt": ("count", "usage counts 11 prompt tokens where the server's own tokenizer counts 23"),
    "count-off": ("count", "usage counts 26 prompt tokens where the server's own tokenizer counts 23"),
    "speculation-off": ("speculation", "nothing was drafted"),
    "positions-incomplete": ("speculation", "the server shows 1"),
    "foreign-traffic": ("idle", "Other requests were served"),
}
"""Fault -> the check that fails, and words of its line; of those that fail in one way, one or two."""

WARNED = {
    "no-cached-tokens": ("cached tokens", "usage does not tell cached tokens"),
    "metrics-404": ("metrics", "HTTP 404"),
    "metrics-empty": ("metrics", "the metrics page is empty"),
    "metrics-slow": ("metrics", " s, twice for every trial"),
}
"""Fault -> the check that warns; trials are sent all the same."""

MTP = '[route.speculation]\nmethod = "mtp"\nnum_speculative_tokens = 2\n'


def all_checks(faults: list[str]) -> dict[str, list[Check]]:
    """The preflight of one suite in which every route is a server with a fault of its own."""
    with contextlib.ExitStack() as stack:
        routes = ""
        for name in faults:
            alone = name == "buffered"  # drafts make too few chunks of so short an answer
            server = stack.enter_context(
                simulator.start("toy-target-only" if alone else "toy", faults=[name])
            )
            routes += f'[[route]]\nname = "{name}"\nbase_url = "{server.base_url}"\n{"" if alone else MTP}'
            routes += "[route.request.timeouts]\nfirst_token_s = 2.0\n" if name == "hang-headers" else ""
        text = (
            f'[suite]\nname = "faults"\ntiers = [256]\noutput_tokens = 16\nwarmup = "none"\n'
            f"[prompt]\ncorpus = \"synthetic\"\ntokenizer = '{TOKENIZER}'\n"
            f"{routes}"
        )
        found = asyncio.run(preflight(Order(suite=parse_suite(text), suite_text=text)))
    return {name: [check for check in found if check.route == name] for name in faults}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.run.exchange._SETTLE_LIMIT_S", 0.3)
    monkeypatch.setattr("bench.servers.simulator.app._SLOW_S", 0.3)
    monkeypatch.setattr("bench.run.preflight.checks._SLOW_PAGE_S", 0.2)


def test_each_fault_fails_the_check_that_is_about_it() -> None:
    found = all_checks(list(REFUSED))
    for name, (check, words) in REFUSED.items():
        failed = [one for one in found[name] if one.state == "fail" and one.name == check]
        assert [words in one.text for one in failed] == [True], f"{name}: {found[name]}"


def test_speculation_that_is_only_declared_is_not_called_ok() -> None:
    (line,) = [one for one in all_checks(["speculation-off"])["speculation-off"] if one.name == "speculation"]
    assert line.state == "fail"
    assert line.text.startswith("the suite declares mtp, k = 2, and so does the server: The route declares")


def test_what_trials_can_do_without_is_a_warning() -> None:
    found = all_checks(list(WARNED))
    for name, (check, words) in WARNED.items():
        # Chunks that come together may tell of this machine: these answers take 60 ms.
        failed = [one.text for one in found[name] if one.state == "fail" and one.name != "stream"]
        assert failed == [], name
        warned = [one for one in found[name] if one.state == "warn" and one.name == check]
        assert [words in one.text for one in warned] == [True], f"{name}: {found[name]}"


def test_a_run_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    ran = run_on("toy", ["usage-missing"], tmp_path, force=False, speed=0.2)
    assert isinstance(ran.error, EngineError) and "no usage" in str(ran.error)
    assert ran.exchanges == () and list(tmp_path.iterdir()) == []
