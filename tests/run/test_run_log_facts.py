"""Facts that only a server's log states: completed, contradicted, checked and recorded."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest
from run_helpers import TOKENIZER

from bench.analysis.logs.analyser import LogAnalyser
from bench.analysis.logs.facts import merge_log_facts
from bench.engines import get
from bench.journal import read_info
from bench.plan.suite import parse_suite
from bench.records import ServerFacts, Suite
from bench.run.lifecycle.logfacts import route_tail, with_log_facts
from bench.run.openroute import OpenRoute
from bench.run.order import Order
from bench.run.preflight import checks
from bench.run.preflight.limits import with_limits
from bench.run.progress import Progress
from bench.run.study import start
from bench.servers.simulator import load_profile
from bench.servers.simulator import start as simulate
from bench.wire.client import Client
from bench.wire.logs import command, parse_source

RECORDED = Path(__file__).parent.parent / "recordings" / "logs" / "vllm-0.32-mtp2-over-limit.log"
URL = "http://127.0.0.1:1/v1"


def suite(base_url: str = URL, *, route: str = "", tiers: str = "256") -> Suite:
    return parse_suite(suite_text(base_url, route=route, tiers=tiers))


def suite_text(base_url: str, *, route: str = "", tiers: str = "256") -> str:
    return f"""
[suite]
name = "logged"
tiers = [{tiers}]
conditions = ["cold"]
output_tokens = 16
repeats = 1
warmup = "none"
[prompt]
corpus = "synthetic"
tokenizer = '{TOKENIZER}'
[[route]]
name = "mtp2"
base_url = "{base_url}"
speculation = {{ method = "mtp", num_speculative_tokens = 2 }}
{route}
"""


def opened(checked: Suite, **facts: Any) -> OpenRoute:
    said: dict[str, Any] = {"engine": "vllm", "version": "0.32.0", "model": "m", **facts}
    return OpenRoute(
        route=checked.routes[0],
        client=Client(URL),
        dialect=get("vllm"),
        facts=ServerFacts(**said),
        model="m",
        metrics_url=None,
    )


def read(checked: Suite, folder: Path, **facts: Any) -> OpenRoute:
    """A route completed from the log that its route names."""
    asked = opened(checked, **facts)
    log = checked.routes[0].log
    assert log is not None
    return asyncio.run(with_log_facts(asked, lambda: route_tail(log, folder, asked.facts)))


LOGGED = ServerFacts(
    engine="vllm",
    version="0.32.0",
    max_model_len=16_384,
    kv_capacity_tokens=500,
    block_size=16,
    drafter_limit=4_096,
    sources={"kv_capacity_tokens": "server log, line 7", "max_model_len": "server log, line 3"},
)


def test_what_the_server_says_itself_stays_and_the_log_fills_the_rest() -> None:
    said = ServerFacts(
        engine="vllm",
        kv_capacity_tokens=600,
        flags={"page": "32"},
        sources={"kv_capacity_tokens": "cache_config_info"},
    )
    merged = merge_log_facts(said, msgspec.structs.replace(LOGGED, flags={"page": "64", "runner": "v1"}))
    facts = merged.facts
    assert merged.problem is None
    assert (facts.kv_capacity_tokens, facts.sources["kv_capacity_tokens"]) == (600, "cache_config_info")
    assert (facts.max_model_len, facts.sources["max_model_len"]) == (16_384, "server log, line 3")
    assert (facts.block_size, facts.drafter_limit, facts.version) == (16, 4_096, "0.32.0")
    assert facts.flags == {"page": "32", "runner": "v1"}


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ({"max_model_len": 8_192}, "maximum length 8,192, the log 16,384 (server log, line 3)"),
        ({"version": "0.31.0"}, "version 0.31.0, the log 0.32.0"),
    ],
)
def test_a_log_that_contradicts_the_server_is_not_believed_in_anything(
    said: dict[str, Any], problem: str
) -> None:
    facts = ServerFacts(engine="vllm", **said)
    merged = merge_log_facts(facts, LOGGED)
    assert merged.facts == facts
    assert merged.problem is not None and problem in merged.problem


def test_a_build_suffix_is_no_other_version_and_an_unknown_engine_takes_no_version() -> None:
    built = ServerFacts(engine="vllm", version="0.32.0+cpu")
    assert merge_log_facts(built, LOGGED).facts.version == "0.32.0+cpu"
    assert merge_log_facts(ServerFacts(), LOGGED).facts.version is None


def test_a_recorded_log_gives_what_no_endpoint_tells_and_the_checks_use_it() -> None:
    # 16,384 served, drafter to 4,096, KV of 1,398,016: read off the recording by hand.
    checked = suite(route=f"log = '{RECORDED.name}'", tiers="256, 4_090, 5_000")
    found = with_limits(checked, read(checked, RECORDED.parent, max_model_len=16_384), RECORDED.parent)
    facts = found.facts
    assert (facts.drafter_limit, facts.kv_capacity_tokens) == (4_096, 1_398_016)
    assert facts.sources["drafter_limit"].startswith("server log, line ")
    assert facts.past_drafter_limit  # known of 0.32, and no config was needed for it
    (line,) = checks._log_facts(found)
    assert line.state == "ok" and "a KV capacity of 1,398,016 (server log, line " in line.text
    assert [one.text.partition(":")[0] for one in checks._drafter(checked, found)] == [
        "tier 4,090 + 16 output tokens",
        "tier 5,000 + 16 output tokens",
    ]
    assert "crosses while decoding" in next(iter(checks._drafter(checked, found))).text


def test_a_kv_capacity_of_the_log_refuses_a_replay_that_cannot_fit(tmp_path: Path) -> None:
    line = "INFO 11-29 14:00:00 [k.py:1] GPU KV cache size: 1,000 tokens\n"
    (tmp_path / "server.log").write_text(line)
    checked = suite(route="log = 'server.log'", tiers="2_000")
    checked = msgspec.structs.replace(checked, conditions=("cold", "replay"))
    found = read(checked, tmp_path)
    failed = [one for one in checks._cache(checked, found) if one.state == "fail"]
    assert [one.text for one in failed] == [
        "the KV cache holds 1,000 tokens (server log, line 1), the longest trial has 2,016: "
        "a replay cannot hit"
    ]


def test_a_declared_limit_that_the_log_contradicts_is_told(tmp_path: Path) -> None:
    checked = suite(route=f"log = '{RECORDED.name}'\ndrafter_limit = 8_192")
    found = with_limits(checked, read(checked, RECORDED.parent), RECORDED.parent)
    assert found.facts.drafter_limit == 8_192
    (warned,) = [one for one in checks._log_facts(found) if one.state == "warn"]
    assert "8,192 by the suite, 4,096 (server log, line" in warned.text


def test_a_log_that_is_not_there_gives_no_facts_and_says_so(tmp_path: Path) -> None:
    found = read(suite(route='log = "absent.log"'), tmp_path)
    assert found.facts == opened(suite()).facts
    assert found.log_problem is not None and "no such file" in found.log_problem


def test_a_huge_or_binary_log_is_read_within_bounds(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    with path.open("wb") as file:
        file.write(RECORDED.read_bytes())
        file.write(b"\x00\xff" * 500 + b"\n")
        file.seek(300 * 1024 * 1024)  # a hole: no disk is used
        file.write(b"the end\n")
    found = read(suite(route='log = "server.log"'), tmp_path)
    assert found.facts.kv_capacity_tokens == 1_398_016


def test_containers_and_units_are_asked_since_the_server_started(tmp_path: Path) -> None:
    facts = ServerFacts(started_at=1_800_000_000.0)
    tail = route_tail("journal:vllm.service", tmp_path, facts)
    since = tail._since  # type: ignore[attr-defined]
    assert since is not None
    assert command(parse_source("journal:vllm.service"), since)[3] == "--since=@1799999940.000000"
    other_clock = route_tail("docker:vllm", tmp_path, ServerFacts(started_at=4_242.0))
    assert other_clock._since is None  # type: ignore[attr-defined]


def test_the_facts_of_a_simulators_log_are_in_the_run(tmp_path: Path) -> None:
    toy = load_profile("toy")
    assert toy.speculation is not None
    low = msgspec.structs.replace(toy.speculation, drafter_limit=1_000)
    log = tmp_path / "server.log"
    with simulate(msgspec.structs.replace(toy, speculation=low), log_file=log) as server:
        text = suite_text(server.base_url, route='log = "server.log"')
        order = Order(suite=parse_suite(text), suite_text=text, results=tmp_path / "results", folder=tmp_path)
        run = asyncio.run(start(order, Progress()))
    analyser = LogAnalyser()
    analyser.feed(log.read_bytes())
    assert analyser.report().facts.drafter_limit == 1_000
    facts = read_info(run).facts["mtp2"]
    assert facts.drafter_limit == 1_000
    assert facts.sources["drafter_limit"].startswith("server log, line ")
    assert facts.kv_capacity_tokens == 131_072
