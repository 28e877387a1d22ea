"""The winner map in words: what its panels are called, how to read it, and how far it can be trusted."""

from __future__ import annotations

from bench.analysis.decisions.agreement import Parted
from bench.analysis.decisions.winner import WinnerMap
from bench.report import sources
from bench.report.content import Content
from bench.report.told import Told
from bench.report.words import laws, tokens

TITLE = "Which route is fastest"
CAPTION = (
    "Colour: the fastest route for a prompt and an output. Pale: not certain by the scatter of the trials; "
    "hatched: beyond the measured prompts and outputs; dots: measured on every route. Replays: each route "
    "with what its own replays had cached, and with their TTFT. By law: all routes with the same part cached."
)
TWO_TIERS = "A law through two tiers has no spread: nothing is certain by it."
ALL_PALE = (
    "All is pale: a law through two tiers has no spread, so nothing here is certain. "
    "A third tier would test it."
)


def panel_title(one: WinnerMap) -> str:
    """What a map is of: `cold`, `replays, as measured`, or by the laws `75% reused, by law`."""
    if one.replays:
        return "replays, as measured"
    if one.reused_tokens is not None:
        return f"{one.reused_tokens:,} cached, by law"
    return f"{one.reused_share * 100:.3g}% reused, by law" if one.reused_share else "cold"


def caption(content: Content) -> str:
    """How to read the map of this content, and where it is not what was measured."""
    doubt = [TWO_TIERS] if any(len(law.tiers) < 3 for law in laws(content)) else []
    return " ".join([CAPTION, *doubt, *(f"{text[0].upper()}{text[1:]}." for text in parted_lines(content))])


def parted_lines(content: Content) -> list[str]:
    """The measured crossovers that the map contradicts, beyond the spreads of both."""
    several = len({one.crossover.task for one in content.parted}) > 1
    return [Told(_parted(one, several), sources.crossover(one.crossover)) for one in content.parted]


def _parted(one: Parted, several_tasks: bool) -> str:
    found = one.crossover
    place = f"{found.tier:,} tokens, {found.condition}" + (f", {found.task}" if several_tasks else "")
    meet = "never meet" if one.on_map is None else f"meet at {tokens(one.on_map)} output tokens"
    spread = " to ".join(tokens(end) for end in (found.low, found.high) if end is not None)
    return (
        f"winner map, {place}: there {found.route} and {found.base} {meet}, by laws over all tiers; "
        f"measured: {tokens(found.output_tokens or 0.0)} ({spread})"
    )
