"""One tiny request per route, judged by the same rules as a trial: what it shows, trials would show too."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec import Struct

from bench.analysis.verdicts.measure import Measurer
from bench.analysis.verdicts.reasons import REASONS, sentence_of
from bench.errors import EngineError
from bench.prompting.compose import Prompt
from bench.records import Exchange, Measurement, PromptRecipe, RunInfo, Scrape, Suite, Trial
from bench.run.exchange import Exchanger
from bench.run.openroute import OpenRoute
from bench.run.progress import Progress
from bench.wire.scrape import scrape, wait_idle

PROBE_TOKENS = 16
_SECOND_LOOK_TOKENS = 64
_TEXT = "Write one short line about the weather."
_IDLE_LIMIT_S = 8.0  # gauges that lag may need five seconds of standing still
_ANSWER_LIMIT_S = 60.0
_SCRAPE_TIMEOUT_S = 30.0
_TOKENIZE_TIMEOUT_S = 120.0

JUDGED = {
    "early_stop": "ignore_eos",
    "clamped_output": "output",
    "no_usage": "usage",
    "impossible_usage": "usage",
    "foreign_traffic": "idle",
    "restart": "restart",
    "replicas": "restart",
    "not_settled": "metrics",
    "buffered": "stream",
    "speculation_off": "speculation",
    "drafts_rejected": "speculation",
    "speculation_undeclared": "speculation",
    "speculation_differs": "speculation",
    "speculation_unseen": "speculation",
    "positions_differ": "speculation",
    "tokens_differ": "speculation",
}
"""Reason id -> name of the check. The others say nothing over so few tokens, or have checks of their own."""


_DOUBTFUL = frozenset({"buffered", "foreign_traffic", "speculation_off", "drafts_rejected"})
"""What a server's very first request, somebody's single one, or a few drafts of a weak drafter can look
like: believed the second time."""


class Probe(Struct, frozen=True, kw_only=True):
    """What the tiny request showed."""

    measured: Measurement
    exchange: Exchange
    expected_tokens: int | None
    """Prompt tokens by the server's own tokenizer, template included; `None`: it does not tell."""

    @property
    def answered(self) -> bool:
        return self.exchange.failure is None

    def findings(self) -> Iterable[tuple[str, bool, str]]:
        """(check, invalidates, sentence and what to do) for each reason that a trial would have as well."""
        verdict = self.measured.verdict
        for reason in (*verdict.reasons, *verdict.warnings):
            if reason.id in JUDGED:
                entry = REASONS[reason.id]
                text = f"{sentence_of(reason)} {entry.todo}"
                yield JUDGED[reason.id], entry.effect == "invalidates", text


async def busy(opened: OpenRoute) -> bool:
    """Whether the server is still at work for somebody after a few seconds."""
    if opened.metrics_url is None:
        return False
    wait = await wait_idle(lambda: look(opened), opened.dialect, limit_s=_IDLE_LIMIT_S)
    return wait.reached is False


async def look(opened: OpenRoute) -> Scrape:
    """The metrics page as it is now; the route must have one."""
    assert opened.metrics_url is not None  # noqa: S101 - callers ask before
    page, _ = await scrape(opened.client, opened.metrics_url, opened.dialect, timeout_s=_SCRAPE_TIMEOUT_S)
    return page


async def send(suite: Suite, opened: OpenRoute) -> Probe:
    """Sends the tiny request, and a somewhat longer one where the first leaves doubts."""
    probe = await _send(suite, opened, PROBE_TOKENS)
    verdict = probe.measured.verdict
    if _DOUBTFUL.isdisjoint(reason.id for reason in (*verdict.reasons, *verdict.warnings)):
        return probe
    return await _send(suite, opened, _SECOND_LOOK_TOKENS)


async def _send(suite: Suite, opened: OpenRoute, output_tokens: int) -> Probe:
    """One request, with everything around it that a trial has."""
    settings = opened.route.request
    timeouts = settings.timeouts
    patience = min(timeouts.first_token_s or _ANSWER_LIMIT_S, _ANSWER_LIMIT_S)
    timeouts = msgspec.structs.replace(
        timeouts, first_token_s=patience, idle_s=min(timeouts.idle_s, _ANSWER_LIMIT_S)
    )
    route = msgspec.structs.replace(
        opened.route, request=msgspec.structs.replace(settings, timeouts=timeouts)
    )
    hasty = msgspec.structs.replace(opened, route=route)
    trial = Trial(
        id="check", route=route.name, tier=0, condition="cold", repeat=0, output_tokens=output_tokens
    )
    exchanger = Exchanger(_keep_nothing, Progress(), keep_cancelled=False)
    exchange = await exchanger.perform(hasty, tiny_prompt(opened), trial, 1, "trial")
    info = RunInfo(
        schema=0,
        id="check",
        created_at="",
        nonce="",
        suite=suite,
        suite_text="",
        plan=(),
        facts={route.name: opened.facts},
    )
    return Probe(
        measured=Measurer(info).add(exchange),
        exchange=exchange,
        expected_tokens=await _told_tokens(opened) if exchange.failure is None else None,
    )


def tiny_prompt(opened: OpenRoute) -> Prompt:
    """A prompt of a few words, not composed: nothing of it is ever measured."""
    endpoint = opened.route.request.endpoint
    recipe = PromptRecipe(
        sha256="check",
        tokens=0,
        # As a text even where trials send token ids: nobody has tokenised anything yet.
        endpoint="chat" if endpoint == "chat" else "completions",
        corpus="",
        corpus_sha256="",
        task="check",
        start=0,
    )
    messages = ({"role": "user", "content": _TEXT},) if endpoint == "chat" else None
    return Prompt(recipe=recipe, rest=_TEXT, messages=messages)


async def _told_tokens(opened: OpenRoute) -> int | None:
    """Tokens of the tiny prompt by the server's tokenizer; only a chat shows what a template does."""
    if opened.route.request.endpoint != "chat":
        return None
    try:
        return await server_count(opened, [{"role": "user", "content": _TEXT}])
    except EngineError:
        return None  # composing will meet the same trouble and say it


async def server_count(opened: OpenRoute, messages: list[dict[str, str]]) -> int | None:
    """How many tokens `server_ids` gives."""
    ids = await server_ids(opened, messages)
    return None if ids is None else len(ids)


async def server_ids(opened: OpenRoute, messages: list[dict[str, str]]) -> list[int] | None:
    """Token ids of a chat by the server's own tokenizer, template included; `None`: it has none to ask.

    Raises `EngineError` when it does not answer.
    """
    kwargs = opened.route.request.chat_template_kwargs
    steps = opened.dialect.tokenize_messages_request(messages, opened.model, kwargs)
    if steps is None:
        return None
    answer: object = None
    for step in steps:
        answer = await opened.client.post_json(
            opened.root + step.path,
            step.body_after(answer),
            timeout_s=_TOKENIZE_TIMEOUT_S,
            if_missing=opened.whose,
        )
    return opened.dialect.read_tokens(answer)


async def _keep_nothing(name: str, page: str) -> str:
    return name
