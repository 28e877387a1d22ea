"""Every record that travels between the floors of the house.

All records are frozen, keyword-only and slotted (`msgspec.Struct`), and can be written as JSON.
The order below is the order in which they come into being::

    Suite -> Trial -> Exchange (+ Scrape, Samples) -> Measurement (+ Verdict)
          -> Summary, Comparison, Crossover

Units stand in the names: `_s` seconds, `_ms` milliseconds, `_ns` nanoseconds, `_tok_s` tokens per
second. Missing is `None` (its reason in `Measurement.absent`), never 0 and never NaN.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Condition = Literal["cold", "salted", "replay"]
SuiteCondition = Literal["cold", "salted", "replay", "over-limit"]
"""What a suite may ask for: `over-limit` adds cold prompts just under and just over the drafter limit."""
Endpoint = Literal["chat", "completions", "tokens"]
SaltMethod = Literal["text", "cache_salt", "both"]
Spread = Literal["interval", "range"]


# --- Suite: what to measure ----------------------------------------------------------------------


class Speculation(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The speculation setting a route declares; checked against what the server shows."""

    method: str
    """`mtp`, `ngram`, `eagle`, `draft`, ... as the engine calls it."""
    num_speculative_tokens: int
    """Tokens drafted per step (k)."""


class Timeouts(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits of one exchange, in seconds. There is no total limit on purpose."""

    connect_s: float = 10.0
    """Opening the connection, before anything is measured."""
    upload_s: float = 120.0
    """Handing the request body to the transport."""
    first_token_s: float | None = None
    """From `sent` to the first text; `None`: 120 s plus 10 ms per prompt token."""
    idle_s: float = 120.0
    """Between two reads once text flows."""


class RequestSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The fields of every request, sent explicitly and never left to a server's default."""

    endpoint: Endpoint = "chat"
    temperature: float = 0.0
    seed: int | None = None
    ignore_eos: bool = True
    chat_template_kwargs: dict[str, str | int | float | bool] = {}
    extra_body: dict[str, object] = {}
    """Engine-specific fields, merged into the request as they stand."""
    timeouts: Timeouts = Timeouts()


class PromptSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where prompts come from."""

    corpus: str = "python"
    """`python`, `synthetic`, `synthetic-code`, or a file, folder or glob."""
    task: str | tuple[str, ...] = "continue"
    """Name of an instruction in prompts/tasks, or a path to a Markdown file; or several: each is then
    a trial of its own."""
    tokenizer: str | None = None
    """Path of a tokenizer.json; `None`: the server's own /tokenize."""
    salt: SaltMethod = "text"
    keep_text: bool = False
    """Keep prompt texts in the run directory instead of hash and recipe alone."""

    @property
    def tasks(self) -> tuple[str, ...]:
        """The tasks, also where the suite names only one."""
        return (self.task,) if isinstance(self.task, str) else self.task


class FromEnv(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A value that is taken from an environment variable when it is needed, and recorded nowhere."""

    from_env: str
    """Name of the variable."""


class RouteServer(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a route's server is started and stopped, when the run does that itself."""

    up: str | tuple[str, ...]
    """A command for the shell, or a list of arguments without one. It stays in the foreground; one
    that starts a server elsewhere and ends needs `down`."""
    down: str | tuple[str, ...] | None = None
    """Stops the server; `None`: the signals TERM and then KILL to everything `up` has started."""
    ready_timeout_s: float = 1800.0
    """From `up` until the server lists its model."""
    cwd: str | None = None
    """Folder the commands run in; relative: from the suite file's folder, which is the default."""
    env: dict[str, str | int | FromEnv] = {}
    """Environment variables for the commands, beside our own. Values are shown and recorded nowhere:
    a run keeps `from_env` with the variable's own name in place of a written one."""
    restart: int = 1
    """How often in a session a server that fell is started again."""
    log: str | None = None
    """Like the route's `log`; `None`: what the commands write."""


class Route(Struct, frozen=True, kw_only=True):
    """One way to serve the model that is being compared."""

    name: str
    base_url: str
    """With the version part, e.g. `http://127.0.0.1:8000/v1`."""
    model: str | None = None
    """`None`: the only model the server lists."""
    api_key_env: str | None = None
    """Name of the environment variable that holds the key. The key itself is in no record."""
    metrics_url: str | None = None
    """`None`: origin of `base_url` + `/metrics`."""
    engine: str | None = None
    """Name of a dialect; `None`: detected."""
    speculation: Speculation | None = None
    """`None`: target only."""
    setting: dict[str, str] = {}
    """Free text for the report: what no server tells (hardware, image, ...)."""
    request: RequestSettings = RequestSettings()
    config: str | None = None
    """The model's config.json or folder: its context rules are then checked before anything is sent."""
    drafter_limit: int | None = None
    """Longest sequence the drafter takes part in, in tokens; `None`: what `config` says, if anything."""
    log: str | None = None
    """Where the server's log is: a file, `docker:NAME` or `journal:UNIT`; an excerpt is kept per exchange."""
    reset: Literal["vllm", "sglang"] | None = None
    """Empty the prefix cache before every cold prompt, in this engine's way; proven by a probe."""
    cache_group: str | None = None
    """Routes of one group share a prefix cache or KV store; `None`: the server's origin."""
    ca_file: str | None = None
    insecure: bool = False
    """Skip TLS verification; recorded and shown."""
    proxy: str | None = None
    server: RouteServer | None = None
    """`None`: the server is up already, or somebody else sees to it."""


class Suite(Struct, frozen=True, kw_only=True):
    """What to measure: the suite file, checked and with every default filled in."""

    name: str
    tiers: tuple[int, ...]
    """Prompt lengths in tokens, as the server counts them, template included."""
    conditions: tuple[SuiteCondition, ...]
    output_tokens: int
    repeats: int
    replays: int
    """Replays after each cold prompt."""
    seed: int
    warmup: Literal["short", "tier", "none"]
    retry_invalid: int
    """How often an invalid trial is repeated, with fresh salts, at the end of its block."""
    interleave: bool
    """Routes take turns within a tier (all servers up at once) instead of one after another."""
    budget_s: float | None = None
    """Longest expected time of the whole plan; repeats, then tiers are dropped until it fits."""
    prompt: PromptSettings
    routes: tuple[Route, ...]

    def route(self, name: str) -> Route:
        """The route of that name; `KeyError` when there is none."""
        for route in self.routes:
            if route.name == name:
                return route
        raise KeyError(name)


# --- Trials and prompts: one planned request ------------------------------------------------------


class Trial(Struct, frozen=True, kw_only=True):
    """One planned request: route x tier x condition x repeat."""

    id: str
    """`route/tier/condition/repeat` (`.n` behind the repeat for the n-th replay), and `~task` behind it
    in a suite of several tasks; unique in a run."""
    route: str
    tier: int
    condition: Condition
    repeat: int
    """From 1."""
    replay: int = 0
    """1 for the first replay of its cold prompt, 2 for the second ...; 0 for cold and salted."""
    task: str = "continue"
    output_tokens: int = 0
    """Requested output length (max_tokens)."""
    side: Literal["under", "over"] | None = None
    """Condition `over-limit`: the side of the drafter limit this prompt lies on; the tier follows from it."""


class Needle(Struct, frozen=True, kw_only=True):
    """A fact hidden in a prompt, and how an answer that gives it back can be told."""

    vault: str
    code: str
    """Six digits: no reader guesses them."""
    depth: float
    """Where in the body it stands: 0 for the front, 1 for the end."""


class PromptRecipe(Struct, frozen=True, kw_only=True):
    """How a prompt was made: enough to make it again, and to prove that it is the same one."""

    sha256: str
    """Of the request body's prompt part (messages, prompt text or token ids) as UTF-8 JSON."""
    tokens: int
    """Local count, template included; equals the tier."""
    endpoint: Endpoint
    corpus: str
    corpus_sha256: str
    task: str
    acceptance_class: str = "unknown"
    """How easily a drafter follows the answers to this task: `high`, `middle`, `low`."""
    needles: tuple[Needle, ...] = ()
    """The facts hidden in the body: what its answer is graded by."""
    start: int
    """Token offset of the body in the corpus."""
    filler: int = 0
    """One-token words appended to reach the exact length."""
    salt: str = ""
    """The salt line, without its newline; differs for every prompt of every run."""
    cache_salt: str | None = None
    """Value of the request field `cache_salt`, where that method is used."""
    overhead: int = 0
    """Tokens the chat template adds around our text, measured."""
    fixed_prefix: int = 0
    """Tokens before the salt that every prompt of this route shares (template opening)."""
    text: str | None = None
    """The prompt itself, only with `keep_text`."""


# --- Exchange: what happened, raw -----------------------------------------------------------------


class Chunks(Struct, frozen=True, kw_only=True):
    """The stream's events, column by column; all columns have one entry per event with a choice."""

    at_ns: tuple[int, ...] = ()
    """Nanoseconds after `sent`, stamped when the bytes arrived; events of one read share a stamp."""
    chars: tuple[int, ...] = ()
    """Characters of text in the event; 0 for role-only, empty and finish events."""
    kinds: str = ""
    """A letter an event: c content, r reasoning, t tool call, e empty (role-only, finish)."""
    tokens: tuple[int, ...] = ()
    """Completion tokens so far, where the server says so in every event; else empty."""


class Usage(Struct, frozen=True, kw_only=True):
    """The `usage` object of a reply; a field the server left out is `None`."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None


class Failure(Struct, frozen=True, kw_only=True):
    """Why an exchange did not succeed. A failed request is data, not an exception."""

    kind: Literal[
        "refused",  # nobody listens, DNS or TLS fails
        "connect_timeout",
        "upload_timeout",
        "first_token_timeout",
        "idle_timeout",
        "reset",  # the connection broke before the headers
        "truncated",  # the stream broke, or ended without finish reason and [DONE]
        "status",  # an HTTP status other than 200
        "error_event",  # an error inside the stream
        "malformed",  # an event that is no JSON, or no completion
        "no_tokens",  # success without a token
        "too_large",  # more bytes than any honest answer has
        "cancelled",  # Ctrl-C
    ]
    message: str
    """One sentence; nothing secret in it."""
    status: int | None = None
    body: str | None = None
    """Start of what the server said, at most 64 KiB."""


class Scrape(Struct, frozen=True, kw_only=True):
    """One metrics page, reduced to what its dialect knows; the page itself lies in `file`."""

    at_ns: int
    """Monotonic, when the page had arrived."""
    took_ns: int
    status: int | None = None
    file: str | None = None
    """Path of the raw page within the run directory."""
    values: dict[str, float] = {}
    """Canonical name -> value, engine labels summed for counters. Absent stays absent.
    Per-position counters are `accepted_tokens_per_pos.0`, `.1`, ..."""
    info: dict[str, str] = {}
    """Labels of the engine's configuration family (`cache_config_info`), as they stand."""
    problem: str | None = None
    """Why there is no (complete) page."""


class Samples(Struct, frozen=True, kw_only=True):
    """Gauges sampled during an exchange, column by column; a missing value is `None`."""

    at_ns: tuple[int, ...] = ()
    """Nanoseconds after `sent` (may be negative for the sample before it)."""
    took_ns: tuple[int, ...] = ()
    kv_usage: tuple[float | None, ...] = ()
    """Fraction 0 to 1."""
    running: tuple[float | None, ...] = ()
    waiting: tuple[float | None, ...] = ()
    drafts: tuple[float | None, ...] = ()
    """Counter values while decoding: they show where speculation stops within one exchange."""
    accepted_tokens: tuple[float | None, ...] = ()


class ClientHealth(Struct, frozen=True, kw_only=True):
    """How late and how busy this client was during an exchange."""

    loop_lag_p50_ms: float
    loop_lag_p99_ms: float
    loop_lag_max_ms: float
    cpu_share: float
    """CPU seconds of this process per second of wall time."""


class LogExcerpt(Struct, frozen=True, kw_only=True):
    """What the server's log said during one exchange, counted; the text itself lies in `file`."""

    file: str | None = None
    """Path of the excerpt within the run directory."""
    lines: int = 0
    """Lines that were counted."""
    omitted: int = 0
    """Bytes that were too many to be counted: the figures are then a lower bound."""
    levels: dict[str, int] = {}
    """Level as the log writes it -> lines; `none` without one."""
    known: dict[str, int] = {}
    """Lines of known meaning (`analysis/log_known.py`) -> how many."""
    floods: tuple[str, ...] = ()
    """Templates whose count grows with the output tokens, with their figures."""
    problem: str | None = None
    """Why there is no (complete) excerpt."""


class Exchange(Struct, frozen=True, kw_only=True, tag_field="kind", tag="exchange"):
    """What happened for one trial: the request, every read with its time stamp, and the answer.

    Raw and never edited. Times ending in `_ns` count from `sent`, except `sent_ns` itself
    (monotonic clock of this machine) and `connect_ns` (a duration before `sent`).
    """

    trial: Trial
    attempt: int = 1
    purpose: Literal["trial", "warmup", "prime"] = "trial"
    """`warmup`: other text, never measured. `prime`: puts a prompt into the cache again before a
    replay is repeated; never measured either, but its prompt is known afterwards."""
    engine: str = "generic"
    """Name of the dialect that explains `before` and `after`."""
    prompt: PromptRecipe
    url: str
    request: dict[str, object] = {}
    """The request body without the prompt."""
    started_at: str = ""
    """Wall clock, ISO 8601, UTC; only to find the exchange in a log."""
    sent_ns: int
    """Monotonic; just before the first request byte."""
    connect_ns: int | None = None
    """Time of opening (or reviving) the connection, before `sent`."""
    uploaded_ns: int | None = None
    """When the transport had taken the whole body: a lower bound of the upload."""
    headers_ns: int | None = None
    ended_ns: int
    status: int | None = None
    headers: dict[str, str] = {}
    read_ns: tuple[int, ...] = ()
    """Stamp of every read of the body."""
    read_bytes: tuple[int, ...] = ()
    chunks: Chunks = Chunks()
    text: str = ""
    """The answer: content, or completion text."""
    reasoning: str = ""
    tool_text: str = ""
    finish_reason: str | None = None
    done: bool = False
    """`[DONE]` was seen."""
    usage: Usage | None = None
    reported: dict[str, float] = {}
    """Numbers the reply itself carries (llama.cpp `timings.*`, vLLM `metrics.*`), flattened."""
    failure: Failure | None = None
    before: Scrape | None = None
    after: Scrape | None = None
    samples: Samples = Samples()
    idle_wait_s: float | None = None
    """How long the server needed to become idle before this exchange."""
    settle_s: float | None = None
    """How long its counters needed to agree with the usage afterwards."""
    settled: bool = False
    client: ClientHealth | None = None
    log: LogExcerpt | None = None
    """`None`: the route names no log."""


class Event(Struct, frozen=True, kw_only=True, tag_field="kind", tag="event"):
    """Something in a run's life that is no exchange: a start, a resume, a restart, the end."""

    name: str
    at: str
    """Wall clock, ISO 8601, UTC."""
    message: str = ""
    data: dict[str, object] = {}


# --- Run: what run.json says ----------------------------------------------------------------------


class ServerFacts(Struct, frozen=True, kw_only=True):
    """What one route's server says about itself; `None` where it does not."""

    engine: str = "generic"
    version: str | None = None
    model: str | None = None
    max_model_len: int | None = None
    block_size: int | None = None
    """Tokens per prefix-cache block."""
    kv_capacity_tokens: int | None = None
    num_speculative_tokens: int | None = None
    """k as the server shows it (number of per-position counters, flags)."""
    drafter_limit: int | None = None
    """Longest sequence the drafter takes part in."""
    past_drafter_limit: tuple[str, ...] = ()
    """What this engine version does past it (`engines/context_records.PastLimit`); empty: not known."""
    prefix_caching: bool | None = None
    reports_cached_tokens: bool | None = None
    started_at: float | None = None
    """The server's process start time where it tells (Unix seconds, or any constant)."""
    flags: dict[str, str] = {}
    sources: dict[str, str] = {}
    """Field name -> where it was read."""


class TokenizerIdentity(Struct, frozen=True, kw_only=True):
    """Which tokenizer counted the prompts."""

    kind: str
    """`tiktoken`, `tokenizers`, `server`."""
    name: str
    sha256: str
    vocabulary: int


class RunInfo(Struct, frozen=True, kw_only=True):
    """run.json: everything about a run that is known before its first exchange."""

    schema: int
    id: str
    """Name of the run directory."""
    created_at: str
    nonce: str
    """Random; part of every salt, so that no two runs share a prompt."""
    suite: Suite
    suite_text: str
    """The suite file as read."""
    plan: tuple[Trial, ...]
    facts: dict[str, ServerFacts] = {}
    """By route."""
    tokenizers: dict[str, TokenizerIdentity] = {}
    """By route."""
    environment: dict[str, str] = {}
    notes: tuple[str, ...] = ()
    """What the reader must know: unpaired routes, forced checks, TLS not verified, ..."""


# --- Measurement: the numbers of one exchange ------------------------------------------------------


class Reason(Struct, frozen=True, kw_only=True):
    """Why a measurement is invalid, or what its reader must know."""

    id: str
    """Key into the table of reasons (`analysis/reasons.py`)."""
    detail: str = ""
    """The figures of this case."""


class Verdict(Struct, frozen=True, kw_only=True):
    """Whether a measurement may enter a statistic."""

    valid: bool
    reasons: tuple[Reason, ...] = ()
    """Why it is invalid; empty when valid."""
    warnings: tuple[Reason, ...] = ()
    """What does not invalidate it but must be shown."""
    reuse: Literal["held", "missed", "unprovable", "disagree", "unknown"] = "unknown"
    """What the witnesses say of the condition (cold: nothing reused, replay: all but the last block)."""
    speculation: Literal["none", "as declared", "off", "fallback", "crosses", "unknown"] = "unknown"
    """`fallback`: past the drafter limit, target-only in effect; `crosses`: passed it while decoding."""


class Measurement(Struct, frozen=True, kw_only=True):
    """The numbers of one exchange, each computed once. DESIGN section 2 defines every quantity.

    `sources` names the witness of a number, `absent` says why one is `None`; both by field name.
    """

    trial_id: str
    source: str = ""
    """Run or table it came from; tells routes of equal name apart."""
    route: str
    tier: int
    condition: Condition
    repeat: int = 1
    replay: int = 0
    task: str = "continue"
    attempt: int = 1
    order: int = 0
    """Place in the run, from 0: for drift."""
    pair: str | None = None
    """Prompt hash that paired routes have in common; `None`: unpaired."""

    prompt_tokens: int | None = None
    output_tokens: int | None = None
    ttft_s: float | None = None
    first_response_s: float | None = None
    total_s: float | None = None
    first_chunk_tokens: int = 1
    """c0: tokens in the first text chunk."""
    text_chunks: int | None = None
    decode_tok_s: float | None = None
    tpot_s: float | None = None
    icl_p50_s: float | None = None
    icl_p99_s: float | None = None
    icl_max_s: float | None = None
    uploaded_s: float | None = None
    connect_s: float | None = None

    drafts: int | None = None
    draft_tokens: int | None = None
    accepted_tokens: int | None = None
    acceptance: float | None = None
    acceptance_length: float | None = None
    acceptance_per_position: tuple[float, ...] | None = None

    cached_tokens: int | None = None
    """Of the best witness (see `sources`)."""
    cached_usage: int | None = None
    cached_counter: int | None = None
    expected_cached: int | None = None
    """What the rule of DESIGN section 8 expects of a replay."""
    prefix_reuse: float | None = None
    """cached_tokens / prompt_tokens."""

    kv_usage_peak: float | None = None
    kv_usage_mean: float | None = None
    """Mean of the samples during the exchange."""
    running_peak: float | None = None
    waiting_peak: float | None = None
    preemptions: int | None = None
    server_ttft_s: float | None = None
    queue_s: float | None = None
    prefill_s: float | None = None
    server_decode_s: float | None = None

    finish_reason: str | None = None
    text_sha256: str | None = None
    client_uncertainty_s: float | None = None
    failure: Failure | None = None
    sources: dict[str, str] = {}
    absent: dict[str, str] = {}
    verdict: Verdict


# --- Statistics -----------------------------------------------------------------------------------


class Estimate(Struct, frozen=True, kw_only=True):
    """A statistic over trials with its uncertainty."""

    value: float
    low: float | None = None
    high: float | None = None
    spread: Spread | None = None
    """`interval`: 95% bootstrap (five or more trials); `range`: minimum and maximum of what was
    measured; `None`: a single trial, so `low` and `high` are `None` too."""
    samples: int = 1


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
    """Median of the ratios of trials that share a prompt; `None` when unpaired."""
    difference: Estimate | None = None
    """route - base, in the quantity's unit."""
    p_value: float | None = None
    test: str | None = None
    paired: bool = False
    verdict: Literal["higher", "lower", "~", "undecided"]
    """`~`: no difference found; `undecided`: too few trials to say."""
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
    basis: Literal["curve", "line", "slowing"] | None = None
    """What `output_tokens` comes from: the measured arrival curves, straight lines beyond them, or
    lines that bend as decode slows with context (past twice the measured length)."""
    line_tokens: float | None = None
    """What the straight lines alone give, when `basis` is another."""
    samples: tuple[int, int]
    """Trials of `route` and of `base`."""
    ttft_difference_s: Estimate | None = None
    """route - base."""
    tpot_difference_s: Estimate | None = None
    """route - base."""
    warnings: tuple[str, ...] = ()
