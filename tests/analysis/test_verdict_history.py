"""What later exchanges are judged by."""

from __future__ import annotations

from analysis_cases import exchange
from msgspec import structs

from bench.analysis.verdicts.counters import Deltas
from bench.analysis.verdicts.history import RouteHistory
from bench.engines import get
from bench.records import Exchange, Measurement, Verdict


def behind(cache_salt: str | None, condition: str, **more: object) -> Exchange:
    one = exchange(condition, **more)  # type: ignore[arg-type]
    return structs.replace(one, prompt=structs.replace(one.prompt, cache_salt=cache_salt))


def measured(ttft_s: float) -> Measurement:
    return Measurement(
        trial_id="t", route="r", tier=1000, condition="cold", ttft_s=ttft_s, verdict=Verdict(valid=True)
    )


def test_a_replay_is_judged_by_the_cold_prompt_behind_its_own_cache_salt() -> None:
    history, dialect = RouteHistory(), get("vllm")
    history.remember(behind("C1", "cold"), measured(1.0), restarted=False)
    history.remember(
        behind("C2", "salted"), measured(3.0), restarted=False
    )  # the same text, so the same hash
    assert history.before(behind("C1", "replay"), dialect, Deltas()).cold_ttft_s == 1.0
    assert history.before(behind("C2", "replay"), dialect, Deltas()).cold_ttft_s == 3.0
    assert not history.before(behind("C3", "replay"), dialect, Deltas()).cold_seen


def test_without_a_cache_salt_the_hash_alone_tells_prompts_apart() -> None:
    history, dialect = RouteHistory(), get("vllm")
    history.remember(behind(None, "cold", sha="p1"), measured(1.0), restarted=False)
    assert history.before(behind(None, "replay", sha="p1"), dialect, Deltas()).cold_seen
    assert not history.before(behind(None, "replay", sha="p2"), dialect, Deltas()).cold_seen
