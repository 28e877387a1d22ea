"""First replays that missed while a later one of the same prompt held: how a server is, not what went wrong.

With MTP on hybrid models vLLM gives a prompt back from the second replay on (vllm#53504). Such a first
replay is a sound measurement of what it costs there, and repeating it would cost a cold prompt to miss
again. Whether it is one shows with what comes next on the same prompt: until then it is held back. Where
nothing more comes, or that misses too, the cache failed and the verdict stays `replay_missed`.
"""

from __future__ import annotations

from msgspec import structs

from bench.records import Measurement, Reason, Verdict


def is_first_miss(one: Measurement) -> bool:
    """Whether it is a valid measurement of a first replay that reused nothing to speak of: it stands for
    first replays, and for no replay that hits."""
    return one.verdict.valid and one.condition == "replay" and one.verdict.reuse == "missed"


class FirstReplays:
    """Holds back one first replay that missed, until it is decided what it was."""

    def __init__(self) -> None:
        self._held: Measurement | None = None
        self._prompt = ""

    @property
    def undecided(self) -> str | None:
        """Id of the trial that is held back."""
        return None if self._held is None else self._held.trial_id

    def waits_for(self, route: str, prompt: str) -> bool:
        """Whether a replay of this prompt (its hash) on this route decides."""
        return self._held is not None and (self._held.route, self._prompt) == (route, prompt)

    def take(self, one: Measurement, prompt: str) -> list[Measurement]:
        """What is decided with the next measurement of the run: itself too, unless it is to be held back."""
        again = one.condition == "replay" and self.waits_for(one.route, prompt)
        found = self.decide(hit=again and one.verdict.valid and one.verdict.reuse == "held")
        if one.replay == 1 and [reason.id for reason in one.verdict.reasons] == ["replay_missed"]:
            self._held, self._prompt = one, prompt
            return found
        return [*found, one]

    def decide(self, *, hit: bool = False) -> list[Measurement]:
        """What was held back, as it is now known to be. `hit`: a later replay of its prompt held."""
        held, self._held = self._held, None
        if held is None:
            return []
        return [structs.replace(held, verdict=_mended(held)) if hit else held]


def _mended(held: Measurement) -> Verdict:
    (missed,) = held.verdict.reasons
    told = Reason(id="first_replay_missed", detail=missed.detail)
    return structs.replace(held.verdict, valid=True, reasons=(), warnings=(told, *held.verdict.warnings))
