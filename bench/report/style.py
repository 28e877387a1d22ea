"""How plots look: one style, and a colour, a marker and a dash for each route, the same everywhere.

The palette is Okabe and Ito's (2008), which people with any common colour vision can tell apart;
markers and dashes say the same again for print. Pages take colours from here without any plot, so matplotlib
is loaded only where something is drawn.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from bench.report.escape import visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f", "#8c564b")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")

INK = "#1f2328"
FAINT = "#d0d7de"
PAPER = "#ffffff"
NOTE = "#59636e"

SIZE = (6.4, 3.7)
"""Inches: a text column; letters stay readable there."""
DPI = 150

HOLLOW: dict[str, Any] = {
    "markerfacecolor": PAPER,
    "marker": "o",
    "linestyle": (0, (2, 1.5)),
    "linewidth": 1.3,
}
"""How what is derived from a line, or a replay of it, is drawn beside it."""

RC: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 9,
    "axes.labelcolor": INK,
    "axes.edgecolor": NOTE,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.titlecolor": INK,
    "text.color": INK,
    "grid.color": FAINT,
    "grid.linewidth": 0.6,
    "xtick.color": NOTE,
    "ytick.color": NOTE,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "legend.handlelength": 2.4,
    "lines.linewidth": 1.8,
    "lines.markersize": 5,
    "figure.facecolor": PAPER,
    "axes.facecolor": PAPER,
    "savefig.facecolor": PAPER,
    "hatch.linewidth": 0.5,
    "svg.fonttype": "none",
    # Element ids are hashes salted with this, not with a random number: the same plot, the same bytes.
    "svg.hashsalt": "ctxbench",
    "path.simplify": True,
    "text.parse_math": False,
}


class Look(Struct, frozen=True, kw_only=True):
    """How one route is drawn."""

    color: str
    marker: str


def looks(routes: Sequence[str]) -> dict[str, Look]:
    """A look for every route, by its place in the suite."""
    return {
        # a second round of colours goes with other markers
        name: Look(color=PALETTE[i % len(PALETTE)], marker=MARKERS[(i + i // len(PALETTE)) % len(MARKERS)])
        for i, name in enumerate(routes)
    }


def new_figure(
    columns: int = 1, size: tuple[float, float] = SIZE, **options: Any
) -> tuple[Figure, list[Axes]]:
    """A figure with a row of axes; call within `drawing()`."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, dpi=DPI, layout="constrained")
    axes = figure.subplots(1, columns, squeeze=False)
    return figure, list(axes[0])


NAME = 28
"""Characters of a route's name in a legend."""
_LEGEND = 96
"""Characters of a row of a legend, one more handle counted as `_HANDLE` of them."""
_HANDLE = 8


def legend(figure: Figure, handles: Sequence[Any], note: str = "") -> None:
    """A legend below the figure, in as many columns as fit its width, under a line on how to read it."""
    widths = [len(handle.get_label()) + _HANDLE for handle in handles]
    columns = len(widths)
    # matplotlib fills column by column
    while columns > 1 and sum(_columns(widths, columns)) > _LEGEND:
        columns -= 1
    figure.legend(
        handles=list(handles),
        loc="outside lower center",
        ncols=max(1, columns),
        title=note or None,
        title_fontsize=8,
    )


def _columns(widths: Sequence[int], columns: int) -> list[int]:
    """The widest entry of each column of a legend."""
    rows, more = divmod(len(widths), columns)
    found, place = [], 0
    for column in range(columns):
        size = rows + (column < more)
        found.append(max(widths[place : place + size], default=0))
        place += size
    return found


def named(route: str) -> str:
    """A route's name for a legend; cut in the middle, since of `source:route` the end tells more."""
    name = visible(route, 200)
    return name if len(name) <= NAME else f"{name[: NAME // 3]}…{name[-(NAME * 2 // 3 - 1) :]}"


def drawing() -> Any:
    """The context in which figures are made and written."""
    from matplotlib import rc_context

    return rc_context(RC)


def settle(figure: Figure) -> None:
    """Fixes the layout, once for both formats. Of a figure that has an engine left, be it the one that
    does nothing, matplotlib draws each format twice."""
    engine = figure.get_layout_engine()
    if engine is not None:
        engine.execute(figure)
        figure.set_layout_engine(None)


def png(figure: Figure) -> bytes:
    """The figure as PNG, without dates or versions in it."""
    out = io.BytesIO()
    # from 4 on, trying harder makes a picture of lines and letters hardly smaller
    figure.savefig(out, format="png", dpi=DPI, metadata={"Software": None}, pil_kwargs={"compress_level": 4})
    return out.getvalue()


def svg(figure: Figure) -> str:
    """The figure as SVG on a white ground, without dates or random ids."""
    out = io.StringIO()
    figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    return out.getvalue()


def inline_svg(text: str, name: str, title: str) -> str:
    """An SVG for the middle of an HTML page: no prologue, ids of its own, colours by CSS variables."""
    body = text[text.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    body = re.sub(r'\bid="', f'id="{name}-', body)
    body = re.sub(r'(xlink:href="#|url\(#)', rf"\g<1>{name}-", body)
    for color, variable in ((INK, "--ink"), (NOTE, "--note"), (FAINT, "--line"), (PAPER, "--paper")):
        body = body.replace(color, f"var({variable})")
    # Text without a fill of its own is black in SVG: give it the ink of the page.
    body = re.sub(r'<svg [^>]*?viewBox="([^"]*)"[^>]*>', _head(name, title), body, count=1, flags=re.DOTALL)
    return body.strip()


def _head(name: str, title: str) -> str:
    return (
        rf'<svg id="{name}" class="plot" viewBox="\1" role="img" aria-label="{title}" '
        r'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" version="1.1">'
    )
