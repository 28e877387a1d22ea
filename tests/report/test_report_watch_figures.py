"""Plots of a watch: where the points lie, and what is marked."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.dates import num2date
from matplotlib.figure import Figure
from msgspec import structs
from test_report_watch import HOSTILE, SEEN, alone, make_watch

from bench.analysis.watch.journal import Seen
from bench.report import style
from bench.report.figures import MANY_POINTS
from bench.report.watch import figures, render
from bench.report.watch.content import WatchContent, collect_watch
from bench.report.watch.figures import SHARES, day, decode, draw, first_token
from bench.report.write import write_report


def changed(one: Seen, **fields: Any) -> Seen:
    return structs.replace(one, watched=structs.replace(one.watched, **fields))


@pytest.fixture
def content(tmp_path: Path) -> WatchContent:
    return collect_watch(make_watch(tmp_path / "w", *SEEN))


def drawn(function: Callable[[WatchContent], Figure | None], content: WatchContent) -> Figure:
    with style.drawing():
        figure = function(content)
    assert figure is not None
    return figure


def points(axis: Axes, color: str) -> list[tuple[float, float]]:
    """The single points of one colour."""
    lines = [one for one in axis.lines if one.get_color() == color and one.get_linestyle() == "None"]
    pairs = [np.column_stack([np.asarray(part, dtype=float) for part in one.get_data()]) for one in lines]
    return [(float(x), float(y)) for pair in pairs for x, y in pair]


def clock(days: Any) -> str:
    return f"{num2date(days):%H:%M:%S}"  # type: ignore[no-untyped-call]


COLD, PARTLY, MOSTLY, UNKNOWN = (share.color for share in SHARES)


def test_a_first_token_lies_at_what_was_computed_and_shows_what_was_reused(content: WatchContent) -> None:
    (axis,) = drawn(first_token, content).axes
    assert points(axis, COLD) == [(1_000, 4.0), (2_000, 8.0)]
    assert points(axis, MOSTLY) == [(40, 0.25)]  # 1,000 tokens, 960 of them reused
    assert axis.get_ylabel() == "server TTFT (s)"


@pytest.mark.parametrize(
    ("share", "color"),
    [
        (0.0, COLD),
        (0.099, COLD),
        (0.1, PARTLY),
        (0.899, PARTLY),
        (0.9, MOSTLY),
        (1.0, MOSTLY),
        (None, UNKNOWN),
    ],
)
def test_every_share_has_one_look(share: float | None, color: str) -> None:
    assert [one.color for one in SHARES if one.holds(share)] == [color]


def test_without_any_ttft_the_prefill_is_drawn_and_called_so(tmp_path: Path) -> None:
    seen = changed(alone(10, 1_000, 0, 4.0), server_ttft_s=None, prefill_s=3.5)
    (axis,) = drawn(first_token, collect_watch(make_watch(tmp_path / "w", seen))).axes
    assert points(axis, COLD) == [(1_000, 3.5)]
    assert axis.get_ylabel() == "prefill, at least (s)"


def test_the_decode_rate_lies_over_the_prompt(content: WatchContent) -> None:
    (axis,) = drawn(decode, content).axes
    assert points(axis, COLD) == [(1_000, 50.0), (2_000, 50.0)]
    assert axis.get_ylim()[0] == 0


def test_the_day_shows_requests_windows_errors_and_restarts_at_their_time(content: WatchContent) -> None:
    upper, lower = drawn(day, content).axes
    times = [(clock(x), y) for x, y in points(upper, COLD)]
    assert times == [("10:00:10", 4.0), ("10:00:50", 8.0)]
    rings = [(clock(x), y) for x, y in points(upper, style.NOTE)]
    assert rings == [("10:00:30", 1.5), ("10:00:35", 1.5)]
    for axis in (upper, lower):
        errors = [clock(x) for x, _ in points(axis, style.PALETTE[1])]
        assert errors == ["10:00:30", "10:00:35"]
        spans, restarts = axis.collections
        begun = [clock(np.asarray(path.vertices)[:, 0].min()) for path in spans.get_paths()]
        assert begun == ["10:00:21", "10:00:26"]  # nine seconds long
        (restart,) = restarts.get_paths()
        assert clock(np.asarray(restart.vertices)[0, 0]) == "10:00:40"
    assert [clock(x) for x in lower.get_xlim()] == ["09:59:59", "10:01:00"]  # the whole minute, some room


def test_what_is_not_there_is_not_in_the_legend(tmp_path: Path) -> None:
    figure = drawn(day, collect_watch(make_watch(tmp_path / "w", alone(10, 1_000, 0, 4.0))))
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["under 10% reused"]


def test_a_watch_that_saw_nothing_and_times_that_are_none_give_no_plots(tmp_path: Path) -> None:
    assert draw(collect_watch(make_watch(tmp_path / "nothing"))) == []
    odd = structs.replace(alone(10, 1_000, 0, 4.0), at=HOSTILE)
    assert [plot.name for plot in draw(collect_watch(make_watch(tmp_path / "odd", odd)))] == [
        "first_token",
        "decode",
    ]


def test_plots_stand_in_page_and_text_and_can_be_left_out(tmp_path: Path) -> None:
    path = make_watch(tmp_path / "w", *SEEN)
    written = [one.name for one in write_report(path, plots=False)]
    assert written == ["report.md", "watched.csv", "summary.json", "report.html"]
    assert "<figure>" not in (path / "report.html").read_text("utf-8")
    content = collect_watch(path)
    pictures = draw(content)
    page, text = render.html(content, pictures), render.markdown(content, pictures)
    assert page.count("<figure>") == 3 == len(figures.FIGURES)
    assert "![Decode rate over prompt length](plots/decode.png)" in text


def test_many_requests_are_drawn_as_pixels(tmp_path: Path) -> None:
    seen = [alone(n % 60, 1_000 + n, 0, 4.0) for n in range(MANY_POINTS + 1)]
    content = collect_watch(make_watch(tmp_path / "w", *seen))
    with style.drawing():
        assert "<image" in style.svg(drawn(decode, content))
