"""The fitted laws as a table: what a prompt costs per token, and how decoding slows with context."""

from __future__ import annotations

from bench.analysis.decisions.claims import counted, many
from bench.analysis.statistics.decode import DecodeLaw
from bench.analysis.statistics.prefill import PrefillLaw
from bench.report import sources
from bench.report.content import Content
from bench.report.escape import visible
from bench.report.quantities import MISSING, significant
from bench.report.told import Table, Told

HEAD = (
    "route", "TTFT of n cold prompt tokens", "worst miss", "prefill (tok/s)", "time per token (ms)",
    "slowing (ms/100k tok)",
)  # fmt: skip
NOTE = (
    "Laws are fitted to medians of tiers (client clock): TTFT to a + b n + c n² over cold prompts, time "
    "per token to a line over the mean context. The worst miss is the tier farthest from its law; two "
    "tiers are met by any law. Prefill and time per token are what was measured at each tier. A dash: one "
    "tier gives no law, two test none."
)


def law_table(content: Content) -> Table | None:
    """One row a route with a prefill law, or with a decode rate on two tiers or more."""
    ttfts, steps = content.ttft_laws, content.step_laws
    rows = tuple(
        _row(route, ttfts[route], steps.get(route))
        for route in content.routes
        if route in ttfts and (ttfts[route].terms or (route in steps and steps[route].tiers > 1))
    )
    return Table(title="Laws", head=HEAD, rows=rows, note=NOTE) if rows else None


def _row(route: str, ttft: PrefillLaw, step: DecodeLaw | None) -> tuple[str, ...]:
    law = sources.derived("prefill", f"{_trials(ttft)} on {many(len(ttft.tiers), 'tier')}.", *ttft.warnings)
    misses = [abs(share) for share in ttft.residuals.values()]
    tested = len(ttft.tiers) > len(ttft.terms)
    rates = [f"{tier:,}: {significant(rate, 3)}" for tier, rate in sorted(ttft.prefill_tok_s.items())]
    return (
        visible(route, 60),
        Told(ttft.formula(), law) if ttft.terms else MISSING,
        Told(f"{max(misses):.1%}", law) if misses and tested else MISSING,
        Told("; ".join(rates), "Prompt tokens / TTFT of cold trials, medians by tier. Witness: client clock.")
        if rates
        else MISSING,
        *_step(step),
    )


def _trials(law: PrefillLaw | DecodeLaw) -> str:
    return counted([law.samples], None if law.samples == law.trials else [law.trials])


def _step(step: DecodeLaw | None) -> tuple[str, str]:
    if step is None:
        return MISSING, MISSING
    source = sources.derived("decode", f"{_trials(step)}.", *step.warnings)
    times = [
        f"{context:,.0f}: {significant(time * 1000, 3)}"
        for context, time in zip(step.contexts, step.tpot_s, strict=True)
    ]
    slowing = significant(step.slope_s * 1e8, 3)  # seconds a token and token of context -> ms and 100k
    return Told("; ".join(times), source), Told(slowing, source) if step.tiers > 1 else MISSING
