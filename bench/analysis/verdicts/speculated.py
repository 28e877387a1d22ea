"""Did the route speculate as it declares, and do its counters add up?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from bench.analysis.verdicts.case import Case
from bench.records import Reason, Speculated

Place = Literal["under", "crosses", "over", "unknown"]

_LOOK_UP = ("ngram", "suffix", "lookup", "prompt")
_NEAR_ZERO = 0.02
"""Acceptance below this, over enough drafts, is that of empty drafts."""
_ENOUGH_DRAFTS = 8
_LEAST_LIMIT = 2048
"""No drafter in use has fewer positions: those of the smallest draft models and EAGLE heads."""
_ERRORS = ("ERROR", "CRITICAL", "FATAL")


class Finding(NamedTuple):
    """State of speculation and the reasons that go with it."""

    state: Speculated
    reasons: tuple[Reason, ...] = ()


def judge_speculation(case: Case) -> Finding:
    """State of speculation of one exchange that succeeded."""
    counted, declared = case.counted, case.declared
    drafted = counted.draft_tokens if counted.draft_tokens is not None else counted.drafts
    if declared is None:
        if drafted:
            detail = f"{drafted:,} tokens drafted"
            return Finding("unknown", (Reason(id="speculation_undeclared", detail=detail),))
        return Finding("none")
    if drafted is None and counted.accepted_tokens is None:
        return Finding("unknown", (Reason(id="speculation_unseen"),))
    differs = _k_differs(case)
    finding = _nothing_drafted(case) if not drafted else _drafted(case)
    return Finding(finding.state, (*differs, *finding.reasons))


def place_of(case: Case) -> Place:
    """Where an exchange lies against the drafter limit, counting its whole output.

    A drafter takes part while sequence + k <= limit. An answer that spends under a tenth of its
    tokens there is over it for every purpose. Of a wave the longest sequence decides: a batch is
    drafted for all of its sequences or for none.
    """
    limit = case.facts.drafter_limit
    prompt, output = _longest(case)
    if limit is None or output is None:
        return "unknown"
    room = limit - case.k - prompt
    if room >= output:
        return "under"
    return "crosses" if room >= 0.1 * output else "over"


def _longest(case: Case) -> tuple[int, int | None]:
    """Prompt and output tokens of the sequence that a drafter's limit is held against."""
    return case.longest or (case.prompt_tokens, case.numbers.output_tokens)


def _nothing_drafted(case: Case) -> Finding:
    place = place_of(case)
    if place == "over":
        return _fallback(case, "no drafts", _limit(case))
    if _looks_up(case):
        return Finding("as declared", (Reason(id="nothing_drafted"),))
    detail = f"0 drafts for {case.numbers.output_tokens} tokens"
    return Finding("off", (Reason(id="speculation_off", detail=detail),))


def _drafted(case: Case) -> Finding:
    accepted = case.counted.accepted_tokens
    drafted = case.counted.draft_tokens or 0
    if accepted is None:
        return Finding("unknown", (Reason(id="speculation_unseen", detail="accepted tokens unknown"),))
    if _looks_up(case):
        return Finding("as declared", () if accepted else (Reason(id="nothing_accepted"),))
    place = place_of(case)
    drafts = case.counted.drafts if case.counted.drafts is not None else drafted // max(1, case.k)
    if drafts >= _ENOUGH_DRAFTS and accepted < _NEAR_ZERO * drafted:
        return _empty_drafts(case, place, drafts)
    if place == "crosses":
        return Finding("crosses", (Reason(id="speculation_crosses", detail=_limit(case)),))
    if place == "over" and accepted:
        detail = f"{accepted:,} of {drafted:,} tokens accepted; {_limit(case)}"
        return Finding("as declared", (Reason(id="drafts_past_limit", detail=detail),))
    if place == "unknown" and (sign := _sign_of_crossing(case)):
        return Finding("crosses", (Reason(id="speculation_crosses", detail=sign),))
    return Finding("as declared", () if accepted else (Reason(id="nothing_accepted"),))


def _empty_drafts(case: Case, place: Place, drafts: int) -> Finding:
    """Drafts that are verified and (almost) never accepted: past the limit, or a drafter out of order.
    Which of them is not said where nobody knows the limit, unless any drafter has room for so little."""
    accepted, drafted = case.counted.accepted_tokens, case.counted.draft_tokens
    seen = f"{drafts:,} drafts, {accepted:,} of {drafted:,} tokens accepted"
    prompt, output = _longest(case)
    fits_any = prompt + (output or 0) + case.k <= _LEAST_LIMIT
    if place == "under" or (place == "unknown" and fits_any):
        if (case.numbers.running_peak or 0) > case.requests:
            return Finding("fallback", (Reason(id="speculation_batch_limit", detail=seen),))
        if accepted:
            detail = f"{seen}, not past a limit: {_limit(case)}"
            return Finding("as declared", (Reason(id="drafts_rejected", detail=detail),))
        return Finding("off", (Reason(id="speculation_off", detail=seen),))
    if place == "crosses" and accepted:
        return Finding("crosses", (Reason(id="speculation_crosses", detail=f"{seen}; {_limit(case)}"),))
    if place == "unknown":
        detail = f"{seen}; drafter limit unknown{_known_past_limit(case)}"
        return Finding("fallback", (Reason(id="drafts_rejected", detail=detail),))
    return _fallback(case, "drafts without acceptance", f"{seen}; {_limit(case)}")


def _known_past_limit(case: Case) -> str:
    """What this engine version does past a limit, to be held against what was seen."""
    known = case.facts.past_drafter_limit
    return f"; past one {_who(case)} is known for: {' or '.join(known)}" if known else ""


def _who(case: Case) -> str:
    return " ".join(part for part in (case.facts.engine, case.facts.version) if part)


def _fallback(case: Case, seen: str, detail: str) -> Finding:
    """What was seen past the limit, beside what this engine version is known to do there."""
    who = _who(case)
    # A limit that was cut at the start leaves no past; there is nothing to compare with then.
    known = [one for one in case.facts.past_drafter_limit if one != "context reduced"]
    if seen in known:
        detail = f"{detail}; {seen}, as {who} does"
    if case.exchange.log is not None and case.exchange.log.problem is None:
        warnings = case.exchange.log.known.get("drafter_limit_skip", 0)
        detail = f"{detail}; {warnings:,} warning{'' if warnings == 1 else 's'} in the log"
    reasons = [Reason(id="speculation_fallback", detail=detail)]
    if known and seen not in known:
        differs = f"{seen}; {who} is known for: {' or '.join(known)}"
        reasons.append(Reason(id="fallback_unlike_version", detail=differs))
    return Finding("fallback", tuple(reasons))


def _sign_of_crossing(case: Case) -> str | None:
    """Signs within one exchange that drafting stopped, where nobody knows the limit."""
    output, counted = case.numbers.output_tokens, case.counted
    if (
        case.dialect.every_step_drafts
        and output is not None
        and counted.drafts is not None
        and counted.accepted_tokens is not None
    ):
        silent = output - case.requests - counted.drafts - counted.accepted_tokens
        if silent > max(8, 0.1 * output):
            return f"{silent:,} of {output:,} tokens came without a draft"
    return _flat_tail(case)


def _flat_tail(case: Case) -> str | None:
    """Drafts go on in the samples while acceptance stands still for longer than chance allows."""
    samples, after = case.exchange.samples, case.exchange.after
    points = [
        (drafts, accepted)
        for drafts, accepted in zip(samples.drafts, samples.accepted_tokens, strict=False)
        if drafts is not None and accepted is not None
    ]
    if after is not None and {"drafts", "accepted_tokens"} <= set(after.values):
        points.append((after.values["drafts"], after.values["accepted_tokens"]))
    if len(points) < 3:
        return None
    last_accepted = points[-1][1]
    turn = next(place for place, point in enumerate(points) if point[1] == last_accepted)
    before, tail = points[turn][0] - points[0][0], points[-1][0] - points[turn][0]
    gained = last_accepted - points[0][1]
    if before < _ENOUGH_DRAFTS or gained <= 0:
        return None
    hit = min(0.95, gained / (max(1, case.k) * before))  # least chance that a draft gets a token through
    if (1 - hit) ** tail > 1e-6:
        return None
    return f"nothing accepted in the last {tail:.0f} of {before + tail:.0f} drafts"


def _k_differs(case: Case) -> tuple[Reason, ...]:
    declared = case.declared.num_speculative_tokens if case.declared else 0
    places = case.counted.per_position or ()
    if places and case.counted.accepted_tokens not in (None, sum(places)):
        return ()  # the page lacks a place: the identities say so
    positions = len(places)
    if case.dialect.positions_show_k:
        seen = positions or case.facts.num_speculative_tokens
    else:
        seen = max(positions, case.facts.num_speculative_tokens or 0)
        if seen <= declared and not case.facts.num_speculative_tokens:
            return ()  # places that were never reached do not show
    if not seen or seen == declared:
        return ()
    return (Reason(id="speculation_differs", detail=f"declared {declared}, seen {seen}"),)


def _looks_up(case: Case) -> bool:
    """Drafters that look text up draft only where it repeats: nothing follows from silence."""
    method = (case.declared.method if case.declared else "").lower()
    return any(word in method for word in _LOOK_UP)


def _limit(case: Case) -> str:
    prompt, output = _longest(case)
    whose = "" if case.requests == 1 else f"the longest of {case.requests}: "
    limit = case.facts.drafter_limit
    least = f"{_LEAST_LIMIT:,}, which any drafter has"
    against = least if limit is None else f"a drafter limit of {limit:,}"
    return f"{whose}prompt {prompt:,} + output {output or 0:,} + k {case.k} against {against}"


# --- The server's log -----------------------------------------------------------------------------


def judge_log(case: Case) -> Iterator[Reason]:
    """Floods and errors that the server wrote during the exchange, where its log was read."""
    log = case.exchange.log
    if log is None:
        return
    if log.problem is not None:
        yield Reason(id="log_unread", detail=log.problem)
    if log.floods:
        yield Reason(id="log_flood", detail=log.floods[0])
    errors = sum(lines for level, lines in log.levels.items() if level in _ERRORS)
    if errors:
        yield Reason(id="log_errors", detail=f"{errors:,} of {log.lines:,} lines; {log.file or ''}")


# --- Identities -----------------------------------------------------------------------------------


def judge_identities(case: Case) -> Iterator[Reason]:
    """accepted = sum over positions; 1 + drafts + accepted <= output + k.

    The excess of up to k is trimmed at the end of the answer. There is no lower bound: steps without
    a draft are allowed. Output is what the same pages say where they do: foreign tokens are the
    business of another judge.
    """
    counted = case.counted
    exact = not any(name.startswith(("drafts", "accepted")) for name in case.deltas.slack)
    if counted.accepted_tokens is not None and counted.per_position is not None and exact:
        total = sum(counted.per_position)
        if total != counted.accepted_tokens:
            detail = f"{total:,} over positions, {counted.accepted_tokens:,} accepted"
            yield Reason(id="positions_differ", detail=detail)
    output = case.numbers.output_tokens
    if not counted.drafts or counted.accepted_tokens is None or output is None or not exact:
        return
    output = max(output, case.deltas.count("generation_tokens") or 0)
    made = case.requests + counted.drafts + counted.accepted_tokens
    k = max(case.k, len(counted.per_position or ()))
    if made > output + k * case.requests:
        detail = (
            f"{case.requests} + {counted.drafts:,} drafts + {counted.accepted_tokens:,} accepted, "
            f"{output:,} tokens out"
        )
        yield Reason(id="tokens_differ", detail=detail)
