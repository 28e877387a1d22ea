"""What `compare` and `gate` say of tables whose routes ran without their speculation."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from bench.cli.main import app
from bench.errors import CheckFailed, SuiteError

HEAD = "route,condition,prompt_tokens,output_tokens,ttft_s,total_s,speculation_seen,valid,repeat"


def table(path: Path, *parts: tuple[str, int]) -> str:
    """Rows of one route in the states that `parts` names: 5 ms a token as declared, else 20 ms."""
    states = [state for state, count in parts for _ in range(count)]
    lines = [HEAD]
    for number, state in enumerate(states, 1):
        ttft = 1 + number / 1000
        total = ttft + 100 * (0.005 if state == "as declared" else 0.020)
        lines.append(f"mtp,cold,1000,101,{ttft},{total},{state},{str(state != 'off').lower()},{number}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


def call(*arguments: str) -> tuple[Result, str, str]:
    result = CliRunner().invoke(app, list(arguments))
    return result, " ".join(result.stdout.split()), " ".join(result.stderr.split())


def test_a_run_that_lost_what_its_baseline_had_in_part_fails_and_both_parts_are_compared(
    tmp_path: Path,
) -> None:
    old = table(tmp_path / "old.csv", ("as declared", 10), ("fallback", 5))
    new = table(tmp_path / "new.csv", ("fallback", 15))
    told = (
        "ran without its speculation in the new run, 15 of 15 measurements; "
        "in the baseline, 5 of 15 measurements"
    )
    result, shown, _ = call("gate", new, "--baseline", old, "--rule", "decode cold * >= 0.95")
    assert type(result.exception) is CheckFailed and "FAIL" in shown and told in shown
    result, shown, said = call("compare", old, new)
    assert result.exit_code == 0
    assert "mtp (fallback), 1,000 cold" in shown and "mtp (fallback) / mtp, 1,000 cold" in shown
    assert f"differs: mtp, 1,000 cold {told}" in said
    assert type(call("compare", old, new, "--strict")[0].exception) is SuiteError


@pytest.mark.parametrize(
    ("old", "new", "differs", "told"),
    [
        ([("as declared", 6)], [("off", 6)], True, "in the new run, 6 of 6 measurements"),
        (
            [("as declared", 6)],
            [("as declared", 6), ("off", 20)],
            True,
            "in the new run, 20 of 26 measurements",
        ),
        ([("off", 6)], [("as declared", 6)], True, "in the baseline, 6 of 6 measurements"),
        (
            [("as declared", 6), ("off", 2)],
            [("as declared", 6)],
            False,
            "in the baseline, 2 of 8 measurements",
        ),
        ([("off", 6)], [("off", 6)], False, "in the new run, 6 of 6 measurements; in the baseline, 6 of 6"),
        ([("fallback", 6)], [("fallback", 6)], False, ""),
        ([("as declared", 6)], [("as declared", 6)], False, ""),
    ],
)
def test_compare_names_what_ran_without_its_speculation_and_is_strict_where_one_side_lost_it(
    old: list[tuple[str, int]], new: list[tuple[str, int]], differs: bool, told: str, tmp_path: Path
) -> None:
    sides = table(tmp_path / "old.csv", *old), table(tmp_path / "new.csv", *new)
    result, _, said = call("compare", *sides)
    assert result.exit_code == 0
    assert f"mtp, 1,000 cold ran without its speculation {told}" in said if told else "ran" not in said
    assert ("differs: mtp" in said) == differs
    strict = call("compare", *sides, "--strict")[0].exception
    assert isinstance(strict, SuiteError) == differs
