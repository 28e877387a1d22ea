"""What a dialect is: everything this package knows about one engine, as one frozen record of
data and pure functions.

A dialect never touches the network. It says which endpoints to probe and what their answers mean,
how metrics are named, what a request and a `/tokenize` call look like, when counters have settled,
and how much of a replayed prompt its prefix cache can give back. A new engine is one file with one
`Dialect` and one line in `bench/engines/__init__.py`; docs/engines.md shows it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct

from bench.errors import EngineError
from bench.records import RequestSettings, ServerFacts, Speculation, Usage

Probes = Mapping[str, object]
"""Endpoint path (`/version`, `/props`, ...) -> its decoded JSON, or None where it gave none."""
Values = Mapping[str, float]
"""Canonical metric name -> value, as `metrics.read_page` gives them."""

CANONICAL: dict[str, str] = {
    "prompt_tokens": "prompt tokens of requests, cached ones included or not as the dialect says",
    "cached_tokens": "prompt tokens found in the engine's own prefix cache",
    "external_cached_tokens": "prompt tokens fetched from a cache outside the device (host, disk, peer)",
    "computed_prompt_tokens": "histogram: prompt tokens really computed, per request",
    "prefix_queries": "prompt tokens looked up in the prefix cache",
    "prefix_hits": "prompt tokens found there",
    "prefix_queries_gpu": "the same under its old name: blocks up to vLLM 0.8.5, tokens after it",
    "prefix_hits_gpu": "the same under its old name: blocks up to vLLM 0.8.5, tokens after it",
    "external_prefix_hits": "prompt tokens found in an external cache",
    "generation_tokens": "tokens generated",
    "requests_finished": "requests that ended by themselves",
    "requests_aborted": "requests that were cut off",
    "requests_failed": "those of the finished ones that ended with an error",
    "drafts": "verified drafts (one request, one step)",
    "draft_tokens": "tokens drafted",
    "accepted_tokens": "drafted tokens accepted",
    "accepted_tokens_per_pos": "accepted tokens by place in the draft, as `.0`, `.1`, ...",
    "verify_calls": "verify steps, where the engine counts nothing else of speculation",
    "spec_draft_tokens": "length of a draft with its root: k + 1",
    "preemptions": "requests pushed out of the KV cache and computed again",
    "running": "requests being worked on",
    "waiting": "requests in the queue",
    "kv_usage": "fraction of the KV cache in use, 0 to 1",
    "kv_capacity_tokens": "tokens the KV cache can hold",
    "kv_capacity_blocks": "blocks the KV cache can hold, of `block_size` tokens each",
    "kv_used_tokens": "tokens it holds just now, reusable ones left out",
    "block_size": "tokens per prefix-cache block",
    "context_len": "longest sequence served",
    "process_start": "start of the server process (Unix seconds, or any constant of it)",
    "ttft": "histogram: seconds from arrival to the first token",
    "queue": "histogram: seconds in the queue",
    "prefill": "histogram: seconds from scheduled to the first token",
    "decode": "histogram: seconds from the first to the last token",
    "e2e": "histogram: seconds from arrival to the end",
    "prefill_seconds": "seconds spent computing prompts, where the engine has no histogram of them",
    "decode_seconds": "seconds spent generating, where the engine has no histogram of them",
    "window_acceptance_length": "acceptance length over the engine's last window; stale between requests",
}
"""Every metric this package knows, in one word each. Histograms appear as `<name>_sum` and `_count`."""


class Alias(Struct, frozen=True, kw_only=True):
    """One name under which an engine publishes a metric.

    Several aliases may carry one canonical name; on a page the first of the table that is present
    wins, so that an old name beside its successor is never counted twice.
    """

    name: str
    """Key of CANONICAL."""
    sample: str
    """Family name without the engine's prefix and without `_total`."""
    kind: Literal["counter", "gauge", "histogram", "window"]
    """A window is reset by reading it or by time: never differenced."""
    unit: Literal["tokens", "blocks", "blocks or tokens", "requests", "events", "fraction", "seconds"]
    only: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Label -> values to count; the empty value stands for a missing label."""
    never: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Label -> values to leave out."""
    by: str | None = None
    """Label whose value becomes a suffix of the name (`position`)."""
    largest: bool = False
    """Several series give the largest, not the sum (fractions, capacities of replicas)."""
    since: str | None = None
    until: str | None = None
    """First and last version that prints it, for people; the page itself decides."""
    when: Literal["step", "finish", "report"] = "step"
    """When the engine publishes it: every step, at a request's end, or now and then."""
    prefixed: bool = True
    """False for names without the engine's prefix (`process_start_time_seconds`)."""


PROCESS_START = Alias(
    name="process_start",
    sample="process_start_time_seconds",
    kind="gauge",
    unit="seconds",
    prefixed=False,
    largest=True,
)
"""What every server built on Prometheus' Python client prints of its process."""


class Step(Struct, frozen=True, kw_only=True):
    """One POST of a tokenisation; `fill` takes fields from the answer of the step before."""

    path: str
    """Under the server's origin, not under `/v1`."""
    body: dict[str, Any]
    fill: dict[str, str] = {}
    """Field of this body -> field of the previous answer."""

    def body_after(self, previous: object) -> dict[str, Any]:
        """The body to send, completed from the previous answer.

        Raises EngineError when that answer lacks a field.
        """
        body = dict(self.body)
        for field, source in self.fill.items():
            if not isinstance(previous, Mapping) or source not in previous:
                raise EngineError(f"the answer before POST {self.path} has no field {source!r}")
            body[field] = previous[source]
        return body


# --- Defaults: what an OpenAI-compatible server does, about which nothing else is known ------------


def openai_body_fields(settings: RequestSettings) -> dict[str, Any]:
    """Request fields of any OpenAI-compatible server; model, prompt and max_tokens are the caller's."""
    body: dict[str, Any] = {
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": settings.temperature,
    }
    if settings.seed is not None:
        body["seed"] = settings.seed
    if settings.ignore_eos:
        body["ignore_eos"] = True
    if settings.chat_template_kwargs and settings.endpoint == "chat":
        body["chat_template_kwargs"] = dict(settings.chat_template_kwargs)
    body.update(settings.extra_body)
    return body


def openai_facts(probes: Probes, values: Values, info: Mapping[str, str]) -> ServerFacts:
    """Model and limit from `/v1/models`."""
    model = listed_model(probes)
    limit = as_int(model.get("max_model_len"))
    return with_sources(
        {"model": as_str(model.get("id")), "max_model_len": limit},
        {"model": "/v1/models", "max_model_len": "/v1/models"},
    )


def no_tokenize(text: str, model: str) -> None:
    """The server has no endpoint that tokenises."""
    return None


def no_tokenize_messages(
    messages: Sequence[Mapping[str, Any]], model: str, chat_template_kwargs: Mapping[str, Any] = {}
) -> tuple[Step, ...] | None:
    """The server cannot say how many tokens a chat has."""
    return None


def read_tokens(answer: object) -> list[int]:
    """Token ids of a `/tokenize` answer: `{"tokens": [1, 2]}` or `{"tokens": [{"id": 1, ...}]}`.

    Raises EngineError when there are none.
    """
    tokens = answer.get("tokens") if isinstance(answer, Mapping) else None
    if not isinstance(tokens, list):
        raise EngineError("the answer of /tokenize has no list `tokens`; give a tokenizer file instead")
    ids: list[int] = []
    for token in tokens:
        number = token.get("id") if isinstance(token, Mapping) else token
        if not isinstance(number, int) or isinstance(number, bool):
            raise EngineError("the answer of /tokenize holds tokens that are no numbers")
        ids.append(number)
    return ids


def no_pieces(answer: object) -> list[bytes] | None:
    """The server does not give the text of single tokens."""
    return None


def nothing_reported(reported: Values) -> dict[str, float]:
    """The reply carries no numbers of its own."""
    return {}


def is_idle(values: Values) -> bool | None:
    """No request runs or waits; None when the page does not say."""
    seen = [values[name] for name in ("running", "waiting") if name in values]
    return not any(seen) if seen else None


def nothing_to_settle(before: Values, after: Values, usage: Usage | None) -> bool:
    """Without counters there is nothing to wait for."""
    return True


def counters_settled(before: Values, after: Values, usage: Usage | None) -> bool:
    """One more request finished, and the token counters hold at least our usage.

    "At least": foreign tokens in between must not make us wait for ever; that they are there is for
    the verdict to say. Families that appear with the first request count as not yet there.
    """
    if not after:
        return True
    finished = moved(before, after, "requests_finished")
    expected = [
        (moved(before, after, "generation_tokens"), usage.completion_tokens if usage else None),
        (moved(before, after, "prompt_tokens"), usage.prompt_tokens if usage else None),
    ]
    if finished is None and all(rise is None for rise, _ in expected):
        return False
    if finished is not None and finished < 1:
        return False
    return all(rise is None or ours is None or rise >= ours for rise, ours in expected)


def unknown_reuse(
    shared: int, prompt: int, facts: ServerFacts, speculation: Speculation | None
) -> tuple[int, int] | None:
    """Nothing is known of this engine's prefix cache."""
    return None


class Dialect(Struct, frozen=True, kw_only=True, eq=False):
    """One engine: its names, its requests, its rules. All functions are pure."""

    name: str
    title: str
    """For people, with the versions it covers."""
    recognises: Callable[[Probes, str | None], bool]
    """(probes, metrics text) -> this is the engine."""
    prefixes: tuple[str, ...] = ()
    """Metric prefix, without its `:`; OpenMetrics forms say `_` instead."""
    aliases: tuple[Alias, ...] = ()
    info_family: str | None = None
    """Family whose labels are the engine's configuration."""
    more_info: tuple[str, ...] = ()
    """Further such families; of a label that several have, the first counts."""
    metrics_path: str = "/metrics"
    """Where its metrics page is, under the origin."""
    metrics_advice: str | None = None
    """What to do about a server without that page, for people: `start it with ...`."""
    replica_labels: tuple[str, ...] = ()
    """Labels of ranks that report the same thing (tensor parallel): the largest counts, not the sum."""
    prompt_includes_cached: bool = True
    """Whether `prompt_tokens` counts cached tokens too."""
    digits: int | None = None
    """Significant digits of printed numbers; None: all of them."""
    positions_show_k: bool = False
    """The number of per-position counters is the configured k."""
    every_step_drafts: bool = False
    """A model drafter (MTP, EAGLE) drafts at every decoding step: steps without a draft are a sign."""
    probes: tuple[str, ...] = ("/v1/models",)
    """GET paths under the origin whose answers `facts` can read."""
    body_fields: Callable[[RequestSettings], dict[str, Any]] = openai_body_fields
    facts: Callable[[Probes, Values, Mapping[str, str]], ServerFacts] = openai_facts
    tokenize_request: Callable[[str, str], tuple[str, dict[str, Any]] | None] = no_tokenize
    """(text, model) -> (path, body) of a POST, or None."""
    tokenize_messages_request: Callable[..., tuple[Step, ...] | None] = no_tokenize_messages
    """(messages, model, chat_template_kwargs={}) -> the POSTs to make one after the other; the last
    answer holds the tokens. None when the server cannot."""
    pieces_request: Callable[[str, str], tuple[str, dict[str, Any]] | None] = no_tokenize
    """Like `tokenize_request`, but asks for the text of every token too."""
    read_tokens: Callable[[object], list[int]] = read_tokens
    read_pieces: Callable[[object], list[bytes] | None] = no_pieces
    """Bytes of every token, or None. Their concatenation must be compared with the text: a
    vocabulary of another kind than assumed shows there."""
    reported: Callable[[Values], dict[str, float]] = nothing_reported
    """Exchange.reported -> canonical names: prompt_tokens, cached_tokens, output_tokens, drafts,
    draft_tokens, accepted_tokens, prefill_s, decode_s, queue_s."""
    is_idle: Callable[[Values], bool | None] = is_idle
    settled: Callable[[Values, Values, Usage | None], bool] = nothing_to_settle
    """(values before, values after, our usage) -> the counters hold all of our request."""
    expected_cached: Callable[[int, int, ServerFacts, Speculation | None], tuple[int, int] | None] = (
        unknown_reuse
    )
    """(shared tokens, prompt tokens, facts, speculation) -> (least, most) tokens a replay reuses
    (DESIGN section 8); None when it cannot be told."""

    @property
    def lagging_gauges(self) -> bool:
        """Whether the gauge of running requests is renewed only now and then, and tells of the past."""
        return any(alias.name == "running" and alias.when == "report" for alias in self.aliases)


# --- Small readers that dialects share ------------------------------------------------------------


def as_int(value: object) -> int | None:
    """A whole number written as number or text; None for anything else."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,18}(\.0+)?", value.strip()):
        return int(value.strip().split(".")[0])
    return None


def rounding(value: float, digits: int | None) -> float:
    """Half of the last printed digit of a whole number; 0 where all digits are printed."""
    if digits is None or not math.isfinite(value):
        return 0.0
    size = len(str(int(abs(value))))
    return 0.5 * float(10 ** (size - digits)) if size > digits else 0.0


def as_str(value: object) -> str | None:
    """A text that is not empty; None for anything else."""
    return value if isinstance(value, str) and value else None


def as_bool(value: object) -> bool | None:
    """True or False, also as the text of it; None for anything else."""
    if isinstance(value, bool):
        return value
    return {"true": True, "false": False}.get(value.lower()) if isinstance(value, str) else None


def as_dict(value: object) -> dict[str, Any]:
    """A JSON object; an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def listed_model(probes: Probes) -> dict[str, Any]:
    """First entry of `/v1/models`; empty when there is none."""
    data = as_dict(probes.get("/v1/models")).get("data")
    return as_dict(data[0]) if isinstance(data, list) and data else {}


def version_key(version: str | None) -> tuple[int, ...] | None:
    """`0.32.1.dev3+cpu` -> (0, 32, 1); None when there is no number to compare."""
    found = re.match(r"[^0-9]{0,2}(\d{1,9}(?:\.\d{1,9})*)(?!\d)", version or "")
    return tuple(int(part) for part in found[1].split(".")) if found else None


def with_sources(found: Mapping[str, Any], sources: Mapping[str, str], **more: Any) -> ServerFacts:
    """Facts from what was found; sources only for what is there."""
    known = {field: value for field, value in found.items() if value is not None}
    return ServerFacts(**known, sources={f: s for f, s in sources.items() if f in known}, **more)


def moved(before: Values, after: Values, name: str) -> float | None:
    """How far a counter rose; a name that is new on the later page started at 0; None when absent."""
    return after[name] - before.get(name, 0.0) if name in after else None
