"""One simulated server without its HTTP surface: requests in, jobs and truth out."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import numpy as np

import bench.servers.simulator.dialect as dialect

from .dialect import ChatRequest, CompletionRequest, Counts, Rejected
from .driver import Driver
from .engine import Engine
from .faults import Faults
from .logs import ServerLog
from .metrics import Gauges, deform, families, render, two_engines
from .profiles import Profile
from .sequence import Behaviour, Emission, Job, Sequence
from .store import Prompt, PromptStore
from .tokens import render_chat, shipped_tokenizer
from .truth import Ledger, RequestTruth, Truth

_TICK_S = 0.5
_SHORT_TEXT = 100_000
_FOREIGN_PROMPT, _FOREIGN_ANSWER = 1000, 64


def behaviour_of(profile: Profile, faults: Faults) -> Behaviour:
    """What the faults of a server mean for its engine."""
    quarter = {"over-limit-no-drafts", "over-limit-zero-accepted", "warning-per-step"} & faults.names
    zero = "over-limit-zero-accepted" in faults
    return Behaviour(
        salt_ignored="salt-ignored" in faults,
        evicts="evicts" in faults,
        first_replay_misses="first-replay-misses" in faults,
        block_extra=16 * profile.k if "block-by-k" in faults else 0,
        never_drafts="speculation-off" in faults,
        drafter_limit=profile.max_model_len // 4 if quarter else None,
        past_limit="zero-accepted" if zero else "no-drafts" if quarter else None,
        warns_every_step="warning-per-step" in faults,
    )


class Passage:
    """One generation request on its way through the server."""

    def __init__(
        self, truth: RequestTruth, sequence: Sequence, queue: asyncio.Queue[Emission | None], driver: Driver
    ) -> None:
        self.truth = truth
        self.sequence = sequence
        self.queue = queue
        self.driver = driver
        self.faults = frozenset(truth.faults)

    def counts(self, completion: int, *, hide_cached: bool) -> Counts:
        prompt = self.truth.prompt_tokens + (3 if "count-off" in self.faults else 0)
        cached = self.sequence.cached
        block = self.driver.engine.block
        created = max(0, self.truth.prompt_tokens // block * block - cached)
        return Counts(
            prompt=prompt, completion=completion, cached=None if hide_cached else cached, created=created
        )

    def settle(self) -> None:
        """Write what became of it into the truth."""
        sequence, truth, speed = self.sequence, self.truth, self.driver.speed
        truth.cached_tokens = sequence.cached
        truth.output_tokens = sequence.emitted
        truth.drafts, truth.draft_tokens = sequence.drafts, sequence.draft_tokens
        truth.accepted_tokens = sequence.accepted
        truth.over_limit_steps, truth.preemptions = sequence.over_limit_steps, sequence.preemptions
        truth.finish, truth.published = sequence.finish, sequence.published
        if sequence.scheduled_s is not None:
            truth.queue_s = (sequence.scheduled_s - sequence.ready_s) / speed
        if sequence.first_s is not None:
            truth.full_ttft_s = sequence.first_s - sequence.arrived_s
            truth.ttft_s = truth.full_ttft_s / speed
        if sequence.last_s is not None:
            truth.full_total_s = sequence.last_s - sequence.arrived_s
            truth.total_s = truth.full_total_s / speed


class Core:
    """Profile, engine, prompts, faults and truth of one server."""

    def __init__(
        self,
        profile: Profile,
        *,
        speed: float,
        faults: Faults,
        log: ServerLog,
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.profile, self.speed, self.faults, self.log = profile, speed, faults, log
        self.clock_ns = clock_ns
        self.tokenizer = shipped_tokenizer()
        self.prompts = PromptStore()
        self.ledger = Ledger()
        self.generations = 0
        self.pages = 0
        self.restarts = 0
        self.late_page = ""
        self._boot()

    def _boot(self) -> None:
        behaviour = behaviour_of(self.profile, self.faults)
        self.driver = Driver(Engine(self.profile, speed=self.speed, behaviour=behaviour), self.speed)
        self.started_at = time.time()
        self.log.started(self.profile, self.driver.engine)

    # --- prompts ---

    async def prompt_of_text(self, text: str) -> Prompt:
        """Long texts are tokenised in a thread: a million tokens must not hold up other streams."""
        if len(text) < _SHORT_TEXT:
            return self.prompts.of_text(text, self.tokenizer.encode)
        return await asyncio.to_thread(self.prompts.of_text, text, self.tokenizer.encode)

    async def prompt(self, request: ChatRequest | CompletionRequest) -> tuple[Prompt, str]:
        """The prompt of a request, and the name of its endpoint. Raises `Rejected`."""
        try:
            if isinstance(request, ChatRequest):
                text = render_chat(request.messages, generation_prompt=request.add_generation_prompt)
                return await self.prompt_of_text(text), "chat"
            given = request.prompt
            if isinstance(given, list) and len(given) == 1 and isinstance(given[0], (str, list)):
                given = given[0]
            if isinstance(given, str):
                return await self.prompt_of_text(given), "completions"
            ids = await asyncio.to_thread(self.prompts.of_ids, given, self.tokenizer.size)
            return ids, "tokens"
        except (ValueError, TypeError, OverflowError) as error:
            raise Rejected(400, f"prompt: {error}", param="prompt") from error

    # --- generation ---

    def admit(self, request: ChatRequest | CompletionRequest, prompt: Prompt, truth: RequestTruth) -> Passage:
        """Check lengths, draw the answer and hand the job to the engine. Raises `Rejected`."""
        faults = frozenset(truth.faults)
        if "truncated-prompt" in faults:
            prompt = prompt.cut(max(1, len(prompt) // 2))
        if not len(prompt):
            raise Rejected(400, "the prompt is empty", param="prompt")
        job = self._job(request, prompt, truth)
        truth.prompt_tokens, truth.max_tokens = len(prompt), job.max_tokens
        sequence, queue = self.driver.submit(job)
        if "foreign-traffic" in faults:
            self._foreign(truth)
        return Passage(truth, sequence, queue, self.driver)

    def _job(self, request: ChatRequest | CompletionRequest, prompt: Prompt, truth: RequestTruth) -> Job:
        asked = request.max_tokens
        if isinstance(request, ChatRequest) and request.max_completion_tokens is not None:
            asked = request.max_completion_tokens
        chat = isinstance(request, ChatRequest)
        length = dialect.output_tokens(asked, len(prompt), self.profile.max_model_len, chat=chat)
        wanted, finish = length, "length"
        seed = [self.profile.seed, request.seed or 0, prompt.digest]
        rng = np.random.default_rng([abs(part) for part in seed])
        shortest, longest = self.profile.answer_tokens
        natural = int(rng.integers(shortest, longest + 1))
        if not request.ignore_eos and natural <= length:
            length, finish = natural, "stop"
        if "clamped-output" in truth.faults:
            length, finish = max(1, length // 2), "length"
        if "early-stop" in truth.faults:
            length, finish = max(1, length // 2), "stop"
        engine, salt = self.driver.engine, request.cache_salt or ""
        chain = prompt.chains.get(salt)
        if chain is None:
            chain = prompt.chains[salt] = engine.hashes(prompt.ids, salt)
        return Job(
            id=truth.id,
            prompt=prompt.ids,
            answer=self.tokenizer.answer(length, rng),
            finish="stop" if finish == "stop" else "length",
            max_tokens=wanted,
            salt=salt,
            arrived_s=self.driver.engine_s(truth.arrived_ns),
            seed=prompt.digest,
            chain=chain,
        )

    def _foreign(self, ours: RequestTruth) -> None:
        rng = np.random.default_rng([self.profile.seed, ours.number])
        job = Job(
            id=f"foreign-{ours.number}",
            prompt=self.tokenizer.answer(_FOREIGN_PROMPT, rng),
            answer=self.tokenizer.answer(_FOREIGN_ANSWER, rng),
            max_tokens=_FOREIGN_ANSWER,
            arrived_s=self.driver.engine_s(ours.arrived_ns),
            seed=ours.number,
        )
        self.driver.submit(job)

    def restart(self) -> None:
        """Lose everything a process loses; the caller resets the connections."""
        self.driver.stop()
        self.restarts += 1
        self._boot()
        self.log.ready()

    def reset_counters(self) -> None:
        """Counters fall to 0 with the process going on."""
        engine = self.driver.engine
        engine.stats = type(engine.stats)(k=self.profile.k, max_model_len=self.profile.max_model_len)

    # --- pages ---

    def metrics_page(self, faults: frozenset[str]) -> str:
        """The metrics page as of now."""
        self.driver.catch_up()
        engine = self.driver.engine
        gauges = Gauges(
            running=len(engine.running),
            waiting=len(engine.waiting),
            kv_usage=engine.cache.usage,
            started_at=self.started_at,
            cpu_s=time.process_time(),
            config=self._cache_config(),
        )
        page = families(engine.stats, gauges, self.profile.model, faults)
        if "two-engines" in faults:
            page = two_engines(page)
        text = render(page, self.started_at, openmetrics="metrics-openmetrics" in faults)
        return deform(text, faults)

    def _cache_config(self) -> dict[str, str]:
        profile = self.profile
        return {
            "block_size": str(profile.block_size),
            "cache_dtype": "auto",
            "enable_prefix_caching": "True",
            "gpu_memory_utilization": "0.92",
            "kv_cache_max_concurrency": str(profile.kv_capacity_tokens / profile.max_model_len),
            "kv_cache_size_tokens": str(profile.kv_capacity_tokens),
            "mamba_cache_mode": "none",
            "num_gpu_blocks": str(profile.capacity_blocks),
            "prefix_caching_hash_algo": "sha256",
        }

    def start_ticking(self) -> asyncio.Task[None] | None:
        """Under `metrics-late`: makes the page that is served until the next tick."""
        return asyncio.create_task(self._tick()) if "metrics-late" in self.faults else None

    async def _tick(self) -> None:
        while True:
            self.late_page = self.metrics_page(frozenset())
            await asyncio.sleep(_TICK_S)

    def truth(self) -> Truth:
        return Truth(
            profile=self.profile.name,
            model=self.profile.model,
            speed=self.speed,
            faults=tuple(sorted(self.faults.names)),
            block_size=self.driver.engine.block,
            restarts=self.restarts,
            requests=list(self.ledger.requests),
            tokenize=list(self.ledger.tokenize),
            pages=list(self.ledger.pages),
        )
