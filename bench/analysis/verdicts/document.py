"""The page about verdicts, from the table of reasons."""

from __future__ import annotations

from bench.analysis.verdicts.reasons import GROUPS, REASONS


def as_markdown() -> str:
    """The text of docs/verdicts.md."""
    lines = [
        "# Verdicts",
        "",
        "Every measurement carries a verdict: valid, or invalid with reasons. Invalid measurements stay in",
        "the journal and in the footnotes of every table, never in a statistic; `ctxbench report --all`",
        "shows them. This page is generated from `bench/analysis/verdicts/reasons.py`.",
        "",
        "- **invalidates**: the number does not enter any statistic; the trial is repeated with fresh salts.",
        "- **warns**: the number is used and the warning shown with it.",
        "- **informs**: nothing is wrong.",
        "",
    ]
    for group, question in GROUPS.items():
        lines += [
            f"## {question}",
            "",
            "| reason | effect | what was seen | what to do |",
            "|---|---|---|---|",
        ]
        lines += [
            f"| `{name}` | {entry.effect} | {entry.sentence} | {entry.todo} |"
            for name, entry in REASONS.items()
            if entry.group == group
        ]
        lines.append("")
    return "\n".join(lines)
