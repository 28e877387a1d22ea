"""What goes wrong on the real engine is caught: another slot, foreign requests, a restart.

These tests fail when the engine cannot be started; they are never skipped.
"""

from __future__ import annotations

import asyncio

from analysis_cases import run

from bench.analysis.verdicts.measure import Measurer
from bench.prompting.compose import Prompt
from bench.records import (
    Exchange,
    Measurement,
    PromptRecipe,
    RequestSettings,
    Route,
    Trial,
)
from bench.run.exchange import Exchanger
from bench.run.openroute import OpenRoute, connect
from bench.run.progress import Phase, Progress
from bench.servers.llama import LlamaSettings, serve
from bench.wire.client import Client

OUTPUT = 4
ENGINE = LlamaSettings(context=512, slots=2, host_cache_mib=0)
TEXT = "Seven ships left the harbour before dawn, and the old pilot counted them twice, then once more."


async def _nowhere(name: str, page: str) -> str:
    return name


class _Signal(Progress):
    """Tells when a request is about to be sent: before that, the idle gate would wait for strangers."""

    def __init__(self) -> None:
        super().__init__()
        self.sending = asyncio.Event()

    def enter(self, phase: Phase, now_ns: int) -> None:
        super().enter(phase, now_ns)
        if phase == "prefill":
            self.sending.set()


async def _ask(opened: OpenRoute, condition: str, salt: str, progress: Progress | None = None) -> Exchange:
    """One exchange; the engine itself counts the prompt."""
    path, body = opened.dialect.tokenize_request(f"{salt}\n{TEXT}", opened.model) or ("", {})
    answer = await opened.client.post_json(opened.root + path, body)
    recipe = PromptRecipe(
        sha256=salt,
        tokens=len(opened.dialect.read_tokens(answer)),
        endpoint="completions",
        corpus="test",
        corpus_sha256="",
        task="",
        start=0,
        salt=salt,
    )
    trial = Trial(
        id=f"r/{condition}/{salt}",
        route="r",
        tier=recipe.tokens,
        condition=condition,  # type: ignore[arg-type]
        repeat=1,
        replay=int(condition == "replay"),
        output_tokens=OUTPUT,
    )
    prompt = Prompt(recipe=recipe, rest=TEXT)
    return await Exchanger(_nowhere, progress or Progress()).perform(opened, prompt, trial, 1, "trial")


def _route(base_url: str, slot: int) -> Route:
    settings = RequestSettings(endpoint="completions", extra_body={"id_slot": slot})
    return Route(name="r", base_url=base_url, request=settings)


def _measurer(route: Route) -> Measurer:
    return Measurer(run(route=route))


def _against(measured: Measurement) -> set[str]:
    """Reasons, without those that tell of the machine the test runs on."""
    noise = {"client_bottleneck", "buffered"}
    return {reason.id for reason in measured.verdict.reasons} - noise


async def _foreign(opened: OpenRoute, salt: str, sending: asyncio.Event) -> None:
    await sending.wait()
    body = {"prompt": f"{salt} a short question of somebody else", "max_tokens": 2, "id_slot": 0}
    await opened.client.post_json(opened.route.base_url + "/completions", body)


async def _slots_and_strangers(base_url: str) -> tuple[list[Measurement], Measurer]:
    route = _route(base_url, 0)
    measurer = _measurer(route)
    async with Client(base_url) as client:
        first = await connect(route, client)
        second = await connect(_route(base_url, 1), client)
        cold = await _ask(first, "cold", "amber")
        exchanges = [cold, await _ask(first, "replay", "amber"), await _ask(second, "replay", "amber")]
        signal = _Signal()
        crowded, *_ = await asyncio.gather(
            _ask(second, "cold", "birch", signal),
            _foreign(first, "one", signal.sending),
            _foreign(first, "two", signal.sending),
        )
        exchanges.append(crowded)
        return [measurer.add(exchange) for exchange in exchanges], measurer


async def _replay_elsewhere(base_url: str) -> Exchange:
    async with Client(base_url) as client:
        return await _ask(await connect(_route(base_url, 0), client), "replay", "amber")


def test_another_slot_foreign_requests_and_a_restart_are_each_caught() -> None:
    with serve(ENGINE) as url:
        (cold, replay, elsewhere, crowded), measurer = asyncio.run(_slots_and_strangers(url))
    assert cold.verdict.reuse == "held" and cold.cached_tokens == 0 and _against(cold) == set()
    assert replay.prompt_tokens is not None
    assert replay.cached_tokens == replay.expected_cached == replay.prompt_tokens - 1
    assert replay.verdict.reuse == "held" and _against(replay) == set()
    assert _against(elsewhere) == {"replay_missed"}
    assert "foreign_traffic" in _against(crowded)
    with serve(ENGINE) as again:
        late = measurer.add(asyncio.run(_replay_elsewhere(again)))
    assert _against(late) == {"cold_before_restart"}
