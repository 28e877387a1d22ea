"""Builds the composers of a run: tokenizer, corpus, and the chat template as each server applies it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from itertools import product
from pathlib import Path
from typing import Any

from bench.errors import EngineError, SuiteError
from bench.folders import cache_folder
from bench.prompting.borders import IndexedCorpus, index_corpus, kept_index, tokens_wanted
from bench.prompting.compose import Composer
from bench.prompting.corpus import Corpus, load_corpus
from bench.prompting.template import TOKEN_IDS, Message, Template, measure_template, measure_text
from bench.prompting.tokens import (
    ServerTokenizer,
    Tokenizer,
    compare_with_server,
    load_tokenizer,
    server_identity,
)
from bench.records import PromptSettings, RunInfo, Suite, TokenizerIdentity, Trial
from bench.run.openroute import OpenRoute

_TOKENIZE_TIMEOUT_S = 300.0
_COMPARED_SAMPLES = 10

Post = Callable[[str, dict[str, Any]], Any]
"""POSTs JSON to a path of the server from a worker thread; blocks until the answer is there."""


def corpus_of(suite: Suite, folder: Path) -> Corpus:
    """The text that a suite's prompts are cut from; `folder` is where relative paths start.

    It needs no server, so it can be loaded while servers are asked: most of its time goes into a checksum,
    which holds nobody up. Raises `SuiteError`.
    """
    return load_corpus(suite.prompt.corpus, base=folder, cache=cache_folder())


async def composers(
    info: RunInfo,
    open_routes: Mapping[str, OpenRoute],
    *,
    folder: Path,
    taken: Iterable[str] = (),
    corpus: Corpus | None = None,
) -> dict[str, Composer]:
    """A composer per route; routes that count alike share one, and so get equal prompts.

    `folder`: where the suite's relative paths start. `taken`: salts of earlier sessions of the run.
    `corpus`: of the suite, where it has been loaded already (`corpus_of`).
    Raises `SuiteError` when corpus, task or tokenizer cannot be used, `EngineError` when a server
    does not tokenise as it should.
    """
    text = await asyncio.to_thread(corpus_of, info.suite, folder) if corpus is None else corpus
    workshop = _Workshop(info, text, folder, tuple(taken))
    loop = asyncio.get_running_loop()
    made: dict[tuple[str, Template], Composer] = {}
    by_route: dict[str, Composer] = {}
    own = await asyncio.to_thread(_own_tokenizer, info.suite.prompt, text, folder)
    for name, opened in open_routes.items():
        server = _ServerCount(opened, _blocking_post(opened, loop))
        tokenizer = own if own is not None else await asyncio.to_thread(_server_tokenizer, server)
        # While the server answers: the checksums of what is kept of this corpus.
        template, kept = await asyncio.gather(
            asyncio.to_thread(_template, server, tokenizer, text),
            asyncio.to_thread(workshop.kept, tokenizer),
        )
        key = (tokenizer.identity.sha256, template)
        if key not in made:
            made[key] = await asyncio.to_thread(workshop.composer, tokenizer, template, kept)
        by_route[name] = made[key]
    return by_route


class _Workshop:
    """Makes the composers of a run from its corpus."""

    def __init__(self, info: RunInfo, corpus: Corpus, folder: Path, taken: Sequence[str]) -> None:
        self._info = info
        self._corpus = corpus
        self._folder = folder
        self._taken = taken
        self._cache = cache_folder()
        self._need = tokens_wanted(max(_lengths(info)))
        self._indexed: dict[str, IndexedCorpus] = {}

    def kept(self, tokenizer: Tokenizer) -> IndexedCorpus | None:
        """The borders that another route has, else those of an earlier run."""
        here = self._indexed.get(tokenizer.identity.sha256)
        if here is not None:
            return here
        return kept_index(self._corpus, tokenizer, need_tokens=self._need, cache=self._cache)

    def composer(self, tokenizer: Tokenizer, template: Template, kept: IndexedCorpus | None) -> Composer:
        """Tried out: what it cannot compose is told before anything is written."""
        if kept is None:
            kept = index_corpus(self._corpus, tokenizer, need_tokens=self._need, cache=self._cache)
        self._indexed[tokenizer.identity.sha256] = kept
        made = Composer(
            tokenizer,
            kept,
            self._info.suite.prompt,
            template=template,
            nonce=self._info.nonce,
            seed=self._info.suite.seed,
            taken=self._taken,
            cache=self._cache,
            base=self._folder,
        )
        _try_out(made, self._info)
        return made


async def tokenizer_of_server(opened: OpenRoute) -> TokenizerIdentity:
    """Which tokenizer a route's server has now. Raises `EngineError` when it does not tokenise."""
    server = _ServerCount(opened, _blocking_post(opened, asyncio.get_running_loop()))
    return await asyncio.to_thread(server.identity)


def _lengths(info: RunInfo) -> set[int]:
    """All prompt lengths: the suite's tiers, and those that follow from a drafter limit."""
    return {*info.suite.tiers, *(trial.tier for trial in info.plan if not trial.turn)}


def _try_out(composer: Composer, info: RunInfo) -> None:
    """Composes the shortest and the longest prompt of each task once: a corpus that is too short, a
    tier that is too small or a task that is not there is found before anything is written."""
    tiers = sorted(_lengths(info))
    for tier, task in product(dict.fromkeys((tiers[0], tiers[-1])), info.suite.prompt.tasks):
        trial = Trial(id="check", route="check", tier=tier, condition="cold", repeat=0, task=task)
        composer.compose(trial, pair="check")


def _own_tokenizer(settings: PromptSettings, corpus: Corpus, folder: Path) -> Tokenizer | None:
    """The tokenizer of the file that the suite names; `None`: every server's own counts."""
    if settings.tokenizer is None:
        return None
    samples = corpus.samples(_COMPARED_SAMPLES)
    try:
        return load_tokenizer(folder / settings.tokenizer, samples=samples, cache=cache_folder())
    except SuiteError as error:
        raise SuiteError(f"[prompt] tokenizer: {error}") from error


def _server_tokenizer(server: _ServerCount) -> Tokenizer:
    if not server.tokenises:
        raise SuiteError(
            f"route {server.route}: this server has no /tokenize, so prompts cannot be counted: "
            "give [prompt] tokenizer, the path of the model's tokenizer.json"
        )
    return ServerTokenizer(server.ask, server.identity())


def _template(server: _ServerCount, tokenizer: Tokenizer, corpus: Corpus) -> Template:
    """The chat template as the server applies it; a tokenizer of ours is proven against it before."""
    if server.tokenises and not isinstance(tokenizer, ServerTokenizer):
        problem = compare_with_server(tokenizer, server.ask, corpus.samples(_COMPARED_SAMPLES))
        if problem:
            raise SuiteError(f"route {server.route}: {problem}")
    if server.endpoint == "tokens":
        return TOKEN_IDS
    if server.endpoint == "completions":
        return measure_text(server.count_text, tokenizer)
    return measure_template(server.count_chat, tokenizer)


class _ServerCount:
    """What a server itself counts: through its /tokenize, else by one-token requests."""

    def __init__(self, opened: OpenRoute, post: Post) -> None:
        self._opened = opened
        self._dialect = opened.dialect
        self._post = post
        self.route = opened.route.name
        self.endpoint = opened.route.request.endpoint
        self.tokenises = self._dialect.tokenize_request("a", opened.model) is not None

    def identity(self) -> TokenizerIdentity:
        """Which tokenizer the server has."""
        return server_identity(self.ask, self._opened.model)

    def ask(self, text: str) -> tuple[list[int], list[bytes] | None]:
        """Token ids of a text and, where the server gives them, the tokens' bytes."""
        model = self._opened.model
        request = self._dialect.pieces_request(text, model) or self._dialect.tokenize_request(text, model)
        if request is None:
            raise EngineError(f"route {self._opened.route.name}: the server has no /tokenize")
        answer = self._post(*request)
        return self._dialect.read_tokens(answer), self._dialect.read_pieces(answer)

    def count_text(self, text: str) -> int:
        """Tokens of a completion's prompt, an opening token included."""
        return self._one_token_request("/completions", {"prompt": text})

    def count_chat(self, messages: list[Message]) -> int | list[int]:
        """Tokens of a chat with its template."""
        settings = self._opened.route.request
        steps = self._dialect.tokenize_messages_request(
            messages, self._opened.model, settings.chat_template_kwargs
        )
        if steps is None:
            return self._one_token_request("/chat/completions", {"messages": messages})
        answer: object = None
        for step in steps:
            answer = self._post(step.path, step.body_after(answer))
        return self._dialect.read_tokens(answer)

    def _one_token_request(self, path: str, prompt: dict[str, Any]) -> int:
        """Asks the model itself, with a throw-away text that no measured prompt shares."""
        opened = self._opened
        body = {"model": opened.model, "max_tokens": 1, "temperature": 0, **prompt}
        kwargs = opened.route.request.chat_template_kwargs
        if kwargs and "messages" in prompt:
            body["chat_template_kwargs"] = kwargs
        version = opened.route.base_url.removeprefix(opened.root)
        answer = self._post(version + path, body)
        usage = answer.get("usage") if isinstance(answer, Mapping) else None
        tokens = usage.get("prompt_tokens") if isinstance(usage, Mapping) else None
        if not isinstance(tokens, int) or isinstance(tokens, bool) or tokens < 1:
            raise EngineError(
                f"route {opened.route.name}: the server's answer has no usage.prompt_tokens that is a count; "
                "no prompt length can be proven without it"
            )
        return tokens


def _blocking_post(opened: OpenRoute, loop: asyncio.AbstractEventLoop) -> Post:
    def post(path: str, body: dict[str, Any]) -> Any:
        work: Future[Any] = asyncio.run_coroutine_threadsafe(
            opened.client.post_json(
                opened.root + path, body, timeout_s=_TOKENIZE_TIMEOUT_S, if_missing=opened.whose
            ),
            loop,
        )
        return work.result()

    return post
