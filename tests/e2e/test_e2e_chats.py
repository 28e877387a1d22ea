"""Recorded chats on the real engine, from the suite to the report, with either kind of answers.

These tests fail when the engine cannot be started; they are never skipped.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.analysis.verdicts.measure import measure_all
from bench.journal import read_entries, read_info
from bench.records import Exchange, Measurement
from bench.servers.child import serving
from bench.servers.llama import default_model

SUITE = """
[suite]
name = "chats"
tiers = [100]
conditions = ["cold"]
output_tokens = 4
repeats = 1
retry_invalid = 2
warmup = "none"
[prompt]
keep_text = {keep}
[chats]
files = ["harbour.jsonl"]
answers = "{answers}"
[[route]]
name = "real"
base_url = "{url}"
"""
ANSWER = 4
KEEP = {"recorded": "false", "own": "true"}
KEPT = ("run.json", "journal.jsonl", "report.md", "report.html", "measurements.csv", "summary.json")


def chat(number: int) -> str:
    """Three short turns; every message says something that no other says."""
    messages = [{"role": "system", "content": "You keep a log."}] if number % 2 else []
    for turn in range(1, 4):
        ship = number * 100 + turn * 7
        messages.append({"role": "user", "content": f"Ship {ship} came in. What is next?"})
        messages.append({"role": "assistant", "content": f"Berth {turn * 3}, quixotry: send {ship} there."})
    return json.dumps({"messages": messages})


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    default_model()
    with serving(["llama", "--context", "1024"]) as child:
        yield child.base_url


def sent(run: Path) -> list[Exchange]:
    """Turns in the order they were sent, those for their place included."""
    return [one for one in read_entries(run) if isinstance(one, Exchange) and one.trial.turn]


def measured(run: Path) -> list[Measurement]:
    return [one for one in measure_all(read_info(run), sent(run)) if one.verdict.valid]


def run_of(answers: str, server: str, folder: Path) -> Path:
    (folder / "harbour.jsonl").write_text(f"{chat(1)}\n{chat(2)}\n")
    (folder / "suite.toml").write_text(SUITE.format(answers=answers, url=server, keep=KEEP[answers]))
    command = [sys.executable, "-m", "bench", "run", str(folder / "suite.toml"), "--quiet"]
    told = subprocess.run(
        [*command, "--results", str(folder / "r")], capture_output=True, text=True, timeout=600, check=False
    )
    assert told.returncode == 0, told.stderr
    (run,) = (folder / "r").iterdir()
    return run


@pytest.mark.parametrize("answers", ["recorded", "own"])
def test_every_turn_of_two_chats_is_proven_to_find_the_turn_before_in_the_cache(
    answers: str, server: str, tmp_path: Path
) -> None:
    run = run_of(answers, server, tmp_path)
    rows = measured(run)
    assert sorted(one.trial_id for one in rows) == [
        f"real/chat-{number}/turn-{turn}/1" for number in (1, 2) for turn in (1, 2, 3)
    ]
    assert all(one.verdict.reuse == "held" for one in rows)
    beyond = []
    for before, now in itertools.pairwise(sent(run)):
        if now.trial.turn == 1 or now.failure is not None:
            continue
        assert before.usage is not None and now.usage is not None
        assert now.prompt.follows == before.prompt.sha256 and now.prompt.shared is not None
        # This template repeats the turn before as it was, and blocks of this engine are single tokens.
        assert now.prompt.shared[0] == before.usage.prompt_tokens == before.prompt.tokens
        beyond.append((now.usage.cached_tokens or 0) - now.prompt.shared[0])
    # Behind it there is all of the engine's answer but its last token, as far as the prompt goes on with it.
    assert all(0 <= more < ANSWER for more in beyond)
    if answers == "own":
        assert max(beyond) > 0
        turns = [one for one in sent(run) if one.failure is None][:3]
        said = json.loads(turns[2].prompt.text or "")
        own = [message["content"] for message in said if message["role"] == "assistant"]
        assert own == [one.text for one in turns[:2]]
    else:
        assert b"quixotry" not in b"".join((run / name).read_bytes() for name in KEPT)
    summary = json.loads((run / "summary.json").read_text())
    assert [(one["chat"], one["whole"]) for one in summary["chats"]] == [
        ("harbour.jsonl line 1", 1),
        ("harbour.jsonl line 2", 1),
    ]
    assert "## Chats" in (run / "report.md").read_text()
