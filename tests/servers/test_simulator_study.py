"""The published study comes out of the profiles: every row, to the digit, without a socket."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from bench.servers.simulator.engine import Engine
from bench.servers.simulator.profiles import load_profile
from bench.servers.simulator.sequence import Job, Sequence
from bench.servers.simulator.timing import tokenize_time_s

STUDY = Path(__file__).with_name("seed_study.csv")
ROWS = list(csv.DictReader(STUDY.read_text(encoding="utf-8").splitlines()))
OUTPUT = 512


def prompt(length: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 8192, length).astype(np.uint32)


def ask(engine: Engine, ids: np.ndarray, at_s: float, output: int = OUTPUT) -> Sequence:
    answer = np.arange(output, dtype=np.uint32)
    sequence = engine.submit(
        Job(
            id=f"at {at_s}",
            prompt=ids,
            answer=answer,
            max_tokens=output,
            arrived_s=at_s,
            seed=int(ids[:5].sum()),
        )
    )
    engine.advance(at_s + 5000)
    return sequence


def route_engine(route: str) -> Engine:
    return Engine(load_profile(f"qwen3.8-27b-v100-{route}"))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["id"])
def test_every_published_row_is_reproduced(row: dict[str, str]) -> None:
    engine = route_engine(row["route"])
    ids = prompt(int(row["prompt_tokens"]), seed=1)
    if row["condition"] == "salted":
        ask(engine, prompt(564_577, seed=2), 0.0)
    if row["condition"] == "replay":
        ask(engine, ids, 0.0)
    before = engine.stats.prefix_hits
    told = ask(engine, ids, 10_000.0)
    assert told.first_s is not None and told.last_s is not None
    assert told.first_s - 10_000 == pytest.approx(float(row["ttft_s"]), abs=1e-6)
    assert told.last_s - 10_000 == pytest.approx(float(row["total_s"]), abs=1e-6)
    counts = (told.drafts, told.draft_tokens, told.accepted)
    assert counts == tuple(int(row[name] or 0) for name in ("drafts", "draft_tokens", "accepted_tokens"))
    assert told.emitted == OUTPUT
    assert engine.stats.prefix_hits - before == int(row["prefix_hits"] or 0)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["id"])
def test_the_laws_alone_come_within_a_third_of_a_percent_of_every_row(row: dict[str, str]) -> None:
    """So that prompts of other lengths are as true as the published ones."""
    engine = route_engine(row["route"])
    ids = prompt(int(row["prompt_tokens"]), seed=1)
    if row["condition"] == "replay":
        ask(engine, ids, 0.0)
    told = ask(engine, ids, 10_000.0)
    assert told.published == row["id"]
    assert told.prefill_pace == pytest.approx(1, abs=1 / 300)
    assert told.decode_pace == pytest.approx(1, abs=1 / 300)


def test_the_tokenizer_takes_as_long_as_the_published_one() -> None:
    laws = load_profile("qwen3.8-27b-v100-mtp4").timing
    assert 2.4811 <= tokenize_time_s(laws, 564_577) <= 2.51695


@pytest.mark.parametrize(
    ("route", "cached"),
    # floor(564,576 / block) blocks, one less with a drafter: 1,616, 1,600 and 1,568 tokens
    [("mtp4", 348 * 1616), ("mtp2", 351 * 1600), ("target-only", 360 * 1568)],
)
def test_a_replay_reuses_whole_blocks_less_the_drafters_one(route: str, cached: int) -> None:
    engine = route_engine(route)
    ids = prompt(564_577, seed=1)
    ask(engine, ids, 0.0)
    assert ask(engine, ids, 10_000.0).cached == cached


def test_the_crossovers_of_the_whole_study_are_the_published_ones() -> None:
    """At one tier, as a study measures: mtp4 against target-only near 1,770, against mtp2 near 11,500."""
    ids = prompt(564_577, seed=3)
    start, pace = {}, {}
    for route in ("mtp4", "mtp2", "target-only"):
        told = ask(route_engine(route), ids, 0.0)
        assert told.first_s is not None and told.last_s is not None
        start[route], pace[route] = told.first_s, (told.last_s - told.first_s) / (OUTPUT - 1)

    def crossover(base: str) -> float:
        return 1 + (start["mtp4"] - start[base]) / (pace[base] - pace["mtp4"])

    assert crossover("target-only") == pytest.approx(1777, rel=0.05)
    assert crossover("mtp2") == pytest.approx(11_888, rel=0.05)
