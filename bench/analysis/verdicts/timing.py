"""Client times of one exchange, as DESIGN section 2 defines them. Pure arithmetic on its chunks."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from bench.analysis.verdicts.uncertainty import watched_or_floor_s
from bench.records import Exchange

NS = 1e9


class Times(Struct, frozen=True, kw_only=True):
    """Seconds after `sent`; None with its reason in `absent`."""

    ttft_s: float | None = None
    first_response_s: float | None = None
    total_s: float | None = None
    first_chunk_tokens: int = 1
    text_chunks: int = 0
    decode_tok_s: float | None = None
    tpot_s: float | None = None
    icl_p50_s: float | None = None
    icl_p99_s: float | None = None
    icl_max_s: float | None = None
    hidden_s: float | None = None
    """Uncertainty of a decode time that is no longer than it: there is no rate."""
    unseen_tail: bool = False
    """Tokens without text trailed, so the decode rate ends at the finish chunk."""
    arrivals: int = 0
    """Distinct time stamps of text chunks."""
    absent: dict[str, str] = {}


def times(exchange: Exchange, output_tokens: int | None, served_s: float | None = None) -> Times:
    """All client times of an exchange.

    decode_tok_s = (output_tokens - c0) / (last text chunk - first text chunk), c0 the tokens of the
    first text chunk: what the server said, else 1. None below two text chunks, and (with the gaps between
    chunks) where the span is no longer than it is uncertain: by what this client knows of itself, and by
    what is lacking to `served_s`, the server's own decode time of this request (in a wave, the most that
    it can have been).
    """
    at, text = exchange.chunks.at_ns, exchange.chunks.text
    count = len(text.places)
    if not count:
        return _without_text(exchange)
    last = int(text.places[-1])
    end = _end(exchange, last)
    c0 = 1 if text.tokens is None else max(1, int(text.tokens[0]))
    tail = _unseen_tail(exchange, last, output_tokens)
    span_s = decode_span_s(exchange, output_tokens)
    uncertain_s = max(watched_or_floor_s(exchange.client), (served_s or 0.0) - span_s)
    hidden_s = uncertain_s if count > 1 and 0 < span_s <= uncertain_s else None
    why = _without_rate(count, output_tokens, c0, span_s, hidden_s)
    rate = (output_tokens - c0) / span_s if why is None and output_tokens is not None else None
    absent = {} if why is None else {"decode_tok_s": why, "tpot_s": why}
    if why is not None and (count < 2 or hidden_s is not None):
        absent["icl_p50_s"] = why
    gaps_ns = exchange.chunks.gaps_ns
    told_ns = gaps_ns if hidden_s is None else gaps_ns[:0]
    return Times(
        ttft_s=at[int(text.places[0])] / NS,
        first_response_s=_first_response(exchange),
        total_s=at[end] / NS,
        first_chunk_tokens=c0,
        text_chunks=count,
        decode_tok_s=rate,
        tpot_s=1 / rate if rate else None,
        icl_p50_s=_quantile_s(told_ns, 0.50),
        icl_p99_s=_quantile_s(told_ns, 0.99),
        icl_max_s=_quantile_s(told_ns, 1.0),
        hidden_s=hidden_s,
        unseen_tail=tail,
        arrivals=1 + int(np.count_nonzero(gaps_ns)),
        absent=absent,
    )


def decode_span_s(exchange: Exchange, output_tokens: int | None) -> float:
    """From the first chunk with text to the last, or to the finish chunk where tokens trailed that nobody
    saw; 0 without text."""
    at, places = exchange.chunks.at_ns, exchange.chunks.text.places
    if not len(places):
        return 0.0
    first, last = int(places[0]), int(places[-1])
    end = _end(exchange, last) if _unseen_tail(exchange, last, output_tokens) else last
    return (at[end] - at[first]) / NS


def _without_text(exchange: Exchange) -> Times:
    why = exchange.failure.message if exchange.failure else "no chunk with text"
    missing = dict.fromkeys(("ttft_s", "total_s", "decode_tok_s", "tpot_s", "icl_p50_s"), why)
    return Times(first_response_s=_first_response(exchange), absent=missing)


def _end(exchange: Exchange, last_text: int) -> int:
    """Place of the event that ends the answer: its last text, or the finish reason behind it."""
    chunks = exchange.chunks
    if chunks.finish is None and exchange.finish_reason is not None:
        return len(chunks.at_ns) - 1
    return max(last_text, chunks.finish or 0)


def _without_rate(
    text_chunks: int, output_tokens: int | None, c0: int, span_s: float, hidden_s: float | None
) -> str | None:
    """Why there is no decode rate; `None`: there is one."""
    if text_chunks < 2:
        return "fewer than two text chunks"
    if output_tokens is None:
        return "the number of output tokens is unknown"
    if span_s <= 0 or output_tokens <= c0:
        return "all text arrived at once"
    if hidden_s is not None:
        return f"the decode time, {span_s * 1000:.2f} ms, is known to ±{hidden_s * 1000:.1f} ms only"
    return None


def _quantile_s(ordered_ns: np.ndarray, share: float) -> float | None:
    """As numpy.quantile has it (linear between neighbours), of values that are in order already: its
    own way costs more than all other times of an exchange together."""
    if not len(ordered_ns):
        return None
    place = share * (len(ordered_ns) - 1)
    low = int(place)
    below, part = float(ordered_ns[low]) / NS, place - low
    step = float(ordered_ns[min(low + 1, len(ordered_ns) - 1)]) / NS - below
    return below + step - step * (1 - part) if part >= 0.5 else below + step * part


def _first_response(exchange: Exchange) -> float | None:
    """First event of the stream, be it empty; else its first bytes."""
    if exchange.chunks.at_ns:
        return exchange.chunks.at_ns[0] / NS
    return exchange.read_ns[0] / NS if exchange.read_ns else None


def _unseen_tail(exchange: Exchange, last_text: int, output_tokens: int | None) -> bool:
    """Tokens came after the last text chunk: by the server's count, else by two or more empty events.

    One empty event is the finish event of engines that send it alone.
    """
    chunks = exchange.chunks
    if len(chunks.tokens) == len(chunks.at_ns) and output_tokens is not None:
        return chunks.tokens[last_text] < output_tokens
    finish = len(chunks.at_ns) - 1 if chunks.finish is None else chunks.finish
    return finish - last_text >= 2


def repeats_one_piece(text: str, least: int = 64, longest: int = 24) -> str | None:
    """The piece of at most `longest` characters that fills the second half of a text, at least
    `least` times in a row; None for text that goes on."""
    half = text[len(text) // 2 :]
    for size in range(1, min(longest, len(half) // least) + 1):
        if half[size:] == half[:-size]:
            return half[-size:]
    return None
