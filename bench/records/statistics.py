"""Numbers of many measurements."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from bench.records.suite import Condition, Spread


class Estimate(Struct, frozen=True, kw_only=True):
    """A statistic over prompt texts with its uncertainty; the trials of one text are put together first."""

    value: float
    low: float | None = None
    high: float | None = None
    spread: Spread | None = None
    """`interval`: 95% bootstrap (five or more texts); `range`: minimum and maximum over texts;
    `None`: a single one, so `low` and `high` are `None` too."""
    samples: int = 1
    """Texts, of the smaller side where there are two."""
    trials: int | None = None
    """Trials of these texts, where they are more: cold, salted and replayed ones of the same text."""


class Summary(Struct, frozen=True, kw_only=True):
    """Statistics over the valid measurements of one cell: route x tier x condition (x task)."""

    route: str
    tier: int
    condition: Condition
    task: str = "continue"
    first_replay: bool | None = None
    """Replays only: True for the first replay of each prompt, False for later ones."""
    valid: int
    invalid: int
    excluded: dict[str, int] = {}
    """Reason id -> how many measurements it excluded."""
    estimates: dict[str, Estimate] = {}
    """Measurement field -> its median; absent where no trial has it."""
    warnings: tuple[str, ...] = ()


class Percentiles(Struct, frozen=True, kw_only=True):
    """Percentiles of one quantity over requests."""

    p50: float
    p90: float
    p99: float
    samples: int
    """Requests they are over: of few, the high ones are not far from the greatest value."""


class Level(Struct, frozen=True, kw_only=True):
    """What a server gives at one level of concurrency, closed loop: waves of so many requests."""

    route: str
    tier: int
    condition: Condition
    task: str = "continue"
    concurrency: int
    """Requests released together; 1: sent alone."""
    waves: int
    """Valid ones; each is a trial."""
    invalid: int
    excluded: dict[str, int] = {}
    """Reason id -> how many waves it excluded."""
    requests: int
    """Of the valid waves."""
    output_tok_s: Estimate | None = None
    """Output tokens of a wave / from its release to the end of its last answer; median over waves."""
    requests_s: Estimate | None = None
    """Requests of a wave / the same time; median over waves."""
    ttft_s: Percentiles | None = None
    tpot_s: Percentiles | None = None
    """Seconds per output token: 1 / tpot_s.p90 is the decode rate that nine in ten requests reach."""
    acceptance: Estimate | None = None
    """Accepted / drafted tokens of a wave; median over waves, as the following two."""
    prefix_reuse: Estimate | None = None
    """Cached / prompt tokens of a wave."""
    queue_s: Estimate | None = None
    """Mean time of a wave's requests in the server's queue, by the server's own histogram."""
    waiting_peak: float | None = None
    """Most requests seen waiting in the samples."""
    waiting_mean: float | None = None
    """Mean of the samples during the waves."""
    kv_usage_peak: float | None = None
    preemptions: int | None = None
    """Requests pushed out of the KV cache and computed again, in all valid waves."""


class Comparison(Struct, frozen=True, kw_only=True):
    """Two routes side by side in one cell, for one quantity."""

    route: str
    base: str
    tier: int
    condition: Condition
    task: str = "continue"
    quantity: str
    ratio: Estimate | None = None
    """Ratio of the medians, route / base."""
    paired_ratio: Estimate | None = None
    """Median of the ratios of texts that both sides have; `None` when unpaired."""
    difference: Estimate | None = None
    """route - base, in the quantity's unit."""
    p_value: float | None = None
    test: str | None = None
    paired: bool = False
    """Whether both sides were sent the same texts, which are compared one by one."""
    verdict: Literal["higher", "lower", "~", "undecided"]
    """`~`: no difference found; `undecided`: too few trials to say, or totals of unequal outputs."""
    lacking: Literal["test", "interval", "both", "trials", "length"] | None = None
    """Which condition of a difference is not met: the test finds none, the interval holds 1 (0 where there
    is no ratio), both, there are too few trials for a test, or totals are of outputs of unequal length and
    cannot be reckoned at one; `None` where there is a difference."""
    output_tokens: int | None = None
    """Output length that both sides' `total_s` is reckoned at, since the outputs measured differ; `None`:
    they do not, or it is another quantity."""
    samples: tuple[int, int] | None = None
    """Prompt texts of route and base, with `paired` the pairs; `None` where they were not compared."""
    left_out: tuple[int, int] | None = None
    """Texts of route and base that the other side lacks: in no pair, so in none of these numbers; `None`:
    there are none, or it is not paired."""
    warnings: tuple[str, ...] = ()


class Crossover(Struct, frozen=True, kw_only=True):
    """The output length at which two routes' total latencies meet."""

    route: str
    base: str
    tier: int
    condition: Condition
    task: str = "continue"
    status: Literal["crosses", "always", "never", "undecided"]
    wins: Literal["above", "below"] | None = None
    """The side of `output_tokens` on which `route` wins; `None` unless it crosses."""
    output_tokens: float | None = None
    low: float | None = None
    high: float | None = None
    spread: Spread | None = None
    measured: int | None = None
    """Longest output measured on both routes."""
    extrapolation: float | None = None
    """output_tokens / measured; above 1 nothing was measured there."""
    basis: Literal["curve", "line", "slowing", "law"] | None = None
    """What `output_tokens` comes from: the measured arrival curves, straight lines beyond them, lines
    that bend as decode slows with context (past twice the measured length), or the prefill and decode
    laws (for a cached share that was not measured)."""
    line_tokens: float | None = None
    """What the straight lines alone give, when `basis` is another."""
    until: float | None = None
    """Output tokens from which on the order is that of few tokens again, the lead taken at `output_tokens`
    being lost; of `always`, `never` and `ahead_from`, up to which they hold. Told only where the whole spread
    says so and contexts that long were measured; `None`: not known to end."""
    until_low: float | None = None
    until_high: float | None = None
    may_end: float | None = None
    """Where by the point estimate the lead ends, an end of the spread of that place being open: nothing is
    claimed beyond it, and `until` is `None`."""
    samples: tuple[int, int]
    """Prompt texts of `route` and of `base`."""
    trials: tuple[int, int] | None = None
    """Trials of these texts, where they are more."""
    reused_tokens: int | None = None
    """Cached prompt tokens it is reckoned for; `None`: those of the measured condition."""
    ahead: str | None = None
    """The route that is faster over a part of the output lengths, where `status` is `undecided` because
    the spread of one of the two differences contains 0, or because only straight lines meet; `None`:
    nowhere."""
    ahead_from: float | None = None
    """Output tokens from which on `ahead` is faster over the whole spread; it may be so earlier."""
    ahead_to: float | None = None
    """Output tokens up to which it is; beyond, it may still be."""
    ttft_difference_s: Estimate | None = None
    """route - base."""
    tpot_difference_s: Estimate | None = None
    """route - base."""
    warnings: tuple[str, ...] = ()


class ChatTurn(Struct, frozen=True, kw_only=True):
    """One turn of a recorded chat on one route: medians over its valid repeats, which share a text."""

    turn: int
    valid: int
    invalid: int
    excluded: dict[str, int] = {}
    """Reason id -> measurements it excluded."""
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    expected_cached: int | None = None
    """What the turn before must have left in the cache, by the engine's rule; of the first turn nothing."""
    ttft_s: float | None = None
    decode_tok_s: float | None = None
    total_s: float | None = None
    ranges: dict[str, tuple[float, float]] = {}
    """Field (`ttft_s`, `decode_tok_s`, `total_s`, `cached_tokens`) -> its least and its greatest value, where
    several valid repeats have it."""


class Chat(Struct, frozen=True, kw_only=True):
    """A recorded chat on one route, turn by turn and as a whole."""

    route: str
    chat: str
    """File and place."""
    turns: tuple[ChatTurn, ...]
    whole: int
    """Repeats in which every turn is valid: what follows is over these."""
    total_s: float | None = None
    """Time spent waiting for answers in all turns, without the pauses between them; median over repeats."""
    fastest_s: float | None = None
    slowest_s: float | None = None
    prompt_tokens: int | None = None
    """Of all turns of one repeat: each turn's prompt holds the ones before it once more."""
    cached_tokens: int | None = None
    """How many of these the server found in its cache; median over repeats."""
    repeats: int = 0
    """Repeats of which any turn was measured, valid or not."""
