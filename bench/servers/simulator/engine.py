"""The engine of a simulated server: scheduling, caching, drafting. No clock, no socket.

Time is a plain number handed in by the caller (`submit`, `advance`), in seconds of the server being
simulated; the same calls give the same events, whosever clock it is. A step that is under way
ends when the laws of `timing` say so, however late the caller looks.

Scheduling is vLLM's: first come, first served, up to `max_num_seqs` sequences; in every step each
decoding sequence gets its tokens, and prefills share what is left of `max_num_batched_tokens`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

import bench.servers.simulator.drafting as drafting
import bench.servers.simulator.timing as timing

from .cache import BlockCache, chain
from .profiles import Profile, Published
from .sequence import Behaviour, Emission, Finish, Job, Sequence
from .stats import Stats


@dataclass
class _Step:
    ends_s: float
    prefills: list[tuple[Sequence, int]]
    decodes: list[Sequence]
    drafted: int
    """k of this step; 0 where nothing is drafted."""
    over_limit: bool


class Engine:
    """Takes jobs, advances time, returns emissions; `stats` counts as vLLM counts."""

    def __init__(self, profile: Profile, *, speed: float = 1.0, behaviour: Behaviour | None = None) -> None:
        self.profile = profile
        self.behaviour = behaviour or Behaviour()
        self.block = profile.block_size + self.behaviour.block_extra
        self.cache = BlockCache(profile.kv_capacity_tokens // self.block)
        self.stats = Stats(k=profile.k, max_model_len=profile.max_model_len)
        self.waiting: list[Sequence] = []
        self.running: list[Sequence] = []
        self.warnings: list[tuple[float, str]] = []
        """(time, message) of log lines the engine would print."""
        self._wall = 1.0 / speed
        self._free_at_s = 0.0
        self._step: _Step | None = None
        self._seen_tips: dict[bytes, int] = {}

    # --- what the caller does ---

    def hashes(self, prompt: np.ndarray, salt: str) -> tuple[bytes, ...]:
        """Block hashes of a prompt, to be kept by the caller and handed back in `Job.chain`."""
        return tuple(chain(prompt, self.block, salt, linked=not self.behaviour.salt_ignored))

    def submit(self, job: Job) -> Sequence:
        """Queue a job that arrived at `job.arrived_s`; the sequence returned tells the truth later."""
        hashes = self.hashes(job.prompt, job.salt) if job.chain is None else job.chain
        ready = job.arrived_s + timing.tokenize_time_s(self.profile.timing, len(job.prompt))
        sequence = Sequence(job=job, arrived_s=job.arrived_s, ready_s=ready, hashes=list(hashes))
        self.waiting.append(sequence)
        self.waiting.sort(key=lambda s: s.ready_s)
        return sequence

    def abort(self, job_id: str, at_s: float) -> None:
        """Drop a job (its client went away); what it computed stays in the prefix cache."""
        for sequence in [*self.waiting, *self.running]:
            if sequence.job.id == job_id:
                self._end(sequence, at_s, "abort")

    def next_s(self) -> float | None:
        """When something happens next; `None` when idle."""
        if self._step is not None:
            return self._step.ends_s
        if self.running:
            return self._free_at_s
        return max(self._free_at_s, self.waiting[0].ready_s) if self.waiting else None

    @property
    def prefilling(self) -> bool:
        """Whether the step under way computes prompts: a first token may come out of it."""
        return self._step is not None and bool(self._step.prefills)

    def advance(self, until_s: float) -> list[Emission]:
        """Do everything that happens up to `until_s`; emissions in the order of their times."""
        emissions: list[Emission] = []
        while (when := self.next_s()) is not None and when <= until_s:
            if self._step is None:
                self._begin(when)
            else:
                step, self._step = self._step, None
                self._free_at_s = step.ends_s
                emissions += self._complete(step)
        return emissions

    def reset(self) -> bool:
        """Forget the prefix cache; False while requests hold blocks."""
        return self.cache.forget()

    # --- admission ---

    def _begin(self, now: float) -> None:
        """Admit what fits and start a step at `now`."""
        while self.waiting and self.waiting[0].ready_s <= now:
            if len(self.running) >= self.profile.max_num_seqs or not self._admit(self.waiting[0], now):
                break
            self.running.append(self.waiting.pop(0))
        if not self.running:
            head = self.waiting[0]
            raise AssertionError(f"{head.job.id} does not fit an empty cache of {self.cache.capacity} blocks")
        self._step = self._schedule(now)

    def _admit(self, sequence: Sequence, now: float) -> bool:
        hits = self._lookup(sequence)
        blocks = -(-(sequence.context + 1) // self.block)
        if not self.cache.take(sequence.hashes[:hits], blocks - hits):
            return False
        sequence.held, sequence.unnamed = sequence.hashes[:hits], blocks - hits
        sequence.computed = hits * self.block
        sequence.admission_due = True
        if sequence.scheduled_s is None:
            self._first_admission(sequence, now)
        return True

    def _lookup(self, sequence: Sequence) -> int:
        """Blocks of the prefix found in the cache, after everything that is held back.

        vLLM computes at least the last token anew, and with MTP or EAGLE one more block.
        """
        reusable = sequence.hashes[: (sequence.context - 1) // self.block]
        if self.behaviour.evicts:
            self.cache.evict_idle()
        matched = self.cache.matched(reusable)
        if self.behaviour.first_replay_misses and matched:
            tip = sequence.hashes[-1]
            self._seen_tips[tip] = self._seen_tips.get(tip, 0) + 1
            matched = matched if self._seen_tips[tip] > 1 else 0
        drop = self.profile.speculation.block_drop if self.profile.speculation else 0
        return max(0, matched - drop)

    def _first_admission(self, sequence: Sequence, now: float) -> None:
        sequence.scheduled_s = now
        sequence.cached = sequence.computed
        self.stats.prefix_queries += sequence.length
        self.stats.prefix_hits += sequence.cached
        self._plan(sequence)

    # --- the plan of a request: counts and pace ---

    def _plan(self, sequence: Sequence) -> None:
        """Fix what each decode step will accept; scale the laws where a published row says so."""
        wanted = len(sequence.job.answer)
        row = self._published(sequence)
        if speculation := self.profile.speculation:
            rng = np.random.default_rng([self.profile.seed, sequence.job.seed])
            rates = drafting.rates_at(speculation.acceptance, sequence.length)
            counts = (row.drafts, row.accepted_tokens) if row else drafting.counts_for(wanted, rates, rng)
            sequence.stream.extend(drafting.acceptance_stream(wanted, *counts, rates, rng).tolist())
        if row:
            self._pace(sequence, row)

    def _published(self, sequence: Sequence) -> Published | None:
        shape = (sequence.length, len(sequence.job.answer), sequence.cached > 0)
        for row in self.profile.published:
            if shape == (row.prompt_tokens, row.output_tokens, row.cached) and self._as_published(sequence):
                return row
        return None

    def _as_published(self, sequence: Sequence) -> bool:
        """Whether the drafter works as it did when the rows were measured."""
        speculation = self.profile.speculation
        longest = sequence.length + len(sequence.job.answer) + self.profile.k
        return speculation is None or (not self.behaviour.never_drafts and longest <= self.drafter_limit)

    def _pace(self, sequence: Sequence, row: Published) -> None:
        laws = self.profile.timing
        length, cached = sequence.length, sequence.cached
        prefill = timing.admission_s(laws, cached) + timing.prefill_s(laws, cached, length)
        sequence.prefill_pace = (row.ttft_s - timing.tokenize_time_s(laws, length)) / prefill
        decode, context = 0.0, length + 1
        for accepted in sequence.stream if self.profile.k else [0] * (row.output_tokens - 1):
            decode += timing.decode_step_s(laws, [context], self.profile.k)
            context += 1 + accepted
        sequence.decode_pace = (row.total_s - row.ttft_s) / decode
        sequence.published = row.id

    # --- steps ---

    def _schedule(self, now: float) -> _Step:
        decodes = [s for s in self.running if s.decoding]
        drafted, over_limit = self._drafting(decodes)
        budget = self.profile.max_num_batched_tokens - len(decodes) * (1 + drafted)
        laws, duration = self.profile.timing, 0.0
        prefills = []
        for sequence in self.running:
            if sequence.decoding or budget <= 0:
                continue
            begin = sequence.computed
            end = min(sequence.goal, begin + budget)
            budget -= end - begin
            cost = timing.prefill_s(laws, begin, end)
            if sequence.admission_due:
                cost += timing.admission_s(laws, begin)
                sequence.admission_due = False
            duration += cost * sequence.prefill_pace
            prefills.append((sequence, end))
        if decodes:
            pace = sum(s.decode_pace for s in decodes) / len(decodes)
            duration += timing.decode_step_s(laws, [s.context for s in decodes], drafted) * pace
        return _Step(now + duration, prefills, decodes, drafted, over_limit)

    @property
    def drafter_limit(self) -> int:
        """Longest sequence the drafter takes part in; 0 without one."""
        speculation = self.profile.speculation
        limit = self.behaviour.drafter_limit
        return limit if limit is not None else speculation.drafter_limit if speculation else 0

    def _drafting(self, decodes: list[Sequence]) -> tuple[int, bool]:
        """(tokens drafted per sequence, past the drafter limit); decided for the whole batch."""
        speculation = self.profile.speculation
        if speculation is None or self.behaviour.never_drafts or not decodes:
            return 0, False
        longest = max(sequence.context for sequence in self.running)
        if longest + self.profile.k <= self.drafter_limit:
            return self.profile.k, False
        silent = (self.behaviour.past_limit or speculation.past_limit) == "zero-accepted"
        return (self.profile.k if silent else 0), True

    def _complete(self, step: _Step) -> list[Emission]:
        emissions = []
        for sequence, end in step.prefills:
            if sequence not in self.running:
                continue  # aborted while the step ran
            sequence.computed = end
            self._name_blocks(sequence)
            if end == sequence.length and not sequence.emitted:
                emissions.append(self._first_token(sequence, step.ends_s))
        for sequence in step.decodes:
            if sequence not in self.running:
                continue  # aborted, or preempted for another one of this step
            emission = self._decode(sequence, step)
            if emission:
                emissions.append(emission)
        if emissions:
            # A prompt is counted whole in the step of its first token, as vLLM does.
            prompts = sum(s.length for s, end in step.prefills if end == s.length)
            self.stats.observe("step_tokens", prompts + sum(e.count for e in emissions))
        if step.over_limit:
            self._warn(step)
        return emissions

    def _first_token(self, sequence: Sequence, at_s: float) -> Emission:
        stats, wall = self.stats, self._wall
        stats.prompt_tokens += sequence.length
        stats.cached_tokens += sequence.cached
        sequence.first_s = at_s
        stats.observe("ttft", (at_s - sequence.arrived_s) * wall)
        return self._emit(sequence, at_s, 1, first=True)

    def _decode(self, sequence: Sequence, step: _Step) -> Emission | None:
        if not self._room(sequence, 1 + step.drafted, step.ends_s):
            return None
        accepted = 0
        if step.drafted and not step.over_limit:
            accepted = sequence.stream.popleft() if sequence.stream else 0
        if step.drafted:
            self.stats.draft(step.drafted, accepted)
            sequence.drafts += 1
            sequence.draft_tokens += step.drafted
            sequence.accepted += accepted
        sequence.over_limit_steps += step.over_limit
        if sequence.last_s is not None:
            self.stats.observe("itl", (step.ends_s - sequence.last_s) * self._wall)
        wanted = len(sequence.job.answer) - sequence.emitted
        return self._emit(sequence, step.ends_s, min(wanted, 1 + accepted))

    def _emit(self, sequence: Sequence, at_s: float, count: int, *, first: bool = False) -> Emission:
        start = sequence.emitted
        sequence.emitted += count
        sequence.computed = sequence.context - 1
        sequence.last_s = at_s
        self.stats.generation_tokens += count
        self._name_blocks(sequence)
        done = sequence.emitted >= len(sequence.job.answer)
        finish = sequence.job.finish if done else None
        if finish:
            self._end(sequence, at_s, finish)
        return Emission(job=sequence.job.id, at_s=at_s, start=start, count=count, first=first, finish=finish)

    # --- blocks ---

    def _name_blocks(self, sequence: Sequence) -> None:
        """Blocks filled by now become findable, those of the answer too."""
        full = sequence.computed // self.block
        if full > len(sequence.hashes):
            self._extend_hashes(sequence, full)
        while len(sequence.held) < full:
            name = sequence.hashes[len(sequence.held)]
            if self.cache.name(name):
                sequence.unnamed -= 1
            elif self.cache.take([name], 0):  # a twin is here: hold that one and free ours
                self.cache.release([], 1)
                sequence.unnamed -= 1
            sequence.held.append(name)

    def _extend_hashes(self, sequence: Sequence, full: int) -> None:
        begin, end = len(sequence.hashes) * self.block, full * self.block
        answer = sequence.job.answer[max(0, begin - sequence.length) : end - sequence.length]
        rest = np.concatenate([sequence.job.prompt[begin:], answer])
        after = sequence.hashes[-1] if sequence.hashes else None
        sequence.hashes += chain(rest, self.block, sequence.job.salt, after=after)

    def _room(self, sequence: Sequence, more: int, at_s: float) -> bool:
        """Blocks for `more` tokens, preempting the youngest sequence where none are left."""
        needed = -(-(sequence.context + more) // self.block) - len(sequence.held) - sequence.unnamed
        while needed > 0 and not self.cache.take([], needed):
            victim = self.running[-1]
            self._preempt(victim)
            if victim is sequence:
                return False
        sequence.unnamed += max(0, needed)
        return True

    def _preempt(self, sequence: Sequence) -> None:
        self.running.remove(sequence)
        self._release(sequence)
        sequence.computed = 0
        sequence.preemptions += 1
        self.stats.preemptions += 1
        self.waiting.insert(0, sequence)

    def _release(self, sequence: Sequence) -> None:
        self.cache.release(sequence.held, sequence.unnamed)
        sequence.held, sequence.unnamed = [], 0

    def _end(self, sequence: Sequence, at_s: float, finish: Finish) -> None:
        sequence.ended_s, sequence.finish = at_s, finish
        if sequence in self.running:
            self.running.remove(sequence)
            self._release(sequence)
        else:
            self.waiting.remove(sequence)
        if finish == "abort":  # vLLM does not count a client that went away
            return
        self._observe_end(sequence)

    def _observe_end(self, sequence: Sequence) -> None:
        stats, wall = self.stats, self._wall
        scheduled, first, last = sequence.scheduled_s, sequence.first_s, sequence.last_s
        if scheduled is None or first is None or last is None or sequence.finish is None:
            raise AssertionError(f"{sequence.job.id} ended without having run")
        stats.finished[sequence.finish] += 1
        stats.observe("e2e", (last - sequence.arrived_s) * wall)
        stats.observe("queue", (scheduled - sequence.ready_s) * wall)
        stats.observe("inference", (last - scheduled) * wall)
        stats.observe("prefill", (first - scheduled) * wall)
        stats.observe("decode", (last - first) * wall)
        if sequence.emitted > 1:
            stats.observe("tpot", (last - first) * wall / (sequence.emitted - 1))
        stats.observe("prompt_tokens", sequence.length)
        stats.observe("generation_tokens", sequence.emitted)
        stats.observe("max_generation_tokens", sequence.emitted)
        stats.observe("params_max_tokens", sequence.job.max_tokens)
        stats.observe("params_n", 1)
        stats.observe("kv_computed", sequence.length - sequence.cached)
        stats.observe("preemptions", sequence.preemptions)

    def _warn(self, step: _Step) -> None:
        if not self.behaviour.warns_every_step and (self.warnings or step.drafted):
            return  # once, and where empty drafts go on not at all
        longest = max((sequence.context for sequence in step.decodes), default=0)
        self.warnings.append(
            (
                step.ends_s,
                "Skipping speculative drafts because the drafter context limit is reached: "
                f"max_seq_len={longest}, num_spec_tokens={self.profile.k}, "
                f"effective_drafter_max_model_len={self.drafter_limit}",
            )
        )
