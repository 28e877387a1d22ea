"""The ring of a crossover stands where what is drawn crosses: on the arrival curves it was read off."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import report_samples as samples
from matplotlib.axes import Axes
from msgspec import structs

from bench.analysis.statistics.curves import Arrival, curve_key
from bench.records import Measurement
from bench.report import figures, style
from bench.report.content import Content, assemble
from bench.report.plots import of_task

TIER = 6_316
# Seconds for 1, 51 and 101 tokens. Straight lines meet at 1 + 1 / 0.015 = 67.7 tokens, the curves where
# 2.0 + 0.02 x is 2.05 + 0.009 x behind 51 tokens: at 51 + 50 / 11 = 55.5, after 2.091 s.
SECONDS = {"target-only": (1.0, 2.0, 3.0), "mtp4": (2.0, 2.05, 2.5)}
MET, AFTER = 51 + 50 / 11, 2.0 + 1 / 11


def trials(**changes: Any) -> list[Measurement]:
    """Two cold prompts a route that do what `SECONDS` says."""
    return [
        samples.measurement(
            route,
            TIER,
            "cold",
            repeat,
            order,
            **{
                "ttft_s": times[0],
                "total_s": times[-1],
                "tpot_s": (times[-1] - times[0]) / 100,
                "decode_tok_s": 100 / (times[-1] - times[0]),
                "output_tokens": 101,
                "first_chunk_tokens": 1,
                "text_key": f"text {repeat}",
                **changes,
            },
        )
        for order, (route, times) in enumerate(SECONDS.items())
        for repeat in (1, 2)
    ]


def curves_of(found: list[Measurement], end: int = 3) -> dict[tuple[str, str, int], Arrival]:
    tokens = np.array([1.0, 51.0, 101.0])
    return {curve_key(one): (tokens[:end], np.array(SECONDS[one.route])[:end]) for one in found}


def study(curved: bool = True) -> Content:
    found = trials()
    runs = samples.content().runs
    return assemble(runs=runs, measurements=tuple(found), curves=curves_of(found) if curved else None)


def panel(content: Content) -> Axes:
    with style.drawing():
        figure = figures.total_latency(content)
    assert figure is not None
    return figure.axes[0]


def ring(axis: Axes) -> tuple[float, float]:
    (found,) = [line for line in axis.lines if line.get_markerfacecolor() == "none"]
    (place,), (height,) = np.asarray(found.get_xdata()), np.asarray(found.get_ydata())
    return float(place), float(height)


def solid(axis: Axes) -> list[tuple[Any, Any]]:
    """What is drawn as measured, a route each."""
    kept = [line for line in axis.lines if line.get_linestyle() == "-" and line.get_marker() == "None"]
    return [(np.asarray(line.get_xdata()), np.asarray(line.get_ydata())) for line in kept]


def test_the_ring_of_a_crossover_by_curve_stands_on_both_curves() -> None:
    content = study()
    (one,) = content.crossovers
    assert one.basis == "curve" and one.output_tokens == pytest.approx(MET)
    axis = panel(content)
    place, height = ring(axis)
    assert (place, height) == pytest.approx((MET, AFTER), abs=1e-3)
    assert len(solid(axis)) == 2
    for xs, ys in solid(axis):
        assert np.interp(place, xs, ys) == pytest.approx(height, abs=1e-3)
    assert [text.get_text() for text in axis.texts] == ["55.5"]


def test_without_curves_ring_and_lines_agree_too() -> None:
    content = study(curved=False)
    assert content.middles == ()
    axis = panel(content)
    place, height = ring(axis)
    assert place == pytest.approx(1 + 1 / 0.015)
    for xs, ys in solid(axis):
        assert np.interp(place, xs, ys) == pytest.approx(height)


def test_a_crossover_by_lines_among_curves_says_so() -> None:
    content = study()
    (one,) = content.crossovers
    straight = structs.replace(one, basis="line", output_tokens=1 + 1 / 0.015)
    axis = panel(structs.replace(content, crossovers=(one, straight)))
    assert [text.get_text() for text in axis.texts] == ["55.5", "67.7 by lines"]


def test_behind_the_end_of_the_shortest_stream_a_curve_goes_on_dashed() -> None:
    found = trials()
    curves = {**curves_of(found), curve_key(found[0]): (np.array([1.0, 61.0]), np.array([1.0, 2.2]))}
    content = assemble(runs=samples.content().runs, measurements=tuple(found), curves=curves)
    ends = {one.route: one.tokens[-1] for one in content.middles}
    assert ends == {"target-only": 61.0, "mtp4": 101.0}
    dashed = [np.asarray(one.get_xdata()) for one in panel(content).lines if one.get_linestyle() == "--"]
    assert sorted(xs[0] for xs in dashed) == [61.0, 101.0]


def test_a_route_with_a_trial_that_has_no_curve_keeps_its_line() -> None:
    found = trials()
    curves = {key: curve for key, curve in curves_of(found).items() if key != curve_key(found[0])}
    content = assemble(runs=samples.content().runs, measurements=tuple(found), curves=curves)
    assert content.middles == () and {one.basis for one in content.crossovers} == {"line"}


def test_curves_of_several_tasks_are_not_mixed() -> None:
    first, second = trials(), trials(task="needle")
    second = [structs.replace(one, trial_id=f"{one.trial_id}~needle") for one in second]
    content = assemble(
        runs=samples.content().runs,
        measurements=(*first, *second),
        curves=curves_of([*first, *second]),
    )
    assert len(content.middles) == 4 and len(of_task(content, "needle").middles) == 2
    assert all(xs.size == 2 for xs, _ in solid(panel(content)))
    assert all(xs.size > 2 for xs, _ in solid(panel(of_task(content, "needle"))))
