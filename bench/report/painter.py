"""Who draws the plots of a report, and what it needs for that where it is another process."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from msgspec import Struct, structs

from bench.report.gaps import GapCounts

if TYPE_CHECKING:
    from bench.report.content import Content


class Plot(Struct, frozen=True, kw_only=True):
    """A plot in both formats."""

    name: str
    """File name without its ending."""
    title: str
    caption: str
    """How to read it, in a sentence."""
    png: bytes
    svg: str


Draw = Callable[["Content"], Iterable[Plot]]
"""Gives the plots of a content, maybe only when they are looked at."""


def draw_here(content: Content) -> list[Plot]:
    """All plots of a content, drawn by this process."""
    from bench.report.plots import draw

    return draw(content)


def content_bytes(content: Content) -> bytes:
    """A content to be drawn elsewhere.

    Raises `UnicodeEncodeError` where something is called by a name that is no text.
    """
    from bench.report.shown import shown_exchange, shown_wave

    alone = shown_exchange(content)
    shown = [*([] if alone is None else [alone]), *shown_wave(content)]
    # of all other exchanges, measurements are drawn
    return msgspec.msgpack.encode(structs.replace(content, details=tuple(shown)), enc_hook=_encoded)


def drawn(content: bytes) -> bytes:
    """The plots of a content, as `plots_of` takes them."""
    from bench.report.content import Content

    plots = draw_here(msgspec.msgpack.decode(content, type=Content, dec_hook=_decoded))
    return msgspec.msgpack.encode(plots)


def plots_of(data: bytes) -> list[Plot]:
    """The plots that were drawn elsewhere. Raises `msgspec.DecodeError` where these are none."""
    return msgspec.msgpack.decode(data, type=list[Plot])


def _encoded(one: Any) -> Any:
    """The part of a content that is no record."""
    if isinstance(one, GapCounts):
        return one.total, one.below.tolist()
    raise NotImplementedError(type(one))


def _decoded(_: type, parts: Any) -> GapCounts:
    total, below = parts
    return GapCounts(total, np.array(below, dtype=np.int64))
