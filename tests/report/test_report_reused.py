"""`report --reused`: crossovers and the winner map for a cached part of the prompt that was not measured."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import msgspec
import pytest
import report_samples as samples
from click.testing import CliRunner

from bench.analysis.decisions.crossover import one_way
from bench.analysis.decisions.reused import Reuse, reuse_crossovers
from bench.cli.report import report
from bench.errors import SuiteError
from bench.records import Measurement
from bench.report import export, figures_winner, html, markdown, style, tables
from bench.report.content import Content, assemble
from bench.report.plots import of_task
from bench.report.reused import NOTE, reused_lines

SMALL = Path(__file__).parents[1] / "data" / "run-small"


def study(reuse: Reuse | None, found: tuple[Measurement, ...] | None = None) -> Content:
    return assemble(
        runs=samples.content().runs,
        measurements=samples.measurements() if found is None else found,
        reuse=reuse,
    )


def titles(content: Content) -> list[str]:
    """Of the panels of the winner map."""
    with style.drawing():
        figure = figures_winner.winner_map(content)
    assert figure is not None
    return [axis.get_title(loc="left") or axis.get_title() for axis in figure.axes]


def test_a_chosen_share_has_its_own_section_in_every_text() -> None:
    content = study(Reuse(share=0.75))
    lines = reused_lines(content)
    assert len(lines) == 9  # three pairs at two tiers, what no replay had cached, and two broken blocks
    assert lines[6].endswith(": replays reused 0 tokens at most: 4,737 were never measured")
    assert lines[0].startswith("6,316 tokens, 4,737 of them cached: mtp4 against mtp2: faster from ")
    texts = markdown.render(content, ["winner_map"]), html.render(content), tables.terminal(content)
    for text in texts:
        assert "Crossover with 75% of the prompt cached" in text
        assert "4,737 of them cached" in text
        assert " ".join(NOTE.split()) in " ".join(text.split())
    assert "![Which route is fastest](plots/winner_map.png)" in texts[0]


def test_without_a_chosen_part_nothing_is_added() -> None:
    content = study(None)
    assert content.reused == () and reused_lines(content) == []
    for text in (markdown.render(content, ["winner_map"]), html.render(content), tables.terminal(content)):
        assert NOTE[:40] not in text and "of them cached" not in text
    assert titles(content) == ["cold"]
    assert export.summary_file(content).reused_crossovers == ()


def test_the_figures_are_those_of_the_crossover_command() -> None:
    reuse = Reuse(tokens=5_000)
    content = study(reuse)
    blocks = dict.fromkeys(samples.ROUTES, 1_616)
    expected = one_way(reuse_crossovers(samples.measurements(), reuse, blocks=blocks))
    assert sorted(content.reused, key=str) == sorted(expected, key=str)
    data = json.loads(export.summary_json(content))["reused_crossovers"]
    assert [one["reused_tokens"] for one in data] == [5_000] * 6
    assert {one["basis"] for one in data if one["status"] == "crosses"} == {"law"}
    assert "Crossover with 5,000 prompt tokens cached" in markdown.render(content)


def test_a_part_that_is_no_whole_blocks_is_named_as_the_crossover_command_names_it() -> None:
    lines = reused_lines(study(Reuse(share=0.75)))
    said = "mtp4, mtp2, target-only: 4,737 tokens are no whole blocks of 1,616: it would reuse 3,232"
    assert said in lines  # three routes, a block of 1,616 each: 4,737 // 1,616 is 2
    assert not [line for line in reused_lines(study(Reuse(tokens=3_232))) if "whole blocks" in line]


def test_the_map_of_replays_is_what_was_measured_and_says_so() -> None:
    """Each route reuses a part of its own: of none of them, the median of all would be true."""
    reused = {"mtp4": 0.60, "mtp2": 0.75, "target-only": 0.90}
    found = tuple(
        msgspec.structs.replace(
            one, prefix_reuse=reused[one.route], cached_tokens=round(reused[one.route] * one.tier)
        )
        if one.condition == "replay"
        else one
        for one in samples.measurements()
    )
    content = study(Reuse(share=0.75), found)
    assert titles(content) == ["cold", "75% reused, by law", "replays, as measured"]
    with style.drawing():
        figure = figures_winner.winner_map(content)
    assert figure is not None
    dots = [[line for line in axis.lines if line.get_marker() == "o"] for axis in figure.axes]
    assert list(map(len, dots)) == [1, 0, 1]  # 75% was measured on one route alone


def test_the_map_of_a_share_that_was_not_measured_says_that_it_is_the_laws() -> None:
    assert titles(study(Reuse(share=0.75))) == ["cold", "75% reused, by law"]
    assert titles(study(Reuse(tokens=200_000))) == ["cold", "200,000 cached, by law"]


def test_a_report_of_one_task_keeps_only_its_crossovers() -> None:
    other = tuple(
        msgspec.structs.replace(one, task="needle", trial_id=f"{one.trial_id}~needle")
        for one in samples.measurements()
    )
    content = study(Reuse(share=0.5), (*samples.measurements(), *other))
    assert {one.task for one in content.reused} == {"continue", "needle"}
    assert {one.task for one in of_task(content, "needle").reused} == {"needle"}
    assert sum(", needle: " in line for line in reused_lines(content)) == 6


def test_what_a_law_lacks_is_said_once_for_all_routes_that_lack_it() -> None:
    cold = tuple(one for one in samples.measurements() if one.condition == "cold")
    found = [line for line in reused_lines(study(Reuse(share=0.5), cold)) if "reckoned as free" in line]
    assert found == ["mtp4, mtp2, target-only: no replay was measured, a cached token is reckoned as free"]


def test_one_tier_or_one_route_is_refused_in_a_line() -> None:
    tier = tuple(one for one in samples.measurements() if one.tier == 6_316)
    with pytest.raises(SuiteError) as caught:
        study(Reuse(share=0.75), tier)
    assert str(caught.value).startswith("--reused 75%: two routes with a prefill law (two tiers or more)")
    assert "mtp4: one tier (6,316 tokens) gives no law" in str(caught.value)
    route = tuple(one for one in samples.measurements() if one.route == "mtp4")
    with pytest.raises(SuiteError, match=r"needed \(no two routes were measured\)$"):
        study(Reuse(share=0.75), route)


def test_the_command_writes_it_the_same_way_twice_and_refuses_before_it_writes(tmp_path: Path) -> None:
    run = Path(shutil.copytree(SMALL, tmp_path / "run"))

    def call(*words: str) -> bytes:
        result = CliRunner().invoke(report, [str(run), "--no-plots", *words], catch_exceptions=False)
        assert result.exit_code == 0
        return (run / "summary.json").read_bytes() + (run / "report.html").read_bytes()

    first = call("--reused", "75%")
    assert b"Crossover with 75% of the prompt cached" in first
    assert call("--reused", "75%") == first
    for wrong in ("100%", "5000", "x"):
        with pytest.raises(SuiteError, match="--reused"):
            call("--reused", wrong)
    assert (run / "summary.json").read_bytes() + (run / "report.html").read_bytes() == first
