"""The text of a metrics page as vLLM 0.32 writes it, and its faults."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from .stats import Histogram, Stats

Labels = dict[str, str]


class Family(Struct, frozen=True):
    """One metric family: samples are (suffix, labels, value)."""

    name: str
    kind: str
    help: str
    samples: tuple[tuple[str, Labels, float], ...]


class Gauges(Struct, frozen=True, kw_only=True):
    """What is true at the moment of the page."""

    running: int
    waiting: int
    kv_usage: float
    started_at: float
    """Unix time of the server's start."""
    cpu_s: float
    config: dict[str, str]
    """Labels of `cache_config_info`."""


_HISTOGRAMS = {
    "prompt_tokens": ("request_prompt_tokens", "Prompt tokens per request."),
    "generation_tokens": ("request_generation_tokens", "Generated tokens per request."),
    "step_tokens": ("iteration_tokens_total", "Tokens per engine step."),
    "max_generation_tokens": ("request_max_num_generation_tokens", "Longest generation per request."),
    "params_n": ("request_params_n", "Parameter n of the requests."),
    "params_max_tokens": ("request_params_max_tokens", "Parameter max_tokens of the requests."),
    "ttft": ("time_to_first_token_seconds", "Time to first token."),
    "itl": ("inter_token_latency_seconds", "Time between engine steps of a request."),
    "tpot": ("request_time_per_output_token_seconds", "Decode time per token of a request."),
    "e2e": ("e2e_request_latency_seconds", "Whole time of a request."),
    "queue": ("request_queue_time_seconds", "Time a request waited."),
    "inference": ("request_inference_time_seconds", "Time a request ran."),
    "prefill": ("request_prefill_time_seconds", "Time a request prefilled."),
    "decode": ("request_decode_time_seconds", "Time a request decoded."),
    "preemptions": ("request_num_preemptions", "Preemptions per request."),
    "kv_computed": ("request_prefill_kv_computed_tokens", "Prompt tokens computed, cached ones left out."),
}


def families(stats: Stats, gauges: Gauges, model: str, faults: frozenset[str]) -> list[Family]:
    """Everything a page holds, in vLLM's order."""
    base = {"engine": "0", "model_name": model}
    stuck = "counters-stuck" in faults
    hits = 0 if stuck else stats.prefix_hits
    cached = 0 if stuck else stats.cached_tokens

    def one(name: str, kind: str, text: str, value: float) -> Family:
        suffix = "_total" if kind == "counter" else ""
        return Family(f"vllm:{name}", kind, text, ((suffix, base, value),))

    def by(name: str, kind: str, text: str, label: str, values: Mapping[str, float]) -> Family:
        suffix = "_total" if kind == "counter" else ""
        samples = tuple((suffix, base | {label: key}, value) for key, value in values.items())
        return Family(f"vllm:{name}", kind, text, samples)

    waiting = {"capacity": float(gauges.waiting), "deferred": 0.0}
    by_source = {
        "local_compute": stats.prompt_tokens - cached,
        "local_cache_hit": cached,
        "external_kv_transfer": 0,
    }
    tiers = {"device": hits, "host": 0, "p2p": 0, "disk": 0, "external_unspecified": 0}
    page = [
        *([] if "metrics-no-process" in faults else _process(gauges)),
        *_speculation(stats, base, faults),
        one("num_requests_running", "gauge", "Requests being executed.", gauges.running),
        one("num_requests_waiting", "gauge", "Requests waiting.", gauges.waiting),
        by("num_requests_waiting_by_reason", "gauge", "Requests waiting, by reason.", "reason", waiting),
        one("kv_cache_usage_perc", "gauge", "KV cache usage; 1 is full.", gauges.kv_usage),
        one("prefix_cache_queries", "counter", "Tokens looked up in the cache.", stats.prefix_queries),
        one("prefix_cache_hits", "counter", "Tokens found in the cache.", hits),
        one("external_prefix_cache_queries", "counter", "Tokens looked up elsewhere.", 0),
        one("external_prefix_cache_hits", "counter", "Tokens found elsewhere.", 0),
        one("num_preemptions", "counter", "Preemptions.", stats.preemptions),
        one("prompt_tokens", "counter", "Prompt tokens.", stats.prompt_tokens),
        by("prompt_tokens_by_source", "counter", "Prompt tokens by source.", "source", by_source),
        one("prompt_tokens_cached", "counter", "Prompt tokens from caches.", cached),
        by("prompt_tokens_cached_by_source", "counter", "Cached tokens by tier.", "source", tiers),
        one("generation_tokens", "counter", "Generated tokens.", stats.generation_tokens),
        by("request_success", "counter", "Finished requests.", "finished_reason", dict(stats.finished)),
    ]
    for key, (name, text) in _HISTOGRAMS.items():
        page.append(_histogram(f"vllm:{name}", text, base, stats.histograms[key]))
    info = gauges.config | {"engine": "0"}
    page.append(Family("vllm:cache_config_info", "gauge", "Settings of the cache.", (("", info, 1.0),)))
    return page


def _process(gauges: Gauges) -> list[Family]:
    return [
        Family(
            "process_start_time_seconds", "gauge", "Start of the process.", (("", {}, gauges.started_at),)
        ),
        Family("process_cpu_seconds", "counter", "CPU time of the process.", (("_total", {}, gauges.cpu_s),)),
    ]


def _speculation(stats: Stats, base: Labels, faults: frozenset[str]) -> list[Family]:
    if not stats.k:
        return []  # vLLM registers these only where speculation is configured
    counts = {
        "num_drafts": stats.drafts,
        "num_draft_tokens": stats.draft_tokens,
        "num_accepted_tokens": stats.accepted_tokens,
    }
    found = [
        Family(f"vllm:spec_decode_{name}", "counter", "Speculative decoding.", (("_total", base, value),))
        for name, value in counts.items()
    ]
    shown = stats.accepted_per_position[: -1 if "positions-incomplete" in faults else None]
    positions = tuple(
        ("_total", base | {"position": str(place)}, float(value)) for place, value in enumerate(shown)
    )
    name = "vllm:spec_decode_num_accepted_tokens_per_pos"
    return [*found, Family(name, "counter", "Accepted tokens per position.", positions)]


def _histogram(name: str, text: str, base: Labels, histogram: Histogram) -> Family:
    samples: list[tuple[str, Labels, float]] = []
    total = 0
    bounds = [*(repr(bound) for bound in histogram.bounds), "+Inf"]
    for bound, count in zip(bounds, histogram.counts, strict=True):
        total += count
        samples.append(("_bucket", base | {"le": bound}, total))
    samples += [("_count", base, total), ("_sum", base, histogram.sum)]
    return Family(name, "histogram", text, tuple(samples))


def two_engines(page: Iterable[Family]) -> list[Family]:
    """The same sums over two `engine` labels; gauges are the first engine's."""
    spread = []
    for family in page:
        samples: list[tuple[str, Labels, float]] = []
        for suffix, labels, value in family.samples:
            if "engine" not in labels:
                samples.append((suffix, labels, value))
                continue
            whole = family.name.endswith("_info")
            first = value if whole or family.kind == "gauge" else value // 2
            samples.append((suffix, labels, first))
            samples.append((suffix, labels | {"engine": "1"}, value if whole else value - first))
        spread.append(Family(family.name, family.kind, family.help, tuple(samples)))
    return spread


def render(page: Iterable[Family], created: float, *, openmetrics: bool = False) -> str:
    """The page as text, with the `_created` gauges that prometheus_client adds."""
    lines = []
    for family in page:
        declared = family.name + ("_total" if family.kind == "counter" and not openmetrics else "")
        lines += [f"# HELP {declared} {family.help}", f"# TYPE {declared} {family.kind}"]
        shown = family.name.replace(":", "_") if openmetrics else family.name
        lines += [
            f"{shown}{suffix}{_labels(labels)} {number(value)}" for suffix, labels, value in family.samples
        ]
        if family.kind in ("counter", "histogram") and family.name.startswith("vllm:"):
            lines += _created(family, shown, created, openmetrics)
    if openmetrics:
        lines.append("# EOF")
    return "\n".join(lines) + "\n"


def _created(family: Family, shown: str, created: float, openmetrics: bool) -> list[str]:
    owners = [labels for suffix, labels, _ in family.samples if suffix in ("_total", "_count")]
    head = [f"# HELP {shown}_created {family.help}", f"# TYPE {shown}_created gauge"]
    return [
        *([] if openmetrics else head),
        *(f"{shown}_created{_labels(o)} {number(created)}" for o in owners),
    ]


def deform(text: str, faults: frozenset[str]) -> str:
    """The faults of a finished page."""
    if "metrics-empty" in faults:
        return ""
    lines = text.splitlines()
    if "metrics-nan" in faults:
        bad = ("vllm:kv_cache_usage_perc", "vllm:num_requests", "vllm:prefix_cache_hits_total")
        lines = [f"{line.rsplit(' ', 1)[0]} NaN" if line.startswith(bad) else line for line in lines]
    if "metrics-malformed" in faults:
        half = len(lines) // 2
        broken = ['vllm:broken{engine="0" 3', "vllm:no_value{}", "vllm:not_a_number 12x4", "\x00\x01}{"]
        # Copies of good lines, torn: what is lost then must be the line, not its family.
        torn = ("vllm:generation_tokens_total", "vllm:spec_decode_num_accepted_tokens_total")
        broken += [line.partition("}")[0] for line in lines if line.startswith(torn)]
        lines = [*lines[:half], *broken, *lines[half:]]
    return "\n".join(lines) + "\n"


def _labels(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{key}="{value}"' for key, value in sorted(labels.items())) + "}"


def number(value: float) -> str:
    """A number as prometheus_client prints it: exponent form from a million up."""
    text = repr(float(value))
    whole, _, fraction = text.partition(".")
    if value < 1e6 or "e" in text or not fraction:
        return text
    digits = (whole[1:] + fraction).rstrip("0")
    return f"{whole[0]}.{digits}e+{len(whole) - 1:02d}" if digits else f"{whole[0]}e+{len(whole) - 1:02d}"
