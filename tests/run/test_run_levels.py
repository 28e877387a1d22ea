"""Levels of concurrency on simulated servers: waves as a whole, held against what really happened."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import msgspec
import numpy as np
import pytest
from run_helpers import events, exchanges, interrupted, only_run, suite_text

from bench.analysis.statistics.levels import levels
from bench.analysis.verdicts.measure import measure_all
from bench.engines import get
from bench.journal import read_info
from bench.plan.suite import parse_suite
from bench.plan.trials import wave_name
from bench.prompting.compose import Prompt
from bench.records import Exchange, Level, Measurement, PromptRecipe, Route, ServerFacts, Trial
from bench.run.exchange import Exchanger
from bench.run.openroute import OpenRoute
from bench.run.progress import Progress
from bench.run.status import status
from bench.run.study import Order, resume, start
from bench.run.wave import Member
from bench.servers.simulator import RequestTruth, load_profile
from bench.servers.simulator import start as simulate
from bench.wire.client import Client, Prepared

SPEED = 0.25
"""Slow enough that a busy machine does not hold an answer back as a whole: 16 tokens take 0.3 s."""
SPECULATION = 'speculation = { method = "mtp", num_speculative_tokens = 2 }'


def suite(base_url: str, *, keys: str = "", route: str = "") -> str:
    """One repeat of one tier in waves of four: cold and replayed once."""
    text = suite_text({"a": base_url}, suite=f'concurrency = [4]\nwarmup = "none"\n{keys}', route=route)
    text = text.replace("[256, 512]", "[512]").replace("repeats = 2", "repeats = 1")
    return text.replace("retry_invalid = 3", 'retry_invalid = 3\nconditions = ["cold", "replay"]')


def order(text: str, results: Path) -> Order:
    return Order(suite=parse_suite(text), suite_text=text, results=results)


def measured(run: Path) -> list[Measurement]:
    return list(measure_all(read_info(run), exchanges(run)))


def test_a_wave_is_prepared_once_and_given_the_time_of_all_its_prompts() -> None:
    route = Route(name="a", base_url="http://127.0.0.1:1/v1")
    client = Client(route.base_url)
    opened = OpenRoute(
        route=route,
        client=client,
        dialect=get("vllm"),
        facts=ServerFacts(),
        model="m",
        metrics_url=None,
    )
    exchanger = Exchanger(_keep_nothing, Progress())

    def prepare(*numbers: int) -> list[Prepared]:
        return [one.prepared for one in exchanger._prepare(opened, [_member(n) for n in numbers])]

    first, again = prepare(1, 2, 3), prepare(1, 2, 3)
    assert [one.first_token_s for one in first] == [pytest.approx(120 + 0.01 * 3 * 500)] * 3
    assert len({one.body for one in first}) == 3
    for one, other in zip(first, again, strict=True):
        assert one.body is other.body  # a replay sends the same bytes
    (alone,) = prepare(2)
    assert alone.first_token_s == 120 + 0.01 * 500 and alone.body is first[1].body
    (later,) = prepare(1)
    assert later.body == first[0].body and later.body is not first[0].body  # let go meanwhile


def test_equal_texts_behind_another_cache_salt_are_another_request() -> None:
    opened = OpenRoute(
        route=Route(name="a", base_url="http://127.0.0.1:1/v1"),
        client=Client("http://127.0.0.1:1/v1"),
        dialect=get("vllm"),
        facts=ServerFacts(),
        model="m",
        metrics_url=None,
    )
    exchanger = Exchanger(_keep_nothing, Progress())
    salts = ["one", "one", "two", "two", None]
    bodies = []
    for salt in salts:
        (one,) = exchanger._prepare(opened, [_member(1, cache_salt=salt)])
        bodies.append(one.prepared.body)
    assert [msgspec.json.decode(body).get("cache_salt") for body in bodies] == salts
    assert bodies[0] is bodies[1] and bodies[2] is bodies[3]  # a replay sends the same bytes


def _member(number: int, *, cache_salt: str | None = None) -> Member:
    recipe = PromptRecipe(
        sha256=f"s{number}",
        tokens=500,
        endpoint="chat",
        corpus="",
        corpus_sha256="",
        task="t",
        start=0,
        cache_salt=cache_salt,
    )
    trial = Trial(id=f"{number}", route="a", tier=500, condition="cold", repeat=1, output_tokens=4)
    return Member(trial=trial, prompt=Prompt(recipe=recipe, rest=f"text {number}"))


async def _keep_nothing(name: str, page: str) -> str:
    return name


def all_valid(run: Path) -> bool:
    """Whether every trial of the plan has a valid measurement, after however many attempts."""
    return {row.trial_id for row in measured(run) if row.verdict.valid} == {t.id for t in read_info(run).plan}


def sent(run: Path) -> list[tuple[str, int, str, int, int]]:
    """(wave, attempt, purpose, requests, failures), in order."""
    found: dict[str, list[Exchange]] = {}
    for one in exchanges(run):
        assert one.wave is not None
        found.setdefault(one.wave.id, []).append(one)
    return [
        (
            wave_name(wave[0].trial),
            wave[0].attempt,
            wave[0].purpose,
            len(wave),
            sum(one.failure is not None for one in wave),
        )
        for wave in found.values()
    ]


ATTEMPTS = 4
"""How often a wave may be held up by a crowded machine: counts must be right every time, times once."""


def test_throughput_queueing_and_reuse_of_four_at_once_are_the_true_ones(tmp_path: Path) -> None:
    """Two sequences run at a time, so that two of four must wait; a wave takes about two seconds."""
    profile = msgspec.structs.replace(load_profile("toy"), max_num_seqs=2)
    apart: list[str] = []
    with simulate(profile, speed=0.2) as server:
        text = suite(server.base_url, route=SPECULATION).replace("output_tokens = 16", "output_tokens = 64")
        for attempt in range(ATTEMPTS):
            before = len(server.truth().requests)
            run = asyncio.run(start(order(text, tmp_path / str(attempt)), Progress()))
            truths = [one for one in server.truth().requests[before:] if one.prompt_tokens == 512]
            apart = _apart(measured(run), truths, run)
            if not apart:
                return
    pytest.fail("; ".join(apart))


def _apart(rows: list[Measurement], truths: list[RequestTruth], run: Path) -> list[str]:
    """Times of the first valid wave of each condition that are not the true ones; counts are asserted."""
    assert len(truths) == len(rows) and all_valid(run)
    found: list[str] = []
    for condition in ("cold", "replay"):
        place = next(i for i, row in enumerate(rows) if row.verdict.valid and row.condition == condition)
        (level,) = levels(rows[place : place + 4])  # the server's requests come in the order of the waves
        assert (level.waves, level.requests, level.condition) == (1, 4, condition)
        found += _compare(level, truths[place : place + 4])
        if condition == "replay":
            assert level.prefix_reuse is not None and level.prefix_reuse.value == 480 / 512
    return found


def _compare(level: Level, true: list[RequestTruth]) -> list[str]:
    """The numbers of one wave beside what its server did: counts exact, times within 2%."""
    span_s = (max(one.chunk_sent_ns[-1] for one in true) - min(one.arrived_ns for one in true)) / 1e9
    output = sum(one.output_tokens for one in true)
    queue = [one.queue_s for one in true if one.queue_s is not None]
    ttfts = [(one.chunk_sent_ns[0] - one.arrived_ns) / 1e9 for one in true]
    assert level.output_tok_s is not None and level.requests_s is not None
    assert level.queue_s is not None and len(queue) == 4
    assert level.queue_s.value > 0.1 * span_s  # somebody did wait
    assert level.ttft_s is not None
    assert level.prefix_reuse is not None and level.acceptance is not None
    assert level.prefix_reuse.value == sum(one.cached_tokens for one in true) / (4 * 512)
    drafted = sum(one.draft_tokens for one in true)
    assert level.acceptance.value == sum(one.accepted_tokens for one in true) / drafted
    pairs = {
        "output tok/s": (level.output_tok_s.value, output / span_s),
        "requests/s": (level.requests_s.value, 4 / span_s),
        "queueing": (level.queue_s.value, sum(queue) / 4),
        "TTFT p90": (level.ttft_s.p90, float(np.percentile(ttfts, 90))),
    }
    return [
        f"{level.condition} {name}: {measured:.4g}, true {truth:.4g}"
        for name, (measured, truth) in pairs.items()
        if measured != pytest.approx(truth, rel=0.02)
    ]


def test_every_stream_has_a_prompt_and_a_line_of_its_own_and_the_pages_are_kept_once(tmp_path: Path) -> None:
    with simulate("toy-target-only", speed=SPEED) as server:
        run = asyncio.run(start(order(suite(server.base_url), tmp_path), Progress()))
    found = exchanges(run)
    assert [one.trial.id for one in found[:8]] == [trial.id for trial in read_info(run).plan]
    cold, replay = found[:4], found[4:8]
    assert len({one.prompt.sha256 for one in cold}) == len({one.prompt.start for one in cold}) == 4
    assert [one.prompt.sha256 for one in replay] == [one.prompt.sha256 for one in cold]
    for wave in (cold, replay):
        assert len({one.wave for one in wave}) == 1
        assert [one.after is not None and one.before is not None for one in wave] == [
            True,
            False,
            False,
            False,
        ]
        assert [bool(one.samples.at_ns) for one in wave][1:] == [False] * 3
        assert all(one.wave and one.sent_ns >= one.wave.released_ns for one in wave)
    # One page before and one after each wave.
    assert len(list((run / "scrapes").iterdir())) == 2 * len(found) // 4


@pytest.mark.usefixtures("single_preflight")
def test_a_wave_with_one_failed_stream_is_repeated_as_a_whole_behind_fresh_salts(tmp_path: Path) -> None:
    # Request 1 is the preflight's.
    with simulate("toy-target-only", speed=SPEED, faults=["reset-stream@3"]) as server:
        run = asyncio.run(start(order(suite(server.base_url), tmp_path), Progress()))
    assert sent(run)[:3] == [
        ("a/512/cold/1@4", 1, "trial", 4, 1),
        ("a/512/cold/1@4", 2, "trial", 4, 0),
        ("a/512/replay/1.1@4", 1, "trial", 4, 0),
    ]
    found = exchanges(run)
    assert len({one.prompt.salt for one in found[:8]}) == 8
    first = [row.verdict.reasons[0].id for row in measured(run)[:4]]
    assert sorted(first) == ["failed"] + ["wave_spoilt"] * 3
    assert all_valid(run)


def test_a_wave_that_missed_is_replayed_behind_a_new_cold_wave(tmp_path: Path) -> None:
    with simulate("toy-target-only", speed=SPEED, faults=["first-replay-misses"]) as server:
        run = asyncio.run(start(order(suite(server.base_url), tmp_path), Progress()))
    assert [one[:3] for one in sent(run)][:4] == [
        ("a/512/cold/1@4", 1, "trial"),
        ("a/512/replay/1.1@4", 1, "trial"),
        ("a/512/cold/1@4", 2, "prime"),
        ("a/512/replay/1.1@4", 2, "trial"),
    ]


def test_ctrl_c_in_a_wave_keeps_every_stream_and_the_rest_is_done_on_resume(tmp_path: Path) -> None:
    with simulate("toy-target-only", speed=0.05) as server:
        with pytest.raises(asyncio.CancelledError):
            let_go = interrupted(order(suite(server.base_url), tmp_path), lambda now: now.together == 4)
            asyncio.run(let_go)
        run = only_run(tmp_path)
        cut = exchanges(run)
        assert [one.failure.kind for one in cut if one.failure] == ["cancelled"] * 4
        assert {row.verdict.reasons[0].id for row in measured(run)} == {"cut_off"}
    _finish(run, tmp_path)
    assert [one[:4] for one in sent(run)][:3] == [
        ("a/512/cold/1@4", 1, "trial", 4),
        ("a/512/cold/1@4", 2, "trial", 4),
        ("a/512/replay/1.1@4", 1, "trial", 4),
    ]
    assert all_valid(run)


def _finish(run: Path, results: Path) -> None:
    """Resumes a run on a fresh server at the address of the old one."""
    port = int(read_info(run).suite.routes[0].base_url.rpartition(":")[2].partition("/")[0])
    with simulate("toy-target-only", speed=SPEED, port=port):
        asyncio.run(resume(run, Progress(), folder=results))


def test_a_torn_wave_of_replays_is_done_again_as_a_whole_behind_the_prompts_still_in_the_cache(
    tmp_path: Path,
) -> None:
    """As `kill -9` leaves it: the journal ends after three of the four lines of a wave."""
    with simulate("toy-target-only", speed=SPEED) as server:
        run = asyncio.run(start(order(suite(server.base_url), tmp_path), Progress()))
        journal = run / "journal.jsonl"
        lines = journal.read_bytes().splitlines(keepends=True)
        ends = [place for place, line in enumerate(lines) if b'"kind":"exchange"' in line]
        first = next(i for i, one in enumerate(exchanges(run)) if one.trial.condition == "replay")
        torn = ends[first + 3]
        journal.write_bytes(b"".join(lines[:torn]) + lines[torn][:50])
        assert [row.verdict.reasons for row in measured(run)[:-3] if row.verdict.valid] == [()] * 4
        assert [row.verdict.reasons[0].id for row in measured(run)[-3:]] == ["wave_incomplete"] * 3
        asyncio.run(resume(run, Progress(), folder=tmp_path))
    rows = measured(run)[first:]
    assert [(row.condition, row.attempt) for row in rows[:7]] == [("replay", 1)] * 3 + [("replay", 2)] * 4
    assert all_valid(run)


def levels_suite(base_url: str) -> str:
    """Two levels, two repeats: alone, then in waves of four."""
    text = suite(base_url).replace("concurrency = [4]", "concurrency = [1, 4]")
    return text.replace("repeats = 1", "repeats = 2").replace("output_tokens = 16", "output_tokens = 4")


@pytest.mark.usefixtures("single_preflight")
def test_a_level_that_is_turned_away_is_a_result_and_neither_an_outage_nor_a_storm(tmp_path: Path) -> None:
    """A gateway takes two at once. Request 1 is the preflight's, 2 and 3 are the level of one."""
    refused = [f"rate-limited@{first}-{first + 1}" for first in (6, 10, 16)]
    with simulate("toy-target-only", faults=refused) as server:
        run = asyncio.run(start(order(levels_suite(server.base_url), tmp_path), Progress()))
        taken = len(server.truth().requests)
    told = exchanges(run)
    answered = Counter((wave_name(one.trial), one.attempt) for one in told if one.failure is None)
    # Turned away, repeated once, and then no more: not in the second repeat, and no replay of either.
    assert answered == {
        ("a/512/cold/1", 1): 1,
        ("a/512/replay/1.1", 1): 1,
        ("a/512/cold/1@4", 1): 2,
        ("a/512/cold/1@4", 2): 2,
        ("a/512/cold/2", 1): 1,
        ("a/512/replay/2.1", 1): 1,
        ("a/512/cold/2@4", 1): 2,
    }
    assert len(told) == taken - 1 == 4 + 3 * 4
    for outage in ("server-away", "server-back", "route-lost", "trial-left"):
        assert events(run, outage) == []
    found = status(run)
    assert (found.state, found.left, found.unmeasured) == ("finished", 0, 16)


@pytest.mark.usefixtures("single_preflight")
def test_a_wave_on_a_server_that_is_gone_is_an_outage_as_before(tmp_path: Path) -> None:
    with simulate("toy-target-only", faults=["server-error@2-5"]) as server:
        run = asyncio.run(start(order(suite(server.base_url), tmp_path), Progress()))
    assert [one[:2] for one in sent(run)][:2] == [("a/512/cold/1@4", 1), ("a/512/cold/1@4", 2)]
    assert len(events(run, "server-back")) == 1
    assert all_valid(run)
