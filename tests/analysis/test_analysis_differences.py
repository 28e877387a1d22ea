"""In what routes differ besides speculation."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bench.analysis.decisions.differences import differences, unexplained
from bench.plan.suite import parse_suite
from bench.plan.variants import Sweep, vllm_suite
from bench.records import ServerFacts, Suite

PLAIN = """
[suite]
name = "s"
tiers = [1000]
[[route]]
name = "mtp4"
base_url = "http://a:8000/v1"
speculation = { method = "mtp", num_speculative_tokens = 4 }
[[route]]
name = "target-only"
base_url = "http://b:8000/v1"
"""


def suite(*, up: tuple[str, str] | None = None, first: str = "", second: str = "") -> Suite:
    servers = [f"[route.server]\nup = {json.dumps(command)}\n" for command in up] if up else ["", ""]
    head, tail = PLAIN.rsplit("[[route]]", 1)
    return parse_suite(f"{head}{first}\n{servers[0]}[[route]]{tail}{second}\n{servers[1]}")


def facts(**changes: Any) -> ServerFacts:
    told: dict[str, Any] = {"engine": "vllm", "version": "0.32.0", "model": "m", "max_model_len": 262_144}
    return ServerFacts(**{**told, **changes})


def texts(one: ServerFacts, other: ServerFacts, checked: Suite | None = None) -> list[str]:
    found = unexplained(checked or suite(), {"mtp4": one, "target-only": other})
    return [difference.text for difference in found]


def test_routes_that_differ_in_speculation_alone_differ_in_nothing() -> None:
    one = facts(num_speculative_tokens=4, drafter_limit=1000, started_at=1.0)
    assert texts(one, facts(started_at=2.0)) == []


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"version": "0.31.0"}, "version: 0.31.0 (mtp4), 0.32.0 (target-only)"),
        ({"max_model_len": 65_536}, "served limit: 65,536 (mtp4), 262,144 (target-only)"),
        ({"engine": "sglang"}, "engine: sglang (mtp4), vllm (target-only)"),
    ],
)
def test_any_other_difference_is_named_with_its_routes(change: dict[str, Any], text: str) -> None:
    assert texts(facts(**change), facts()) == [text]


def test_what_one_side_does_not_tell_is_no_difference() -> None:
    assert texts(facts(version=None, prefix_caching=True, flags={"cache_dtype": "fp8"}), facts()) == []


def test_what_a_server_reckons_from_its_memory_is_no_setting() -> None:
    flags = ({"full_length_requests": "4.0"}, {"full_length_requests": "3.5"})
    assert texts(*(facts(flags=one) for one in flags)) == []


def test_flags_are_compared_where_both_tell_them() -> None:
    one, other = facts(flags={"cache_dtype": "fp8"}), facts(flags={"cache_dtype": "auto"})
    assert texts(one, other) == ["flag cache_dtype: fp8 (mtp4), auto (target-only)"]


def test_a_smaller_cache_beside_a_drafter_follows_from_speculation() -> None:
    by_route = {
        "mtp4": facts(kv_capacity_tokens=900, block_size=1616),
        "target-only": facts(kv_capacity_tokens=1000, block_size=784),
    }
    found = differences(suite(), by_route)
    assert [(one.what, one.follows) for one in found] == [("KV capacity", True), ("prefix block", True)]
    assert unexplained(suite(), by_route) == []


def test_unequal_caches_of_equal_speculation_do_not() -> None:
    twins = parse_suite(PLAIN.replace('speculation = { method = "mtp", num_speculative_tokens = 4 }', ""))
    found = unexplained(
        twins, {"mtp4": facts(kv_capacity_tokens=900), "target-only": facts(kv_capacity_tokens=1000)}
    )
    assert [one.text for one in found] == ["KV capacity: 900 (mtp4), 1,000 (target-only)"]


def test_commands_are_compared_option_by_option() -> None:
    common = "CUDA_VISIBLE_DEVICES=0 vllm serve m --port"
    drafts = """ --speculative-config '{"method": "mtp"}'"""
    servers = suite(
        up=(
            f"{common} 8000 --max-model-len=1000 --enforce-eager{drafts}",
            f"{common} 8001 --max-model-len 2000",
        )
    )
    assert texts(facts(), facts(), servers) == [
        "option --max-model-len: 1000 (mtp4), 2000 (target-only)",
        "option --enforce-eager: set (mtp4), not set (target-only)",
    ]


def test_another_program_or_a_variable_more_is_a_difference() -> None:
    up = ("vllm serve m", "vllm-old serve m")
    assert texts(facts(), facts(), suite(up=up)) == [
        "command: vllm serve m (mtp4), vllm-old serve m (target-only)"
    ]
    assert texts(facts(), facts(), suite(up=("x 'open", "x"))) == ["command: x 'open (mtp4), x (target-only)"]


def test_requests_and_settings_that_differ_are_told() -> None:
    other = suite(
        first="request = { temperature = 0.5 }\nsetting = { gpu = 'A' }", second="setting = { gpu = 'B' }"
    )
    assert texts(facts(), facts(), other) == [
        "[request] temperature: 0.5 (mtp4), 0.0 (target-only)",
        "setting gpu: A (mtp4), B (target-only)",
    ]


def test_the_suites_that_we_print_differ_in_speculation_alone() -> None:
    printed = parse_suite(vllm_suite(Sweep(name="s", drafted=(0, 2, 4), tiers=(1000,)), "m"))
    assert len(printed.routes) == 3
    assert unexplained(printed, {}) == []


def test_what_servers_say_is_cut_to_a_readable_length() -> None:
    (text,) = texts(facts(version="9" * 10_000), facts())
    assert len(text) < 200
