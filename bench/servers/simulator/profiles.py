"""Profiles: what a simulated server is. TOML files beside this module, or anyone's own file."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from bench.errors import SuiteError

from .drafting import Rates
from .timing import Timing

FOLDER = Path(__file__).with_name("profiles")


class Speculation(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The drafter; a profile's `[speculation]` table."""

    method: str
    num_speculative_tokens: int
    """k."""
    drafter_limit: int
    """Longest sequence (in tokens, k included) the drafter takes part in."""
    past_limit: Literal["no-drafts", "zero-accepted"] = "no-drafts"
    """What happens past it: nothing is drafted, or empty drafts are verified and counted."""
    block_drop: int = 1
    """Blocks a cache hit loses to the drafter (vLLM: 1 with MTP up to 0.32, 0 with n-gram)."""
    acceptance: tuple[Rates, ...]
    """Acceptance at one or more context lengths, in rising order."""


class Published(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A measured row: a request of just this shape, alone on the server, takes just this long.

    The laws come within a fraction of a percent of such rows; the rest is scaled away, so that
    published figures come out to the digit.
    """

    id: str
    prompt_tokens: int
    output_tokens: int
    cached: bool
    """Whether the prompt is found in the prefix cache."""
    ttft_s: float
    total_s: float
    drafts: int = 0
    accepted_tokens: int = 0


class Profile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A simulated server: model, limits, cache, laws of time, drafter, published rows."""

    name: str
    about: str = ""
    model: str
    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    """Tokens of one engine step: the size of a prefill chunk."""
    block_size: int
    """Tokens per prefix-cache block."""
    kv_capacity_tokens: int
    seed: int = 0
    answer_tokens: tuple[int, int] = (200, 2000)
    """Shortest and longest answer where the request does not forbid an end (`ignore_eos`)."""
    timing: Timing
    speculation: Speculation | None = None
    published: tuple[Published, ...] = ()

    @property
    def k(self) -> int:
        return self.speculation.num_speculative_tokens if self.speculation else 0

    @property
    def capacity_blocks(self) -> int:
        return self.kv_capacity_tokens // self.block_size


def profile_names() -> list[str]:
    """Names of the shipped profiles."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def load_profile(name: str | Path) -> Profile:
    """A shipped profile by name, or a profile file by path (anything that ends in `.toml`).

    Raises `SuiteError` naming the file, the key and what was expected.
    """
    path = Path(name) if str(name).endswith(".toml") else FOLDER / f"{name}.toml"
    try:
        profile = msgspec.toml.decode(path.read_bytes(), type=Profile)
    except FileNotFoundError as error:
        known = ", ".join(profile_names())
        raise SuiteError(f"no simulator profile {str(name)!r}; shipped are {known}") from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise SuiteError(f"simulator profile {path}: {error}") from error
    _check(profile, path)
    return profile


def _check(profile: Profile, path: Path) -> None:
    problems = [
        f"{field} must be at least 1"
        for field in ("max_model_len", "max_num_seqs", "max_num_batched_tokens", "block_size")
        if getattr(profile, field) < 1
    ]
    if not problems and profile.capacity_blocks * profile.block_size <= profile.max_model_len + profile.k:
        problems.append("kv_capacity_tokens must hold one sequence of max_model_len")
    if not 1 <= profile.answer_tokens[0] <= profile.answer_tokens[1]:
        problems.append("answer_tokens must be two rising lengths")
    if profile.timing.tokenize_tok_s <= 0:
        problems.append("timing.tokenize_tok_s must be above 0")
    for field in profile.timing.__struct_fields__:
        if not 0 <= getattr(profile.timing, field) < float("inf"):
            problems.append(f"timing.{field} must be a finite number, 0 or above")
    if profile.speculation:
        problems += _speculation_problems(profile.speculation)
    if problems:
        raise SuiteError(f"simulator profile {path}: {'; '.join(problems)}")


def _speculation_problems(speculation: Speculation) -> list[str]:
    problems = []
    if speculation.num_speculative_tokens < 1:
        problems.append("speculation.num_speculative_tokens must be at least 1")
    if not speculation.acceptance:
        problems.append("speculation.acceptance needs an entry")
    contexts = [rates.context for rates in speculation.acceptance]
    if contexts != sorted(set(contexts)):
        problems.append("speculation.acceptance must be in rising order of context")
    for rates in speculation.acceptance:
        falling = [1.0, *rates.per_position, 0.0]
        if len(rates.per_position) != speculation.num_speculative_tokens:
            problems.append("speculation.acceptance.per_position needs one rate per drafted token")
        if falling != sorted(falling, reverse=True):
            problems.append("speculation.acceptance.per_position must fall, from at most 1 to at least 0")
    return problems
