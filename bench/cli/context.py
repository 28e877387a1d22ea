"""Before a server is measured, and after: `context` judges a model's config, `logs` reads a server's log."""

from __future__ import annotations

import sys
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import click

from bench.cli.command import Integer, argument, command

if TYPE_CHECKING:
    from bench.analysis.logs.analyser import LineGroup, LogReport
    from bench.engines.context import Arithmetic, ContextVerdict
    from bench.records import Speculation

_TOKENS_MAX = 1_000_000_000
"""No prompt, output or limit beyond this is meant."""
_WITH_DRAFTER = (
    "mtp", "nextn", "eagle", "eagle3", "draft_model", "medusa", "mlp_speculator", "standalone", "dflash",
)  # fmt: skip
"""Speculation that has a drafter model; any name that ends in _mtp has one, too."""
_ANY_ENGINE = "other"
_TEMPLATE_CUT = 120
"""Characters shown of a group of log lines."""

_json = click.option("--json", "as_json", is_flag=True, help="For machines.")


@command
@argument("config", metavar="CONFIG", help="config.json, a model folder, or a Hugging Face id.")
@click.option("--max-model-len", type=Integer(1, _TOKENS_MAX), help="The limit to serve, in tokens.")
@click.option("--speculation", metavar="METHOD:K", help="For instance mtp:4, ngram:4, eagle:3.")
@click.option("--draft", metavar="CONFIG", help="Config of a separate drafter.")
@click.option(
    "--engine",
    metavar="NAME:VERSION",
    default="vllm",
    help="vllm, 1cat-vllm, sglang, llama.cpp, or other.",
)
@click.option("--runner", help="vLLM's model runner, v1 or v2, where known.")
@click.option("--hf-overrides", metavar="JSON", help="As given to the server.")
@click.option("--allow-long-max-model-len", is_flag=True, help="The server runs with its long-length switch.")
@click.option("--tiers", help="Prompt lengths, e.g. 6316,564577.")
@click.option("--output", type=Integer(0, _TOKENS_MAX), default=0, help="Output tokens of each tier.")
@_json
def context(
    config: str,
    max_model_len: int | None,
    speculation: str | None,
    draft: str | None,
    engine: str,
    runner: str | None,
    hf_overrides: str | None,
    allow_long_max_model_len: bool,
    tiers: str | None,
    output: int,
    as_json: bool,
) -> None:
    """Judge whether a model can be served, and speculate, at a context length; exit code 0 or 1.

    Example:

        ctxbench context ./model --max-model-len 1000000 --speculation mtp:4 --engine vllm:0.29
    """
    from bench.engines.context import judge
    from bench.errors import CheckFailed
    from bench.wire.modelconfig import parse_object, read_config

    name, version = _engine(engine, runner)
    drafted = _speculation(speculation, draft)
    verdict = judge(
        read_config(config),
        served=max_model_len,
        speculation=drafted,
        draft_config=read_config(draft) if draft else None,
        engine=name,
        version=version,
        runner=runner,
        hf_overrides=parse_object(hf_overrides, "--hf-overrides") if hf_overrides else None,
        allow_long=allow_long_max_model_len,
        tiers=_tiers(tiers),
        output_tokens=output,
    )
    if as_json:
        _print_json({"ok": verdict.ok, "verdict": verdict})
    else:
        print("\n".join(_verdict_lines(verdict)))
    if not verdict.ok:
        raise CheckFailed(verdict.summary)


@command
@argument("source", metavar="FILE|-", help="A file, -, docker:CONTAINER or journal:UNIT.")
@click.option("--since", help="15m, 2h, 14:55, or 2026-11-29T14:55, as the log writes its times.")
@click.option("--tokens", type=Integer(min=1), help="Output tokens of that time, if known.")
@click.option("--requests", type=Integer(min=1), help="Requests of that time, if known.")
@click.option("--top", type=Integer(min=1), default=25, help="Show so many groups of lines.")
@_json
def logs(
    source: str, since: str | None, tokens: int | None, requests: int | None, top: int, as_json: bool
) -> None:
    """Say what a server's log says: facts, floods, troubles, and all lines grouped by template.

    Example:

        ctxbench logs tests/recordings/logs/vllm-0.32-mtp2-over-limit.log
    """
    from bench.analysis.logs.analyser import LogAnalyser
    from bench.wire.logs import blocks, parse_source

    place = parse_source(source)
    start = _since(since, datetime.now().astimezone()) if since else None
    by_line = start.strftime("%Y-%m-%d %H:%M:%S") if start and place.kind in ("file", "stdin") else None
    analyser = LogAnalyser(since=by_line, output_tokens=tokens, requests=requests)
    interrupted = False
    try:
        for block in blocks(place, since=start):
            analyser.feed(block)
    except KeyboardInterrupt:  # a followed log is ended so: what came until then counts
        interrupted = True
    report = analyser.report()
    if as_json:
        _print_json(report)
    else:
        print("\n".join(_report_lines(report, top)))
    if interrupted:
        raise KeyboardInterrupt


# --- arguments --------------------------------------------------------------------------------------


def _engine(text: str, runner: str | None) -> tuple[str, str | None]:
    """(engine, version or `None`) of `vllm:0.32`, and whether the runner may stand beside it."""
    from bench.engines.context_engine import KNOWN_ENGINES, parse_version
    from bench.errors import SuiteError

    name, colon, version = text.partition(":")
    name = name.strip().lower()
    if name not in (*KNOWN_ENGINES, _ANY_ENGINE):
        raise SuiteError(
            f"--engine {text[:80]!r}: known are {', '.join(KNOWN_ENGINES)}, and {_ANY_ENGINE} (rules of the "
            "config alone)"
        )
    by_version = name == "vllm"
    if (colon and not any(map(str.isdigit, version))) or (
        by_version and version and not parse_version(version)
    ):
        raise SuiteError(f"--engine {text[:80]!r}: write its version as numbers, for instance {name}:0.32")
    if runner is not None and (runner not in ("v1", "v2") or not by_version):
        raise SuiteError(
            f"--runner {runner[:40]!r}: it is vLLM's model runner, v1 or v2; leave it out otherwise"
        )
    return name, version or None


def _speculation(text: str | None, draft: str | None) -> Speculation | None:
    """The setting of `mtp:4`; `draft` is the config of a separate drafter, if one is given."""
    from bench.engines.context_rule import MODEL_FREE, SPECULATIVE_TOKENS_MAX
    from bench.errors import SuiteError
    from bench.records import Speculation

    if text is None:
        if draft is not None:
            raise SuiteError("--draft: say with --speculation METHOD:K how this drafter is used")
        return None
    method, _, k = text.partition(":")
    if not method or not k.isdecimal() or len(k) > 4 or not 1 <= int(k) <= SPECULATIVE_TOKENS_MAX:
        raise SuiteError(
            f"--speculation {text[:80]!r}: write it as METHOD:K, for instance mtp:4 "
            f"(K from 1 to {SPECULATIVE_TOKENS_MAX:,})"
        )
    name = method.lower()
    if name not in MODEL_FREE and name not in _WITH_DRAFTER and not name.endswith("_mtp"):
        known = ", ".join((*_WITH_DRAFTER, *sorted(MODEL_FREE)))
        raise SuiteError(
            f"--speculation {text[:80]!r}: unknown method; known are {known}; for another one with a draft "
            f"model of its own write draft_model:{k}"
        )
    if name in MODEL_FREE and draft is not None:
        raise SuiteError(f"--draft: {name} has no drafter model; leave it out")
    return Speculation(method=method, num_speculative_tokens=int(k))


def _tiers(text: str | None) -> tuple[int, ...]:
    from bench.errors import SuiteError

    parts = [part.strip().replace("_", "") for part in (text or "").split(",") if part.strip()]
    if not all(part.isdecimal() and len(part) < 13 and 1 <= int(part) <= _TOKENS_MAX for part in parts):
        raise SuiteError(
            f"--tiers {(text or '')[:80]!r}: write whole numbers of tokens, for instance 6316,564577"
        )
    return tuple(int(part) for part in parts)


def _since(text: str, now: datetime) -> datetime:
    """A moment: so long ago, a time of today, or a date with a time (local unless it names a zone)."""
    from bench.errors import SuiteError
    from bench.plan.durations import parse_duration

    try:
        if text[:1].isdigit() and text[-1:].isalpha() and not text.endswith("Z"):
            return now - timedelta(seconds=parse_duration(text))
        day = "" if "-" in text else f"{now.date().isoformat()}T"
        return datetime.fromisoformat(day + text).astimezone()
    except (ValueError, OverflowError):
        raise SuiteError(f"--since {text!r}: write 15m, 14:55 or 2026-11-29T14:55") from None


# --- words ------------------------------------------------------------------------------------------


_OUTCOMES = {
    "target covers": "the target covers the limit; there is no drafter",
    "no drafter model": "the target covers the limit; this speculation has no drafter model",
    "drafter covers": "target and drafter cover the limit by themselves",
    "extended": "the target covers the limit; its native MTP drafter may take over its YaRN",
}


def _print_json(value: object) -> None:
    import msgspec

    sys.stdout.write(msgspec.json.format(msgspec.json.encode(value), indent=1).decode() + "\n")


def _verdict_lines(verdict: ContextVerdict) -> list[str]:
    from bench.cli.layout import hanging, table

    rule, engine = verdict.rule, verdict.engine
    outcome = _OUTCOMES.get(rule.outcome, rule.outcome)
    lines = [
        hanging(f"rules   {'ok' if rule.ok else 'FAIL':8}", outcome),
        hanging("        ", _sum(rule.arithmetic)),
    ]
    name = " ".join(part for part in (engine.engine, engine.version) if part)
    word = {"ok": "ok", "warn": "warn", "fail": "FAIL", "unknown": "unknown"}[engine.status]
    does = {True: "starts", False: "refuses to start", None: "start not known"}[engine.starts]
    facts = [name, does]
    if engine.derived is not None:
        facts.append(f"derives {engine.derived:,}")
    if engine.served is not None:
        facts.append(f"serves {engine.served:,} ({engine.served_source})")
    if engine.drafter_limit is not None:
        facts.append(f"drafter to {engine.drafter_limit:,}")
    lines.append(hanging(f"engine  {word:8}", ", ".join(facts)))
    lines += [hanging(f"  {f.severity:5} ", f"{f.code}: {f.message}") for f in verdict.findings]
    if verdict.tiers:
        rows = [
            (f"{t.tier:,}", f"{t.output_tokens:,}", f"{t.end:,}", t.kind, t.detail) for t in verdict.tiers
        ]
        lines += ["", *table(("tier", "output", "ends at", "what", "why"), rows, right=3)]
    return lines


def _sum(a: Arithmetic) -> str:
    """The arithmetic in one line; what is not known is left out."""
    parts = [f"native {a.native:,}"] if a.native is not None else []
    if a.ceiling is not None and a.original is not None:
        parts.append(f"original {a.original:,} x {a.factor:g} = ceiling {a.ceiling:,}")
    named = (("target's limit", a.target_limit), ("served", a.served), ("margin", a.margin))
    parts += [f"{name} {value:,}" for name, value in named if value is not None]
    return ", ".join(parts) or "no arithmetic: the config gives no figures"


def _report_lines(report: LogReport, top: int) -> list[str]:
    from bench.analysis.decisions.claims import many
    from bench.cli.layout import hanging, table

    size = f"{report.bytes / 1e6:,.1f} MB" if report.bytes >= 1e6 else f"{report.bytes:,} bytes"
    head = [f"{many(report.lines, 'line')}, {size}", many(len(report.groups), "template")]
    if report.starts:
        head.append(f"{many(report.starts, 'start')} of the server")
    if report.requests is not None:
        head.append(many(report.requests, "request"))
    if report.output_tokens is not None:
        head.append(f"{many(report.output_tokens, 'output token')} ({report.output_tokens_source})")
    if report.skipped_before:
        head.append(f"{report.skipped_before:,} earlier lines left out")
    lines = [hanging("", ", ".join(head)), *_fact_lines(report)]
    lines += [*(hanging("note: ", note) for note in report.notes), ""]
    if not report.groups:
        return [*lines[:-1], "nothing to group: the log holds no line"]
    shown = report.groups[:top]
    rows = [
        (
            f"{g.count:,}",
            g.kind,
            g.level or "",
            _span(g),
            (f"{g.meaning}: {g.template}" if g.meaning else g.template)[:_TEMPLATE_CUT],
        )
        for g in shown
    ]
    lines += table(("count", "kind", "level", "seen", "lines"), rows, right=1)
    floods = report.kind("flood")
    lines += ["", *(hanging("flood: ", f"{g.why}: {g.example[:160]}") for g in floods)] if floods else []
    if len(report.groups) > top:
        lines.append(f"... and {len(report.groups) - top:,} more templates (--top)")
    return lines


def _fact_lines(report: LogReport) -> list[str]:
    from bench.cli.layout import hanging

    facts = report.facts
    labels = {
        "engine": "engine",
        "version": "version",
        "model": "model",
        "max_model_len": "context length",
        "drafter_limit": "drafter limit",
        "kv_tokens": "KV cache tokens",
        "concurrency": "full-length requests that fit",
        "block_size": "prefix-cache block",
        "speculation_method": "speculation",
        "num_speculative_tokens": "tokens per draft",
        "prefix_caching": "prefix caching",
        "runner": "model runner",
    }
    lines = []
    for name, label in labels.items():
        value = getattr(facts, name)
        if value is not None:
            text = f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
            where = f"  (line {facts.lines[name]:,})" if name in facts.lines else ""
            lines.append(hanging(f"  {label:30}", f"{text}{where}"))
    return lines


def _span(group: LineGroup) -> str:
    if group.count == 1 or group.first_at == group.last_at:
        return group.first_at or f"line {group.first_line:,}"
    if group.first_at and group.last_at:
        return f"{group.first_at} to {group.last_at}"
    return f"line {group.first_line:,} to {group.last_line:,}"
