"""Exchanges, pages and runs for the tests of this folder, built by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bench.analysis.verdicts.measure import Measurer
from bench.engines import get
from bench.engines.metrics import read_page
from bench.records import (
    Chunks,
    Exchange,
    Measurement,
    PromptRecipe,
    PromptSettings,
    Route,
    RunInfo,
    Scrape,
    ServerFacts,
    Speculation,
    Suite,
    Trial,
    Usage,
)

PAGES = Path(__file__).parent.parent / "recordings" / "pages"
MS = 1_000_000


def scrape(engine: str, page: str) -> Scrape:
    """A recorded page as the wire would keep it."""
    read = read_page((PAGES / page).read_text(encoding="utf-8"), get(engine))
    return Scrape(at_ns=0, took_ns=0, status=200, values=read.values, info=read.info, problem=read.problem)


def page(**values: float) -> Scrape:
    """A page with these values; `pos__0` stands for `accepted_tokens_per_pos.0`."""
    named = {name.replace("pos__", "accepted_tokens_per_pos."): value for name, value in values.items()}
    return Scrape(at_ns=0, took_ns=0, status=200, values=named)


def answers(folder: str) -> dict[str, object]:
    """Recorded answers of a server's endpoints."""
    names = {"/version": "version", "/props": "props", "/v1/models": "models", "/server_info": "server_info"}
    return {
        path: json.loads((PAGES / folder / f"{name}.json").read_text(encoding="utf-8"))
        for path, name in names.items()
    }


def run(
    speculation: Speculation | None = None, facts: ServerFacts | None = None, route: Route | None = None
) -> RunInfo:
    """A run with one route `r`: `route`, or one with this speculation."""
    suite = Suite(
        name="t",
        tiers=(1000,),
        conditions=("cold", "salted", "replay"),
        output_tokens=64,
        repeats=1,
        replays=1,
        seed=1,
        warmup="none",
        retry_invalid=0,
        interleave=False,
        prompt=PromptSettings(),
        routes=(route or Route(name="r", base_url="http://127.0.0.1:1/v1", speculation=speculation),),
    )
    return RunInfo(
        schema=1,
        id="run",
        created_at="",
        nonce="n",
        suite=suite,
        suite_text="",
        plan=(),
        facts={} if facts is None else {"r": facts},
    )


def stream(tokens: int, ttft_ms: float = 1000, gap_ms: float = 10, per_chunk: int = 1) -> Chunks:
    """Chunks of a healthy stream: `per_chunk` tokens each after a first of one, text in all of them."""
    count = 1 + -(-(tokens - 1) // per_chunk)
    at = tuple(int((ttft_ms + place * gap_ms) * MS) for place in range(count))
    return Chunks(at_ns=at, chars=(4,) * count, kinds="c" * count)


_TEXT = " ".join(f"word{number}" for number in range(200))


def exchange(
    condition: str = "cold",
    *,
    prompt: int = 1000,
    output: int = 64,
    cached: int | None = None,
    sha: str = "p1",
    engine: str = "vllm",
    ttft_ms: float = 1000,
    fixed_prefix: int = 0,
    **more: Any,
) -> Exchange:
    """An exchange that went well, unless `more` says otherwise."""
    trial = Trial(
        id=f"r/{prompt}/{condition}/1",
        route="r",
        tier=prompt,
        condition=condition,  # type: ignore[arg-type]
        repeat=1,
        replay=1 if condition == "replay" else 0,
        output_tokens=output,
    )
    recipe = PromptRecipe(
        sha256=sha,
        tokens=prompt,
        endpoint="chat",
        corpus="python",
        corpus_sha256="c",
        task="continue",
        start=0,
        fixed_prefix=fixed_prefix,
    )
    chunks = stream(output, ttft_ms)
    fields: dict[str, Any] = {
        "trial": trial,
        "engine": engine,
        "prompt": recipe,
        "url": "http://127.0.0.1:1/v1/chat/completions",
        "request": {"temperature": 0.0, "ignore_eos": True},
        "sent_ns": 0,
        "ended_ns": chunks.at_ns[-1] + MS,
        "status": 200,
        "chunks": chunks,
        "text": _TEXT,
        "finish_reason": "length",
        "done": True,
        "usage": Usage(prompt_tokens=prompt, completion_tokens=output, cached_tokens=cached),
        "settled": True,
    }
    return Exchange(**(fields | more))


def measure(*exchanges: Exchange, info: RunInfo | None = None) -> Measurement:
    """The measurement of the last of several exchanges of one run."""
    measurer = Measurer(run() if info is None else info)
    return [measurer.add(one) for one in exchanges][-1]


def ids(measured: Measurement) -> tuple[list[str], list[str]]:
    """(reasons against, warnings) by id."""
    verdict = measured.verdict
    return [r.id for r in verdict.reasons], [r.id for r in verdict.warnings]
