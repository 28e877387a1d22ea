"""Suites whose routes differ in exactly one thing: how many tokens are drafted per step."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Sequence

from msgspec import Struct

from bench.errors import SuiteError
from bench.plan.suite import parse_suite

_WIDTH = 100
_MOST_DRAFTED = 64


class Sweep(Struct, frozen=True, kw_only=True):
    """What all routes of such a suite have in common."""

    name: str
    drafted: tuple[int, ...]
    """Tokens drafted per step, a route each; 0: target only."""
    tiers: tuple[int, ...] = (16_384, 65_536)
    output_tokens: int = 256
    repeats: int = 2
    port: int = 8000
    serve: str = ""
    """Further arguments of every serve command, as a person would type them."""


def numbers(text: str, option: str) -> tuple[int, ...]:
    """`0,2,4` -> the numbers. Raises `SuiteError` naming the option."""
    parts = [part.strip().replace("_", "") for part in text.split(",")]
    if not all(re.fullmatch("[0-9]{1,12}", part) for part in parts):
        raise SuiteError(f"{option} {text[:80]}: whole numbers with commas between them, e.g. 0,2,4")
    found = tuple(int(part) for part in parts)
    if len(set(found)) < len(found):
        raise SuiteError(f"{option} {text}: a number stands there twice")
    return found


def vllm_suite(sweep: Sweep, model: str, *, max_model_len: int | None = None) -> str:
    """Routes of `vllm serve MODEL`, one per MTP setting, on one port one after another.

    Raises `SuiteError` for numbers and words that make no suite.
    """
    limit = ["--max-model-len", str(max_model_len)] if max_model_len else []
    common = ["vllm", "serve", model, "--port", str(sweep.port), "--enable-prompt-tokens-details", *limit]

    def command(k: int) -> list[str]:
        setting = json.dumps({"method": "mtp", "num_speculative_tokens": k})
        return common + (["--speculative-config", setting] if k else [])

    return _suite(sweep, "mtp", command, "vllm")


def llama_suite(sweep: Sweep, model: str | None = None) -> str:
    """Routes of `ctxbench serve llama`, one per n-gram setting, on one port one after another.

    Raises `SuiteError` for numbers and words that make no suite.
    """
    common = ["ctxbench", "serve", "llama", "--port", str(sweep.port), *(["--model", model] if model else [])]

    def command(k: int) -> list[str]:
        return [*common, "--speculation", f"ngram:{k}" if k else "none"]

    return _suite(sweep, "ngram", command, "llamacpp")


def _suite(sweep: Sweep, method: str, command: Callable[[int], list[str]], engine: str) -> str:
    if not all(word.strip() for word in command(0)):
        raise SuiteError("--model: give the model's name or folder")
    if max(sweep.drafted) > _MOST_DRAFTED:
        raise SuiteError(f"at most {_MOST_DRAFTED} tokens can be drafted per step, not {max(sweep.drafted)}")
    try:
        further = shlex.split(sweep.serve)
    except ValueError as error:
        raise SuiteError(f"--serve {sweep.serve}: {error}") from error
    lines = [
        f"# Routes that differ in one thing: the number of tokens drafted per step ({method}).",
        "# Each server is started when its turn comes, and stopped before the next one is.",
        "[suite]",
        f"name = {_text(sweep.name)}",
        f"tiers = {list(sweep.tiers)}",
        'conditions = ["cold", "salted", "replay"]',
        f"output_tokens = {sweep.output_tokens}",
        f"repeats = {sweep.repeats}",
        "interleave = false",
    ]
    for k in sweep.drafted:
        lines += ["", *_route(k, method, sweep.port, [*command(k), *further], engine)]
    text = "\n".join(lines) + "\n"
    parse_suite(text, name="the suite")
    return text


def _route(k: int, method: str, port: int, command: Sequence[str], engine: str) -> list[str]:
    declared = f'speculation = {{ method = "{method}", num_speculative_tokens = {k} }}'
    return [
        "[[route]]",
        f'name = "{f"{method}{k}" if k else "target-only"}"',
        f'base_url = "http://127.0.0.1:{port}/v1"',
        f'engine = "{engine}"',
        *([declared] if k else []),
        "[route.server]",
        *_array("up", command),
    ]


def _array(key: str, words: Sequence[str]) -> list[str]:
    """An array of strings, on one line where it fits."""
    texts = [_text(word) for word in words]
    line = f"{key} = [{', '.join(texts)}]"
    if len(line) <= _WIDTH:
        return [line]
    rows = [""]
    for text in texts:
        if rows[-1] and len(rows[-1]) + len(text) + len("    ,") > _WIDTH:
            rows.append("")
        rows[-1] += f" {text}," if rows[-1] else f"{text},"
    return [f"{key} = [", *(f"    {row}" for row in rows), "]"]


def _text(text: str) -> str:
    """A TOML string: JSON's escapes are TOML's too."""
    return json.dumps(text, ensure_ascii=False)
