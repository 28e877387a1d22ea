"""Plots of a watch: what a first token cost by what was computed for it, and how the day went."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, date2num
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from msgspec import Struct

from bench.analysis.watch.described import Watched
from bench.analysis.watch.journal import Seen
from bench.report import style
from bench.report.figures import MANY_POINTS, dots, few_ticks, log_axis
from bench.report.plot import Plot
from bench.report.watch.content import WatchContent


class Share(Struct, frozen=True, kw_only=True):
    """Requests of which about so much was reused, and how they are drawn."""

    label: str
    color: str
    marker: str
    holds: Callable[[float | None], bool]


SHARES = (
    Share(
        label="under 10% reused",
        color=style.PALETTE[0],
        marker="o",
        holds=lambda share: share is not None and share < 0.1,
    ),
    Share(
        label="10% to 90% reused",
        color=style.PALETTE[4],
        marker="s",
        holds=lambda share: share is not None and 0.1 <= share < 0.9,
    ),
    Share(
        label="90% or more",
        color=style.PALETTE[2],
        marker="^",
        holds=lambda share: share is not None and share >= 0.9,
    ),
    Share(label="reuse unknown", color=style.PALETTE[6], marker="D", holds=lambda share: share is None),
)
_TROUBLE = style.PALETTE[1]
_RESTART = style.PALETTE[3]
_POINT = 4.5

Draw = Callable[[WatchContent], Figure | None]
Point = tuple[float, float]


def first_token(content: WatchContent) -> Figure | None:
    """TTFT over the prompt tokens that were computed, of the requests alone."""
    field, name = _start(content)
    points = [
        (_computed(one), getattr(one, field), one.prefix_reuse)
        for one in (seen.watched for seen in content.alone)
        if _computed(one) and getattr(one, field)
    ]
    if not points:
        return None
    figure, (axis,) = style.new_figure()
    drawn = _by_share(axis, points)
    log_axis(axis, "x")
    log_axis(axis, "y")
    axis.set_xlabel("prompt tokens computed (not reused)")
    axis.set_ylabel(name)
    axis.set_title("Start of an answer by what was computed for it")
    style.legend(figure, [_handle(share) for share in drawn])
    return figure


def decode(content: WatchContent) -> Figure | None:
    """Decode rate over the prompt's length, of the requests alone."""
    points = [
        (one.prompt_tokens, one.decode_tok_s, one.prefix_reuse)
        for one in (seen.watched for seen in content.alone)
        if one.prompt_tokens and one.decode_tok_s
    ]
    if not points:
        return None
    figure, (axis,) = style.new_figure()
    drawn = _by_share(axis, points)
    log_axis(axis, "x")
    axis.set_ylim(bottom=0)
    few_ticks(axis, "y")
    axis.set_xlabel("prompt tokens")
    axis.set_ylabel("decode (tok/s)")
    axis.set_title("Decode rate over context")
    style.legend(figure, [_handle(share) for share in drawn])
    return figure


def day(content: WatchContent) -> Figure | None:
    """TTFT and decode rate over the time of day; windows of several, errors and restarts are marked."""
    if not any(_at(one) for one in content.seen):
        return None
    field, name = _start(content)
    with_times = [one for one in content.seen if _at(one)]
    figure = Figure(figsize=(style.SIZE[0], 1.4 * style.SIZE[1]), dpi=style.DPI, layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True)
    drawn: dict[str, Any] = {}
    for axis, key, label in ((upper, field, name), (lower, "decode_tok_s", "decode (tok/s)")):
        _over_time(axis, with_times, key, drawn)
        drawn |= _marked(axis, with_times)
        axis.set_ylabel(label)
    if upper.lines:
        log_axis(upper, "y")
    lower.set_ylim(bottom=0)
    few_ticks(lower, "y", 5)
    locator = AutoDateLocator(minticks=3, maxticks=6, tz=UTC)  # type: ignore[no-untyped-call]
    lower.xaxis.set_major_locator(locator)
    lower.xaxis.set_major_formatter(ConciseDateFormatter(locator, tz=UTC))  # type: ignore[no-untyped-call]
    lower.set_xlabel("time (UTC) at which a request ended")
    upper.set_title("As the time went on")
    lower.set_xlim(*_limits(content))
    order = [share.label for share in SHARES]
    keys = sorted(drawn, key=lambda key: order.index(key) if key in order else len(order))
    style.legend(figure, [drawn[key] for key in keys])
    return figure


FIGURES: dict[str, tuple[str, str, Draw]] = {
    "first_token": (
        "Start of an answer by what was computed for it",
        "Requests alone, as the server tells it. Colour: how much of the prompt came from the prefix cache. "
        "On one line lies what costs the same per computed token.",
        first_token,
    ),
    "decode": (
        "Decode rate over prompt length",
        "Requests alone, as the server tells it.",
        decode,
    ),
    "day": (
        "As the time went on",
        "Requests alone by colour of their reuse; rings: means of windows with several requests. Grey: time "
        "of such windows. Cross: errors; dashed line: restart.",
        day,
    ),
}


def draw(content: WatchContent) -> list[Plot]:
    """All plots that the watch carries."""
    found = []
    with style.drawing():
        for name, (title, caption, function) in FIGURES.items():
            figure = function(content)
            if figure is not None:
                style.settle(figure)
                png, svg = style.png(figure), style.svg(figure)
                found.append(Plot(name=name, title=title, caption=caption, png=png, svg=svg))
    return found


# --- the small parts --------------------------------------------------------------------------------


def _start(content: WatchContent) -> tuple[str, str]:
    """Field and name of what tells of a request's start: its TTFT, else its prefill alone."""
    if any(one.watched.server_ttft_s for one in content.seen):
        return "server_ttft_s", "server TTFT (s)"
    return "prefill_s", "prefill, at least (s)"


def _computed(one: Watched) -> int | None:
    if one.prompt_tokens is None or one.cached_tokens is None:
        return None
    return one.prompt_tokens - one.cached_tokens


def _by_share(axis: Axes, points: Sequence[tuple[float | None, float, float | None]]) -> list[Share]:
    """The points by how much was reused; the shares that there are."""
    drawn = []
    for share in SHARES:
        own = [(x, y) for x, y, reuse in points if x is not None and share.holds(reuse)]
        if own:
            dots(axis, own, share.color, share.marker, markersize=_POINT, alpha=0.6)
            drawn.append(share)
    return drawn


def _handle(share: Share) -> Line2D:
    return Line2D([], [], color=share.color, marker=share.marker, linestyle="", label=share.label)


def _over_time(axis: Axes, seen: Iterable[Seen], field: str, drawn: dict[str, Any]) -> None:
    """One number of requests alone by their reuse, and its means over windows as rings."""
    rings: list[Point] = []
    points = []
    for one in seen:
        value, at = getattr(one.watched, field), _at(one)
        if not value or at is None:
            continue
        if one.watched.kind == "request":
            points.append((at, value, one.watched.prefix_reuse))
        elif one.watched.kind == "window":
            rings.append((at, value))
    dots(axis, rings, style.NOTE, "o", markersize=_POINT, markerfacecolor="none", alpha=0.5)
    if rings:
        drawn["ring"] = Line2D(
            [],
            [],
            color=style.NOTE,
            marker="o",
            markerfacecolor="none",
            linestyle="",
            label="mean of several",
        )
    for share in _by_share(axis, points):
        drawn[share.label] = _handle(share)


def _marked(axis: Axes, seen: Sequence[Seen]) -> dict[str, Any]:
    """Windows of several, errors and restarts, over the whole height; their entries of the legend."""
    handles: dict[str, Any] = {}
    spans = [_span(one) for one in seen if one.watched.kind == "window"]
    if spans:
        axis.broken_barh(
            spans,
            (0, 1),
            transform=axis.get_xaxis_transform(),
            facecolor=style.FAINT,
            alpha=0.5,
            linewidth=0,
            zorder=0,
            rasterized=len(spans) > MANY_POINTS,
        )
        handles["window"] = Patch(facecolor=style.FAINT, label="several at once")
    failed = [(_at(one) or 0.0, 0.03) for one in seen if one.watched.failed]
    dots(axis, failed, _TROUBLE, "x", transform=axis.get_xaxis_transform(), markersize=6, clip_on=False)
    if failed:
        handles["failed"] = Line2D([], [], color=_TROUBLE, marker="x", linestyle="", label="errors")
    restarts = [_at(one) or 0.0 for one in seen if one.watched.kind == "restart"]
    if restarts:
        line: dict[str, Any] = {"color": _RESTART, "linestyle": (0, (4, 2)), "linewidth": 1.3}
        axis.vlines(restarts, 0, 1, transform=axis.get_xaxis_transform(), **line)
        handles["restart"] = Line2D([], [], label="restart", **line)
    return handles


def _when(text: str) -> datetime | None:
    """A wall-clock time of the journal; `None` for what is none."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def _at(one: Seen) -> float | None:
    """Its end as matplotlib counts days."""
    at = _when(one.at)
    return None if at is None else float(date2num(at))  # type: ignore[no-untyped-call]


def _limits(content: WatchContent) -> tuple[float, float]:
    """The whole time that was watched, in which nothing may have happened, with some room."""
    times = [at for at in map(_at, content.seen) if at is not None]
    begun = _when(content.info.created_at)
    low = min(times) if begun is None else float(date2num(begun))  # type: ignore[no-untyped-call]
    high = max(*times, low + content.ended.watched_s / 86_400)
    room = 0.01 * (high - low) or 1 / 86_400
    return low - room, high + room


def _span(one: Seen) -> tuple[float, float]:
    """Its begin and how long it took, in days."""
    days = one.watched.span_s / 86_400
    return (_at(one) or 0.0) - days, days
