"""A cache reset is asked for, its answer read, and proven by a probe."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest
from run_helpers import events, suite_text

from bench.engines import get
from bench.plan.suite import parse_suite
from bench.records import Exchange, Failure, PromptRecipe, Scrape, ServerFacts, Trial, Usage
from bench.records.events import RESET
from bench.run.progress import Progress
from bench.run.reset import probe_tokens, proof, refusal
from bench.run.study import Order, start
from bench.servers.simulator import start as simulate


def run(text: str, results: Path) -> tuple[Path, Progress]:
    progress = Progress()
    order = Order(suite=parse_suite(text), suite_text=text, results=results)
    return asyncio.run(start(order, progress)), progress


def text(base_url: str) -> str:
    return suite_text({"a": base_url}, route='reset = "vllm"').replace("[256, 512]", "[300]")


def test_every_cold_prompt_is_preceded_by_a_reset_that_is_proven(tmp_path: Path) -> None:
    with simulate("toy-target-only") as server:
        path, _ = run(text(server.base_url), tmp_path)
    told = events(path, RESET)
    assert len(told) >= 2  # two repeats
    assert all(event.data == {"route": "a", "accepted": True, "proven": True} for event in told)


def test_a_server_without_a_reset_is_said_to_have_none(tmp_path: Path) -> None:
    with simulate("toy-target-only") as server:
        path, progress = run(text(server.base_url).replace('"vllm"', '"sglang"'), tmp_path)
    assert all(event.data["proven"] is False for event in events(path, RESET))
    assert any("reset is not proven" in note and "404" in note for note in progress.notes)


@pytest.mark.parametrize(
    ("answer", "refused"),
    [("", False), ("Cache flushed.", False), ('{"success": true}', False), ('{"success": false}', True)],
)
def test_a_refusal_in_a_successful_answer_is_read(answer: str, refused: bool) -> None:
    assert (refusal(answer) is not None) is refused


def exchange(cached: int | None, external: float | None = None, **more: object) -> Exchange:
    made = Exchange(
        trial=Trial(id="a/reset", route="a", tier=300, condition="cold", repeat=0),
        prompt=PromptRecipe(
            sha256="",
            tokens=300,
            endpoint="chat",
            corpus="",
            corpus_sha256="",
            task="",
            start=0,
            fixed_prefix=3,
        ),
        url="",
        sent_ns=1,
        ended_ns=1,
        usage=Usage(cached_tokens=cached),
    )
    if external is not None:
        pages = [
            Scrape(at_ns=0, took_ns=0, values={"external_prefix_hits": value})
            for value in (5.0, 5.0 + external)
        ]
        made = msgspec.structs.replace(made, before=pages[0], after=pages[1])
    return msgspec.structs.replace(made, **more)


@pytest.mark.parametrize(
    ("again", "proven"),
    [
        (exchange(0), True),
        (exchange(3), True),  # the template, which every prompt shares
        (exchange(288), False),
        (exchange(0, external=256.0), False),  # an offload tier that the reset did not reach
        (exchange(None), None),
        (exchange(0, failure=Failure(kind="reset", message="gone")), None),
    ],
)
def test_only_a_probe_computed_anew_proves_a_reset(again: Exchange, proven: bool | None) -> None:
    assert proof(again, get("vllm"))[0] is proven


def test_a_probe_is_long_enough_to_hit_and_no_longer_than_a_trial() -> None:
    assert probe_tokens(ServerFacts(block_size=1616), 564_577) == 3 * 1616 + 1
    assert probe_tokens(ServerFacts(block_size=16), 564_577) == 256
    assert probe_tokens(ServerFacts(block_size=1616), 2048) == 2048
