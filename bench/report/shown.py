"""What plots show of a content: which measurements, and which single exchanges."""

from __future__ import annotations

from typing import Literal

from bench.records import Measurement
from bench.report.content import Content
from bench.report.detail import Detail

State = Literal["cold", "replay"]


def state_of(one: Measurement) -> State:
    return "replay" if one.condition == "replay" else "cold"


def shown_exchange(content: Content) -> Detail | None:
    """A valid exchange at the longest tier, with samples if there are any; the first such."""
    good = {(m.source, m.trial_id, m.attempt): m for m in content.sound}
    shown = [d for d in content.details if _key(d) in good and d.first_text_s is not None]
    if not shown:
        return None

    def rank(detail: Detail) -> tuple[int, bool, bool]:
        one = good[_key(detail)]
        return one.tier, any(use is not None for use in detail.kv_usage), state_of(one) == "cold"

    return max(shown, key=rank)


def shown_wave(content: Content) -> list[Detail]:
    """The requests of the largest valid wave at the longest tier; the first such. Empty without one."""
    details = {_key(one): one for one in content.details if one.first_text_s is not None}
    waves: dict[tuple[str, str], list[Measurement]] = {}
    for one in content.waves:
        if one.window is not None and one.verdict.valid:
            waves.setdefault((one.source, one.window.id), []).append(one)
    best: list[Detail] = []
    reach = (0, 0)
    for members in waves.values():
        keys = [(one.source, one.trial_id, one.attempt) for one in members]
        found = [details[key] for key in keys if key in details]
        size = (members[0].tier, len(found))
        one_unit = len({detail.curve_unit for detail in found}) == 1
        if len(found) == members[0].concurrency and one_unit and size > reach:
            best, reach = found, size
    return best


def _key(one: Detail) -> tuple[str, str, int]:
    return one.source, one.trial_id, one.attempt
