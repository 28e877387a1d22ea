"""Lines on what routes differ in besides speculation, within a run and across runs."""

from __future__ import annotations

import msgspec
from report_samples import info

from bench.records import ServerFacts
from bench.report.content import assemble
from bench.report.differences import difference_lines
from bench.report.run_pass import Run


def run(path: str, **versions: str) -> Run:
    """A run of the routes given, each with its server's version."""
    made = info()
    routes = tuple(route for route in made.suite.routes if route.name.replace("-", "_") in versions)
    facts = {
        route.name: ServerFacts(engine="vllm", version=versions[route.name.replace("-", "_")])
        for route in routes
    }
    suite = msgspec.structs.replace(made.suite, routes=routes)
    return Run(
        path=path,
        info=msgspec.structs.replace(made, suite=suite, facts=facts),
        events=(),
        exchanges=0,
        warmups=0,
        harness_s=None,
        span_s=None,
    )


def lines(*runs: Run) -> list[str]:
    return difference_lines(assemble(runs=runs, measurements=()))


def versions_in(found: list[str]) -> list[str]:
    return [line.partition("version: ")[2] for line in found if "version: " in line]


def test_another_version_of_one_route_is_told() -> None:
    assert versions_in(lines(run("r", mtp4="0.32.0", mtp2="0.32.0", target_only="0.31.0"))) == [
        "0.32.0 (mtp4, mtp2), 0.31.0 (target-only)"
    ]
    assert versions_in(lines(run("r", mtp4="0.32.0", mtp2="0.32.0", target_only="0.32.0"))) == []


def test_routes_of_several_runs_are_compared_and_equal_names_told_apart() -> None:
    assert versions_in(lines(run("one", mtp4="0.32.0"), run("two", target_only="0.31.0"))) == [
        "0.32.0 (mtp4), 0.31.0 (target-only)"
    ]
    assert versions_in(lines(run("one", mtp4="0.32.0"), run("two", mtp4="0.31.0"))) == [
        "0.32.0 (one:mtp4), 0.31.0 (two:mtp4)"
    ]


def test_what_a_server_says_of_itself_is_one_harmless_line() -> None:
    (text,) = versions_in(lines(run("r", mtp4="0.32\n<b>", target_only="0.31")))
    assert "\n" not in text


def test_nothing_to_compare_is_no_line() -> None:
    assert lines() == []
    assert lines(run("r", mtp4="0.32.0")) == []
