from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import prompting_kinds as kinds
import pytest
from click.testing import CliRunner
from test_prompting_compose import COMPLETIONS, composer, trial

from bench.cli.prompts import prompts
from bench.errors import SuiteError
from bench.prompting.listing import longest_shared, shared_tokens
from bench.prompting.tokens import Tokenizer
from bench.records import PromptSettings

Make = Callable[[str], tuple[Tokenizer, Any]]

SUITE = """
[suite]
name = "two"
tiers = [220, 400]
conditions = ["cold", "replay", "salted"]
output_tokens = 8
repeats = 2

[prompt]
corpus = "text.txt"

[[route]]
name = "one"
base_url = "http://127.0.0.1:1/v1"

[[route]]
name = "two"
base_url = "http://127.0.0.1:2/v1"
"""


def test_shared_tokens_are_those_before_the_first_difference(make: Make) -> None:
    tokenizer, _ = make("own")
    same = tokenizer.count("the river and the")
    assert shared_tokens("the river and the market", "the river and the harbour", tokenizer) == same
    assert shared_tokens("market", "harbour", tokenizer) == 0
    assert shared_tokens("the river", "the river", tokenizer) == tokenizer.count("the river")


def test_cold_prompts_share_nothing_and_cache_salts_set_equal_texts_apart(make: Make) -> None:
    tokenizer, _ = make("own")
    chosen = composer(make, "own", "prose", COMPLETIONS)
    cold = [chosen.compose(trial(300, repeat=n)) for n in (1, 2, 3)]
    assert longest_shared([*cold, cold[0]], tokenizer) == [0, 0, 0, 0]
    fields = composer(make, "own", "prose", COMPLETIONS, settings=PromptSettings(salt="cache_salt"))
    apart = [fields.compose(trial(300), attempt=n) for n in (1, 2)]
    assert longest_shared(apart, tokenizer) == [0, 0]


def call(folder: Path, *options: str) -> Any:
    (folder / "text.txt").write_text(kinds.mixed(40))
    (folder / "suite.toml").write_text(SUITE)
    return CliRunner().invoke(prompts, [str(folder / "suite.toml"), *options], catch_exceptions=True)


def test_the_command_lists_and_writes_every_prompt_of_a_suite(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    result = call(tmp_path, "--tokenizer", str(kinds.OWN), "--json", "--out", str(tmp_path / "out"))
    rows = json.loads(result.stdout)
    assert {row["tokens"] for row in rows} == {220, 400}
    shared = {row["trial"].split("/")[2]: row["shared_tokens"] for row in rows if "/220/" in row["trial"]}
    assert shared == {"cold": 0, "replay": 220, "salted": 0}
    by_trial = {row["trial"]: row["sha256"] for row in rows}
    assert by_trial["one/220/cold/1"] == by_trial["two/220/cold/1"] == by_trial["one/220/replay/1.1"]
    assert by_trial["one/220/salted/1"] != by_trial["one/220/cold/1"]
    written = json.loads((tmp_path / "out" / "one_220_cold_1.json").read_bytes())
    assert [m["role"] for m in written["messages"]] == ["system", "user"]
    plain = call(tmp_path, "--tokenizer", str(kinds.OWN))
    assert plain.stdout.count("\n") == len(rows) + 1
    assert "template's tokens are not counted" in plain.stderr


def test_without_a_tokenizer_nothing_is_sent_but_an_error_said(tmp_path: Path) -> None:
    result = call(tmp_path)
    assert isinstance(result.exception, SuiteError)
    assert "nothing is sent here" in str(result.exception)
