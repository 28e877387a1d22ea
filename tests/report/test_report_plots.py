"""Plots of a suite of several tasks are drawn task by task, and ticks never touch each other."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
import report_samples as samples
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from bench.analysis.decisions.winner import WinnerMap
from bench.records import Crossover
from bench.report import figures, figures_time, figures_winner, style
from bench.report.content import Content, assemble
from bench.report.detail import Detail
from bench.report.plots import BY_TASK, TASKS_DRAWN, draw, of_task

GAP = 3
"""Pixels around a label that must be free: two of them make the space between words."""

FASTER = {"edit-code": 1.3, "open-ended": 0.6, "../x/Mine task.md": 1.0, "needle": 1.1}


def study(*tasks: str) -> Content:
    """The study, measured with each of these tasks: the same TTFT, another decode rate."""
    found = tuple(
        msgspec.structs.replace(
            one,
            task=task,
            trial_id=f"{one.trial_id}~{task}",
            decode_tok_s=(one.decode_tok_s or 0) * FASTER[task],
            tpot_s=(one.tpot_s or 0) / FASTER[task],
            order=one.order,
        )
        for task in tasks
        for one in samples.measurements()
    )
    return assemble(runs=samples.content().runs, measurements=found)


@pytest.fixture
def drawn_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are made but not written: what is asked here is which ones there are."""
    monkeypatch.setattr(style, "png", lambda _: b"")
    monkeypatch.setattr(style, "svg", lambda _: "")
    monkeypatch.setattr(style, "settle", lambda _: None)


@pytest.mark.usefixtures("drawn_once")
def test_what_depends_on_the_task_is_drawn_for_each_of_the_first_three() -> None:
    plots = {plot.name: plot for plot in draw(study(*FASTER))}
    by_task = {name for name in plots if name.partition("-")[0] in BY_TASK}
    assert by_task == {
        f"{name}-{short}" for name in BY_TASK for short in ("edit-code", "open-ended", "mine-task")
    }
    assert len(by_task) == len(BY_TASK) * TASKS_DRAWN
    assert plots["decode-mine-task"].title == "Decode rate over prompt length: ../x/Mine task.md"
    assert plots["ttft"].caption.endswith("All tasks together.")


@pytest.mark.usefixtures("drawn_once")
def test_one_task_leaves_names_and_captions_as_they_are() -> None:
    plots = draw(study("needle"))
    assert {"total_latency", "decode", "ttft"} <= {plot.name for plot in plots}
    assert not [plot for plot in plots if "tasks" in plot.caption or "-" in plot.name]


@pytest.mark.usefixtures("drawn_once")
def test_the_winner_map_of_two_tiers_says_what_its_certainty_knows_of() -> None:
    two = study("needle")
    third = tuple(
        msgspec.structs.replace(
            one,
            tier=100_000,
            prompt_tokens=100_000,
            ttft_s=(one.ttft_s or 0) * 4,
            trial_id=f"{one.trial_id}~third",
        )
        for one in two.measurements
        if one.tier == 6_316
    )
    three = assemble(runs=two.runs, measurements=(*two.measurements, *third))
    captions = [
        next(plot.caption for plot in draw(content) if plot.name == "winner_map") for content in (two, three)
    ]
    assert "not certain by the scatter of the trials" in captions[1]
    assert captions[0] == captions[1] + " A law through two tiers has no spread: nothing is certain by it."


@pytest.mark.usefixtures("drawn_once")
def test_tasks_with_equal_names_in_other_folders_have_files_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(FASTER, "a/same.md", 1.0)
    monkeypatch.setitem(FASTER, "b/same.md", 1.0)
    names = [plot.name for plot in draw(study("a/same.md", "b/same.md"))]
    assert {"decode-same-1", "decode-same-2"} <= set(names) and len(names) == len(set(names))


def test_a_part_of_a_report_keeps_the_colours_of_the_whole() -> None:
    whole = study("edit-code", "needle")
    lone = msgspec.structs.replace(
        whole,
        measurements=tuple(
            one for one in whole.measurements if one.task == "edit-code" or one.route == "target-only"
        ),
    )
    part = of_task(lone, "needle")
    assert {one.route for one in part.measurements} == {"target-only"}
    assert part.routes == whole.routes == ("mtp4", "mtp2", "target-only")


def overlapping(figure: Figure) -> list[tuple[str, str]]:
    """Neighbouring tick labels of one axis whose boxes touch, when drawn."""
    style.settle(figure)
    renderer = FigureCanvasAgg(figure).get_renderer()
    found = []
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            shown = [
                label
                for place, label in zip(axis.get_majorticklocs(), axis.get_ticklabels(), strict=True)
                if low <= place <= high and label.get_text()
            ]
            boxes = [label.get_window_extent(renderer).padded(GAP) for label in shown]
            for i in range(len(boxes) - 1):
                if boxes[i].overlaps(boxes[i + 1]):
                    found.append((shown[i].get_text(), shown[i + 1].get_text()))
    return found


@pytest.mark.parametrize("factor", [1.0, 2_400.0])
def test_tick_labels_do_not_touch(factor: float) -> None:
    plain = study("../x/Mine task.md")  # as published: two routes meet at 11,894 output tokens
    slow = tuple(
        msgspec.structs.replace(one, ttft_s=(one.ttft_s or 0) * factor) for one in plain.measurements
    )
    content = assemble(runs=plain.runs, measurements=slow)
    with style.drawing():
        for draw_one in (figures.total_latency, figures.ttft, figures.decode):
            figure = draw_one(content)
            assert figure is not None
            assert overlapping(figure) == []


def test_prompt_lengths_are_short_where_they_are_round() -> None:
    texts = [figures.short(value) for value in (256, 6_316, 8_000, 10_000, 564_580, 1_000_000)]
    assert texts == ["256", "6,316", "8k", "10k", "565k", "1M"]


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0.8, 1.65, ["0.8", "1", "1.2", "1.4", "1.6"]),  # less than an octave
        (3, 8, ["3", "4", "5", "6", "7", "8"]),
        (0.05, 5, ["0.1", "0.3", "1", "3"]),
        (0.01, 100, ["0.01", "0.1", "1", "10", "100"]),
        (0.001, 1_000, ["0.001", "0.01", "0.1", "1", "10", "100", "1,000"]),
    ],
)
def test_a_log_axis_has_four_ticks_or_more_whatever_it_spans(
    low: float, high: float, ticks: list[str]
) -> None:
    with style.drawing():
        figure, (axis,) = style.new_figure()
        axis.plot([1, 2], [low, high])
        figures.log_axis(axis, "y")
        FigureCanvasAgg(figure).draw()
        bottom, top = axis.get_ylim()
        shown = zip(axis.get_yticks(), axis.get_yticklabels(), strict=True)
        assert [label.get_text() for place, label in shown if bottom <= place <= top] == ticks


def test_cold_and_replayed_are_told_apart_where_there_are_both() -> None:
    both = samples.content()
    cold = tuple(one for one in both.measurements if one.condition == "cold")
    found = []
    for measured in (both.measurements, cold):
        with style.drawing():
            figure = figures.ttft(msgspec.structs.replace(both, measurements=measured))
        assert figure is not None
        found.append([text.get_text() for text in figure.legends[0].get_texts()])
    assert found == [
        ["mtp4", "mtp2", "target-only", "cold and salted", "replay"],
        ["mtp4", "mtp2", "target-only"],
    ]


def test_a_legend_has_as_many_columns_as_fit_and_names_keep_their_ends() -> None:
    assert style.named("mtp4") == "mtp4"
    long = style.named("20261129T100000Z-demo-simulated:mtp4")
    assert len(long) <= style.NAME and long.startswith("20261129T…") and long.endswith(":mtp4")
    with style.drawing():
        for labels, columns in ((["mtp4"] * 5, 5), (["x" * 28] * 3, 2), (["x" * 200] * 2, 1)):
            figure, _ = style.new_figure()
            style.legend(figure, [Line2D([], [], label=label) for label in labels])
            assert figure.legends[0]._ncols == columns  # type: ignore[attr-defined]


def test_beyond_the_palette_markers_tell_routes_of_equal_colour_apart() -> None:
    names = [f"r{place}" for place in range(20)]
    found = style.looks(names)
    assert found["r0"].color == found["r8"].color
    assert len({(one.color, one.marker) for one in found.values()}) == len(names)


def test_of_many_crossovers_those_are_marked_that_change_the_fastest_route() -> None:
    # three routes that meet in the order in which they are fastest, and others far above them
    cells = [
        Crossover(
            route=route, base=base, tier=6_316, condition="cold", status="crosses", wins="above",
            output_tokens=place, samples=(2, 2),
        )
        for route, base, place in (
            ("mtp2", "target-only", 100.0), ("mtp4", "mtp2", 300.0), ("mtp4", "target-only", 170.0),
            ("a", "target-only", 400.0), ("a", "mtp2", 900.0), ("a", "mtp4", 950.0),
        )
    ]  # fmt: skip
    always = [
        msgspec.structs.replace(one, status="always", wins=None, output_tokens=None, route=route, base="a")
        for one, route in zip(cells, ("mtp2", "mtp4"), strict=False)
    ]
    few = [one for one in cells if "a" not in {one.route, one.base}]
    assert marks(few) == ["100", "170", "300"]
    assert marks([*few, *cells[3:4], *always, *few[2:]]) == ["100", "300"]


def marks(found: list[Crossover]) -> list[str]:
    """The output lengths written into the panel of the shortest tier."""
    content = samples.content(crossovers=tuple(found))
    with style.drawing():
        figure = figures.total_latency(content)
        assert figure is not None
        return sorted(text.get_text() for text in figure.axes[0].texts)


@pytest.mark.parametrize(("samples_taken", "marker"), [(1, "o"), (3, "o"), (60, "None")])
def test_a_lone_sample_of_the_kv_cache_is_seen(samples_taken: int, marker: str) -> None:
    content = samples.content(samples.measurements()[:1])
    (one,) = content.measurements
    detail = Detail(
        source=one.source, trial_id=one.trial_id, attempt=one.attempt, route=one.route, started_at="",
        status=200, first_text_s=1.0, last_text_s=9.0, uploaded_s=None, headers_s=None, ended_s=9.0,
        connect_s=None, idle_wait_s=None, settle_s=None, curve_s=(1.0, 9.0), curve_count=(1, 64),
        curve_unit="tokens",
        sample_s=tuple(float(at) / 8 for at in range(samples_taken)), kv_usage=(0.25,) * samples_taken,
        said="", prompt="",
    )  # fmt: skip
    figure = figures_time.timeline(msgspec.structs.replace(content, details=(detail,)))
    assert figure is not None
    (line,) = figure.axes[1].lines
    assert line.get_marker() == marker and np.size(line.get_xdata()) == samples_taken


def test_a_crossover_line_is_cut_where_its_pair_of_winners_does_not_meet() -> None:
    prompts = np.array([100.0, 200.0, 300.0, 400.0])
    nothing = np.zeros((4, 1))
    one = WinnerMap(
        prompts=prompts,
        outputs=np.array([1.0]),
        routes=("a", "b"),
        reused_share=0.0,
        latency_s=np.zeros((2, 4, 1)),
        winner=nothing.astype(np.intp),
        margin=nothing,
        certain=nothing.astype(np.bool_),
        beyond=nothing.astype(np.bool_),
        boundary=(
            (100.0, 5.0, "a", "b"),
            (200.0, 6.0, "a", "b"),
            (200.0, 9.0, "b", "a"),
            (400.0, 7.0, "a", "b"),
        ),
        measured=(),
    )
    lines = list(figures_winner.stretches(one))
    assert lines == [[(100.0, 5.0), (200.0, 6.0)], [(400.0, 7.0)], [(200.0, 9.0)]]
