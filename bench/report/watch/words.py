"""What the report of a watch says in sentences."""

from __future__ import annotations

from bench.records import ServerFacts
from bench.report.escape import visible
from bench.report.quantities import MISSING
from bench.report.setting import told_facts
from bench.report.told import Told
from bench.report.watch.content import WatchContent
from bench.report.watch.lines import line, log_head
from bench.report.watch.numbers import NUMBERS, missing, witness

ADDRESS = "As it was given to ctxbench watch; recorded in run.json."
MISSING_SOURCE = "Requests and windows that have no such number, by the reason that the pages give."
VERSION = "The metrics page does not tell it, and a watch asks for nothing else."
NOBODY = "nothing that was watched had it"
LOG = "Lines of the server's log while it was watched, equal ones counted together."
NOTED = "Noted by ctxbench watch itself, with this client's wall clock (UTC); kept in journal.jsonl."
RESTART = "Another process start time, or counters that fell and stayed down; sums up to the restart."
KEPT = "Counted in the directory of the watch."
LOG_LINES = 50
RESTARTS = 100
NOTES = 100
FLAGS = 50
"""Most of each that are shown."""


def state_line(content: WatchContent) -> str:
    """What was seen, in one sentence."""
    totals, ended = content.totals, content.ended
    least = "" if ended.whole else "at least "
    more = " or more" if totals.uncounted_windows else ""
    parts = [
        f"{_number(totals.requests, 'request', more)} in {least}{ended.watched_s:,.0f} s",
        f"{totals.alone:,} of them alone",
        f"{_number(len(content.windows), 'window')} could not be split",
    ]
    if totals.restarts:
        parts.append(_number(totals.restarts, "restart"))
    return Told("; ".join(parts) + ".", KEPT)


def _number(count: int, what: str, more: str = "") -> str:
    return f"{count:,}{more} {what}{'' if count == 1 and not more else 's'}"


def setting_rows(content: WatchContent) -> list[tuple[str, str]]:
    """What the server is, with who says so."""
    route, facts = content.route, content.facts
    rows: list[tuple[str, str]] = [("metrics page", Told(visible(route.metrics_url or "", 200), ADDRESS))]
    rows += told_facts(facts).items()
    if facts.version is None:
        rows.append(("engine version", Told(MISSING, VERSION)))
    if route.insecure:
        rows.append(("TLS", Told("not verified", ADDRESS)))
    return [*rows, *_flags(facts)]


def _flags(facts: ServerFacts) -> list[tuple[str, str]]:
    source = "A flag as the server shows it on its metrics page."
    flags = sorted(facts.flags.items())[:FLAGS]
    return [(visible(name, 60), Told(visible(value, 200), source)) for name, value in flags]


def missing_lines(content: WatchContent) -> list[str]:
    """Which numbers requests and windows do not have, and why."""
    seen = (*content.alone, *content.windows)
    return [Told(text, MISSING_SOURCE) for text in missing(one.watched for one in seen)]


def restart_lines(content: WatchContent) -> list[str]:
    """Every restart with its time."""
    shown = content.restarts[:RESTARTS]
    return [Told(f"{visible(one.at, 40)}: {line(one.watched)}", RESTART) for one in shown]


def trouble_lines(content: WatchContent) -> list[str]:
    """Errors that the server counted, pages that could not be had, complaints of its log."""
    sums = content.totals.sums
    counted = "Sum over all requests and windows. Witness: the server's counters."
    lines: list[str] = [
        Told(f"{sums[name]:,.0f} {what}", counted)
        for name, what in (
            ("failed", "requests ended with an error"),
            ("aborted", "requests were cut off"),
            ("preemptions", "requests were put back because the KV cache was full"),
        )
        if sums.get(name)
    ]
    lines += [
        Told(f"{visible(one.at, 40)}: {visible(one.text, 300)}", NOTED) for one in content.notes[:NOTES]
    ]
    for one in content.log[:LOG_LINES]:
        why = f" ({visible(one.why, 200)})" if one.why else ""
        lines.append(Told(f"{log_head(one)}: {visible(one.text, 300)}{why}", LOG))
    return lines


def boundary_lines(content: WatchContent) -> list[str]:
    """What was seen and, so, what was not."""
    lines = ["Passive: only what others asked of this server is in here, and no client's clock."]
    prompts = [one.watched.prompt_tokens or 0 for one in content.alone]
    if prompts:
        lines.append(f"Longest prompt of a request alone: {max(prompts):,} tokens.")
    if content.windows:
        lines.append("Requests that were not alone are in the sums and in no percentile.")
    if not content.ended.whole:
        lines.append("The watch was killed: its last request or window may be missing.")
    return [Told(text, KEPT) for text in lines]


def definition_rows(content: WatchContent) -> list[tuple[str, str, str]]:
    """Number, definition and witness."""
    watched = [one.watched for one in content.seen]
    return [(one.head, one.definition, witness(watched, one) or NOBODY) for one in NUMBERS]
