"""A quantity has one value: the medians of plots are those of the tables, over prompt texts."""

from __future__ import annotations

import numpy as np
import pytest
import report_samples as samples
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from msgspec import structs

from bench.report import figures, figures_more, words
from bench.report.content import Content, assemble
from bench.report.plots import draw

ROUTE, TIER = "mtp4", 6_316
TTFTS = {"one": (1.0, 1.0, 1.0), "two": (2.0,), "three": (4.0,)}
"""Seconds of each text's trials: the median of the texts is 2 s, that of the trials 1 s."""


def study(condition: str = "cold") -> Content:
    """One route at two tiers: a text that was sent three times, and two that were sent once."""
    found = [
        samples.measurement(
            ROUTE,
            tier,
            condition,
            1,
            order,
            trial_id=f"{text}/{tier}/{place}",
            text_key=text,
            ttft_s=seconds * (10 if tier > TIER else 1),
            decode_tok_s=10 / seconds,
            tpot_s=seconds / 10,
            first_chunk_tokens=3,
            cached_tokens=round(100 * seconds),
        )
        for tier in samples.TIERS
        for order, (text, place, seconds) in enumerate(
            (text, place, seconds) for text, own in TTFTS.items() for place, seconds in enumerate(own)
        )
    ]
    return assemble(runs=samples.content().runs, measurements=tuple(found))


def points(line: Line2D) -> list[tuple[float, float]]:
    xs, ys = (np.asarray(side, dtype=float).tolist() for side in line.get_data())
    return list(zip(xs, ys, strict=True))


def joined(axis: Axes) -> dict[int, float]:
    """Tier -> height of the line that joins the medians."""
    (line,) = [one for one in axis.lines if one.get_linestyle() != "None" and len(points(one)) == 2]
    return {int(x): y for x, y in points(line)}


def in_table(content: Content, quantity: str) -> dict[int, float]:
    return {cell.summary.tier: cell.summary.estimates[quantity].value for cell in content.cells}


def drawn(figure: Figure | None) -> Figure:
    assert figure is not None
    return figure


@pytest.mark.parametrize("condition", ["cold", "replay"])
def test_ttft_and_decode_rate_are_drawn_as_the_table_has_them(condition: str) -> None:
    content = study(condition)
    assert in_table(content, "ttft_s") == {TIER: 2.0, samples.TIERS[1]: 20.0}
    assert joined(drawn(figures.ttft(content)).axes[0]) == in_table(content, "ttft_s")
    assert joined(drawn(figures.decode(content)).axes[0]) == in_table(content, "decode_tok_s")


def test_total_latency_is_that_of_the_medians_in_the_table() -> None:
    content = study()
    (start, begins), (end, ends) = points(drawn(figures.total_latency(content)).axes[0].lines[0])
    assert (start, end) == (3, 512)  # the tokens of the first chunk come with it
    assert begins == pytest.approx(2.0)
    assert ends == pytest.approx(2.0 + (512 - 3) * 0.2)


def test_a_trial_stands_in_the_run_order_beside_the_median_of_its_cell_in_the_table() -> None:
    axis = drawn(figures_more.order(study())).axes[0]
    heights = {y for line in axis.lines for _, y in points(line)}
    assert heights == {0.5, 1.0, 2.0}


def test_a_salted_trial_is_drawn_once_and_a_cold_one_beside_both() -> None:
    content = study()
    salted = samples.measurement(ROUTE, TIER, "salted", 9, 9, text_key="two", ttft_s=2.0, trial_id="s")
    both = assemble(runs=content.runs, measurements=(*content.measurements, salted))
    axis = drawn(figures_more.order(both)).axes[0]
    places = [x for line in axis.lines[:-1] for x, _ in points(line)]
    assert sorted(places) == sorted(
        [*[1.0, 2.0, 3.0, 4.0, 5.0] * 2]
    )  # a lone salted one has no cell to drift in


def test_cached_tokens_of_replays_are_told_as_the_table_has_them() -> None:
    content = study("replay")
    line = words.reuse_lines(content)[0]
    assert "200 of 6,316 tokens cached" in line
    assert in_table(content, "cached_tokens")[TIER] == 200


def test_captions_say_what_the_medians_are_of() -> None:
    def caption(*, replays: int) -> str:
        more = [structs.replace(one, replay=place + 1) for place, one in enumerate(replayed)][:replays]
        return {plot.name: plot.caption for plot in draw(assemble(runs=(), measurements=(*cold, *more)))}[
            "ttft"
        ]

    cold, replayed = study().measurements, study("replay").measurements
    assert "medians of a tier over prompt texts" in caption(replays=0)
    assert "First and later replays together" not in caption(replays=1)
    assert "First and later replays together" in caption(replays=2)
