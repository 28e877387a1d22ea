"""What the context rules say: findings, the arithmetic behind them, and a verdict per tier."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Severity = Literal["fail", "warn", "note"]

PastLimit = Literal[
    "no gate",  # drafting goes on at positions the drafter does not know: it decays, or the engine crashes
    "no drafts",  # drafting stops; the draft counters stand still
    "drafts without acceptance",  # empty drafts are verified and counted, nothing is accepted, nothing logged
    "context reduced",  # there is no past: the served limit was cut to the drafter's at start-up
]

TierKind = Literal["speculative", "crosses while decoding", "fallback", "target-only", "refused", "unknown"]


class Finding(Struct, frozen=True, kw_only=True):
    """One thing the rules found; `code` is for programs, `message` for people."""

    code: str
    severity: Severity
    message: str
    """What is wrong or noteworthy, then what to do. Figures of the config, never whole values of it."""


class Arithmetic(Struct, frozen=True, kw_only=True):
    """The figures of the rule verdict, in tokens. `None` where the config does not (validly) say."""

    native: int | None = None
    """`max_position_embeddings` of the drafter's file; of the target where there is no drafter model."""
    factor: float | None = None
    original: int | None = None
    """`original_max_position_embeddings`."""
    ceiling: int | None = None
    """floor(original x factor): where YaRN ends."""
    target_limit: int | None = None
    """What the target's config covers: extended `max_position_embeddings`, else the ceiling, else native."""
    served: int | None = None
    """The requested limit (`--max-model-len`); the target's limit when none was given."""
    margin: int | None = None
    """ceiling - served (native - served without a ceiling); negative when over it."""


class RuleVerdict(Struct, frozen=True, kw_only=True):
    """May this config be served at this length with this drafter? (DESIGN section 9, rules 1 to 6)"""

    outcome: Literal["target covers", "no drafter model", "drafter covers", "extended", "refused"]
    """`extended`: the native MTP drafter may and must take over the target's YaRN parameters."""
    findings: tuple[Finding, ...] = ()
    arithmetic: Arithmetic = Arithmetic()
    drafter_rope: dict[str, object] | None = None
    """Only for `extended`: a deep copy of the validated parameters, for the drafter."""

    @property
    def ok(self) -> bool:
        return self.outcome != "refused"

    @property
    def code(self) -> str:
        """The finding that decided: the first failure, else the outcome itself."""
        failures = [f.code for f in self.findings if f.severity == "fail"]
        return failures[0] if failures else self.outcome.replace(" ", "_")


class EngineVerdict(Struct, frozen=True, kw_only=True):
    """What the serving engine of that version will do with this config (dialects C2 and C3)."""

    engine: str
    version: str | None = None
    status: Literal["ok", "warn", "fail", "unknown"]
    starts: bool | None = None
    """False: it refuses to start. None: not known for this engine."""
    derived: int | None = None
    """The target limit this version derives from the config."""
    multiplies: bool | None = None
    """Whether it multiplies `original_max_position_embeddings` by YaRN's factor."""
    served: int | None = None
    """The limit it serves in the end; `None` when it does not start or is not known."""
    served_source: str = ""
    """What set, raised or lowered that limit."""
    drafter_limit: int | None = None
    """Longest sequence the drafter takes part in; `None`: no drafter model, or not known."""
    extends_drafter: bool | None = None
    """Whether the drafter's limit is raised to the target's. None: nothing to extend, or not known."""
    past_limit: tuple[PastLimit, ...] = ()
    """What happens past the drafter limit; several where the version alone does not decide."""
    findings: tuple[Finding, ...] = ()

    @property
    def ok(self) -> bool:
        return self.status != "fail"


class TierVerdict(Struct, frozen=True, kw_only=True):
    """What becomes of one tier with its output."""

    tier: int
    output_tokens: int
    end: int
    """tier + output_tokens."""
    kind: TierKind
    detail: str
    """The limit that decided, and what set it."""


class ContextVerdict(Struct, frozen=True, kw_only=True):
    """Rule verdict and engine verdict side by side; `ok` is the worse of the two."""

    rule: RuleVerdict
    engine: EngineVerdict
    tiers: tuple[TierVerdict, ...] = ()

    @property
    def ok(self) -> bool:
        return self.rule.ok and self.engine.ok

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All findings, failures first."""
        order = {"fail": 0, "warn": 1, "note": 2}
        return tuple(sorted(self.rule.findings + self.engine.findings, key=lambda f: order[f.severity]))

    @property
    def summary(self) -> str:
        """One line for a table of checks."""
        failures = [f.message for f in self.findings if f.severity == "fail"]
        if failures:
            return failures[0]
        a = self.rule.arithmetic
        limit = f"{self.engine.served or a.served:,}" if (self.engine.served or a.served) else "not known"
        drafter = f", drafter to {self.engine.drafter_limit:,}" if self.engine.drafter_limit else ""
        return f"served to {limit}{drafter} ({self.rule.outcome})"
