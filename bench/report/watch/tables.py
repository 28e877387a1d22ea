"""The tables of a watch: its sums, its requests that ran alone, and what could not be split."""

from __future__ import annotations

from collections.abc import Sequence

from bench.analysis.decisions.claims import many
from bench.analysis.watch.described import Watched
from bench.analysis.watch.journal import Seen
from bench.analysis.watch.spread import spreads
from bench.report.escape import visible
from bench.report.quantities import MISSING, write
from bench.report.told import Table, Told
from bench.report.watch.content import WatchContent
from bench.report.watch.lines import GAUGES
from bench.report.watch.numbers import NUMBERS, Number, cell, told

_DAY = 10  # characters of the date in an ISO 8601 time

AT = "Wall clock of this client when its end was seen, UTC."
PROOF = "What shows that no other request was served meanwhile; docs/watch.md has the rules."
WHY = "What the counters and gauges show between two quiet pages; docs/watch.md has the rules."
SPAN = "From the last quiet page before to the first quiet page after. Witness: client clock."
REQUESTS = "Requests that finished meanwhile. Witness: the server's counters."
ALONE_NOTE = (
    "Requests that the pages prove to have been alone. All numbers are the server's own account, since "
    "no client of ours took part. A dash: see Missing numbers."
)
WINDOWS_NOTE = (
    "Sums are exact; times and rates are means over the requests of a window. A window of several is "
    "never divided up."
)
_SUMS = {
    "prompt_tokens": "prompt tokens",
    "cached_tokens": "reused tokens",
    "output_tokens": "output tokens",
    "draft_tokens": "drafted tokens",
    "accepted_tokens": "accepted tokens",
    "failed": "failed requests",
    "aborted": "aborted requests",
    "preemptions": "preemptions",
}
SPREAD_NOTE = (
    "Over the requests that ran alone: nine in ten lie at or below p90; of the decode rate, nine in "
    "ten decode at least as fast."
)

MACHINE_NOTE = (
    "Over the looks from the quiet page before a request or window to the one after it. Utilisation and "
    "memory activity are the average of all GPUs, memory, power and load their sum. An exporter's numbers "
    "are as old as its own interval."
)


def totals_table(content: WatchContent) -> Table:
    """What all of it came to."""
    rows = tuple((name, Told(text, source)) for name, text, source in [*_counted(content), *_summed(content)])
    note = "Sums over all that was watched, whether it could be split or not. Witness: the server's counters."
    return Table(title="Totals", head=("", "seen"), rows=rows, note=note)


def spread_table(content: WatchContent) -> Table | None:
    """How the numbers of the requests alone spread; `None` where there were none."""
    found = spreads(one.watched for one in content.alone)
    rows = []
    for number in NUMBERS:
        one = found.get(number.key)
        if one is not None:
            source = f"{number.definition} Over {many(one.samples, 'request')}."
            points = (Told(write(value, number.style), source) for value in (one.p50, one.p90, one.p99))
            rows.append((number.head, *points, Told(f"{one.samples:,}", source)))
    head = ("", "median", "p90", "p99", "requests")
    title = "How requests alone spread"
    right = (1, 2, 3, 4)
    return Table(title=title, head=head, rows=tuple(rows), note=SPREAD_NOTE, right=right) if rows else None


def machine_table(content: WatchContent) -> Table | None:
    """What GPUs and host did meanwhile; `None` where no machine was looked at."""
    rows = []
    for kind, use in content.machine:
        head, unit, factor, form = GAUGES[use.gauge]
        source = f"{many(use.looks, 'look')}, {many(use.devices, 'device')}. "
        source += "Witness: exporters, or NVML on this machine."
        seen = (Told(f"{value * factor:{form}}{unit}", source) for value in (use.mean, use.peak))
        during = "requests alone" if kind == "request" else "windows"
        rows.append((head, during, *seen, Told(f"{use.looks:,}", source)))
    if not rows:
        return None
    head_row = ("", "during", "mean", "peak", "looks")
    return Table(title="Machine", head=head_row, rows=tuple(rows), note=MACHINE_NOTE, right=(2, 3, 4))


def alone_table(content: WatchContent, most: int) -> Table | None:
    """The first `most` requests that ran alone, with all their numbers; `None` where none did."""
    shown = content.alone[:most]
    if not shown:
        return None
    # How many were at once is known: one.
    numbers = [number for number in told(one.watched for one in shown) if number.key != "in_flight_peak"]
    rows = tuple(
        (_clock(one, content), *_cells(one.watched, numbers), Told(visible(one.watched.proof, 200), PROOF))
        for one in shown
    )
    return Table(
        title="Requests alone",
        head=("ended", *(number.head for number in numbers), "how it is known"),
        rows=rows,
        note=ALONE_NOTE + _more(len(content.alone), most),
        right=tuple(range(1, len(numbers) + 1)),
    )


def windows_table(content: WatchContent, most: int) -> Table | None:
    """The first `most` windows that could not be split, with why; `None` where there were none."""
    shown = content.windows[:most]
    if not shown:
        return None
    numbers = told(one.watched for one in shown)
    rows = tuple(
        (
            _clock(one, content),
            Told(visible(one.watched.why, 300), WHY),
            Told(f"{one.watched.span_s:.1f}", SPAN),
            _requests(one.watched),
            *_cells(one.watched, numbers),
        )
        for one in shown
    )
    return Table(
        title="Windows that could not be split",
        head=("ended", "why", "span (s)", "requests", *(number.head for number in numbers)),
        rows=rows,
        note=WINDOWS_NOTE + _more(len(content.windows), most),
        right=tuple(range(2, len(numbers) + 4)),
    )


def _counted(content: WatchContent) -> list[tuple[str, str, str]]:
    """Name, text and source of what was counted by watching itself."""
    totals, ended = content.totals, content.ended
    least = "" if ended.whole else "at least "
    more = " or more" if totals.uncounted_windows else ""
    windows = "How often; docs/watch.md says when a request stands alone."
    rows = [("watched", f"{least}{ended.watched_s:,.0f} s", "Witness: client clock.")]
    if ended.pages is not None:
        missed = f", {ended.missed:,} without a page" if ended.missed else ""
        rows.append(("looks", f"{ended.pages:,}{missed}", "Readings of the metrics page by this client."))
    rows += [
        ("requests", f"{totals.requests:,}{more}", REQUESTS),
        ("of them alone", f"{totals.alone:,}", windows),
        ("windows that could not be split", f"{len(content.windows):,}", windows),
        ("restarts", f"{totals.restarts:,}", "Another process start, or counters that fell and stayed down."),
    ]
    return rows


def _summed(content: WatchContent) -> list[tuple[str, str, str]]:
    """Name, text and source of the sums of what the server counts."""
    totals = content.totals
    rows = [(label, *_sum(totals.sums.get(name))) for name, label in _SUMS.items()]
    shares = (
        ("reuse", totals.prefix_reuse, "Reused / prompt tokens, of prompts counted whole."),
        ("acceptance", totals.acceptance, "Accepted / drafted tokens, all together."),
        ("KV peak", totals.spans.get("kv_usage_peak", (0.0, None))[1], "Highest gauge on any page."),
    )
    rows += [
        (name, write(value, "share"), f"{meaning} Witness: the server's own pages.")
        for name, value, meaning in shares
        if value is not None
    ]
    if totals.acceptance_length is not None:
        meaning = "1 + accepted tokens / drafts. Witness: the server's counters."
        rows.append(("acceptance length", write(totals.acceptance_length, "length"), meaning))
    return rows


def _sum(value: float | None) -> tuple[str, str]:
    if value is None:
        return MISSING, "The server counts no such thing, or nothing that was watched had it."
    return f"{value:,.0f}", "Sum over all requests and windows. Witness: the server's counters."


def _cells(one: Watched, numbers: Sequence[Number]) -> list[Told]:
    return [cell(one, number) for number in numbers]


def _requests(one: Watched) -> Told:
    if one.requests is None:
        return Told(MISSING, "The engine does not count requests.")
    return Told(f"{one.requests:,}", REQUESTS)


def _clock(one: Seen, content: WatchContent) -> Told:
    """The time of day, with the date where the watch went past midnight."""
    at = visible(one.at, 40)
    same_day = one.at[:_DAY] == content.seen[0].at[:_DAY] == content.seen[-1].at[:_DAY]
    return Told(at[_DAY + 1 : 19] if same_day else at[:19].replace("T", " "), AT)


def _more(count: int, most: int) -> str:
    return f" {count - most:,} more in watched.csv." if count > most else ""
