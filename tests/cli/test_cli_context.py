"""`ctxbench context` and `ctxbench logs`: what they print and how they end."""

from __future__ import annotations

import json
import sys
from datetime import datetime
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from bench.cli import context as commands
from bench.cli.main import app, main
from bench.errors import CheckFailed, SuiteError

RECORDINGS = Path(__file__).resolve().parent.parent / "recordings" / "logs"
NATIVE = 262_144
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": NATIVE}
CONFIG = {
    "text_config": {"max_position_embeddings": NATIVE, "mtp_num_hidden_layers": 1, "rope_parameters": YARN}
}


@pytest.fixture
def model(tmp_path: Path) -> str:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    return str(tmp_path)


def call(*arguments: str, stdin: bytes | None = None) -> Result:
    return CliRunner().invoke(app, list(arguments), input=stdin)


def test_a_right_setup_ends_with_zero_and_shows_its_arithmetic(model: str) -> None:
    done = call(
        "context", model, "--max-model-len", "1000000", "--speculation", "mtp:4", "--engine", "vllm:0.29",
        "--tiers", "6316,564577", "--output", "512",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    said = " ".join(done.stdout.split())
    for text in (
        "original 262,144 x 4 = ceiling 1,048,576",
        "served 1,000,000, margin 48,576",
        "drafter to 1,000,000",
        "564,577 512 565,089 speculative",
    ):
        assert text in said


def test_a_wrong_setup_is_printed_in_full_and_ends_as_a_failed_check(model: str) -> None:
    done = call(
        "context", model, "--max-model-len", "1000000", "--speculation", "mtp:4", "--engine", "vllm:0.32"
    )
    assert isinstance(done.exception, CheckFailed) and done.exception.exit_code == 1
    assert "refuses to start" in done.stdout
    assert "derives 262,144" in done.stdout


def test_overrides_switch_runner_and_drafter_reach_the_rules(model: str, tmp_path: Path) -> None:
    overrides = json.dumps({"text_config": {"max_position_embeddings": 1_048_576}})
    done = call(
        "context", model, "--max-model-len", "1000000", "--speculation", "mtp:4", "--engine", "vllm:0.32",
        "--runner", "v1", "--hf-overrides", overrides, "--json",
    )  # fmt: skip
    engine = json.loads(done.stdout)["verdict"]["engine"]
    assert (engine["drafter_limit"], engine["past_limit"]) == (NATIVE, ["drafts without acceptance"])
    switched = call(
        "context", model, "--max-model-len", "1000000", "--engine", "vllm:0.32", "--allow-long-max-model-len"
    )
    assert switched.exit_code == 0
    drafter = tmp_path / "draft.json"
    drafter.write_text('{"max_position_embeddings": 8192}')
    separate = call(
        "context", model, "--max-model-len", "16384", "--speculation", "eagle:3", "--draft", str(drafter)
    )
    assert "separate_drafter" in separate.stdout


def test_json_holds_both_verdicts(model: str) -> None:
    done = call("context", model, "--speculation", "mtp:4", "--engine", "vllm:0.29", "--json")
    found = json.loads(done.stdout)
    assert found["ok"] is True
    assert found["verdict"]["rule"]["arithmetic"]["ceiling"] == 1_048_576


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--speculation", "mtp"], "write it as METHOD:K"),
        (["--speculation", ":4"], "write it as METHOD:K"),
        (["--speculation", "mtp:four"], "write it as METHOD:K"),
        (["--speculation", "mtp:0"], "K from 1 to 1,024"),
        (["--speculation", "mtp:1025"], "K from 1 to 1,024"),
        (["--speculation", "foo:4"], "unknown method; known are mtp, "),
        (["--engine", "vlm:0.29"], "known are vllm, 1cat-vllm, sglang"),
        (["--engine", "vllm:abc"], "write its version as numbers, for instance vllm:0.32"),
        (["--engine", "vllm:"], "write its version as numbers"),
        (["--engine", "sglang:new"], "write its version as numbers"),
        (["--runner", "v9"], "v1 or v2"),
        (["--engine", "sglang:0.5", "--runner", "v1"], "it is vLLM's model runner"),
        (["--tiers", "6k"], "write whole numbers of tokens"),
        (["--tiers", "0,100"], "write whole numbers of tokens"),
        (["--tiers", "9999999999"], "write whole numbers of tokens"),
        (["--hf-overrides", "{"], "--hf-overrides is no JSON"),
        (["--hf-overrides", "[1]"], "--hf-overrides holds a list"),
        (["--draft", "missing.json", "--speculation", "eagle:3"], "no such file"),
        (["--draft", "missing.json"], "say with --speculation METHOD:K"),
        (["--draft", "missing.json", "--speculation", "ngram:3"], "ngram has no drafter model"),
    ],
)
def test_wrong_arguments_are_usage_errors_that_say_what_is_right(
    model: str, arguments: list[str], said: str
) -> None:
    error = call("context", model, *arguments).exception
    assert isinstance(error, SuiteError) and said in str(error)
    assert "\n" not in str(error) and len(str(error)) < 300


@pytest.mark.parametrize("given", ["-5", "0", "99999999999999999999", "1k"])
def test_a_length_that_no_server_has_is_a_usage_error(model: str, given: str) -> None:
    done = call("context", model, "--max-model-len", given)
    assert done.exit_code == 2 and "--max-model-len" in done.stderr


def test_of_another_engine_only_the_rules_are_judged(model: str) -> None:
    done = call("context", model, "--max-model-len", "1000000", "--engine", "other")
    assert done.exit_code == 0
    assert "start not known" in done.stdout and "only the config rules apply" in done.stdout


def test_speculation_of_every_known_kind_is_judged(model: str) -> None:
    for method in ("deepseek_mtp", "NEXTN", "ngram", "suffix"):
        done = call("context", model, "--max-model-len", "1000000", "--speculation", f"{method}:2")
        assert "refused" not in done.stdout, method


def test_logs_show_facts_and_groups() -> None:
    done = call("logs", str(RECORDINGS / "vllm-0.32-mtp2-over-limit.log"), "--top", "3")
    assert done.exit_code == 0, done.output
    assert "drafter limit                 4,096  (line 13)" in done.stdout
    assert "KV cache tokens               1,398,016" in done.stdout
    assert "more templates (--top)" in done.stdout


def test_a_log_without_a_line_says_so_and_shows_no_empty_table(tmp_path: Path) -> None:
    (tmp_path / "empty.log").touch()
    said = call("logs", str(tmp_path / "empty.log")).stdout
    assert "nothing to group: the log holds no line" in said and "count" not in said


def test_logs_of_standard_input_as_json() -> None:
    flood = "".join(
        f"WARNING 11-29 00:00:{s:02d} [a.py:1] dropped {s}{n}\n" for s in range(30) for n in range(9)
    )
    done = call("logs", "-", "--json", stdin=flood.encode())
    (group,) = json.loads(done.stdout)["groups"]
    assert (group["kind"], group["count"]) == ("flood", 270)
    told = call("logs", "-", "--tokens", "100000", "--requests", "50", stdin=flood.encode())
    assert "flood" not in told.stdout


def test_since_is_a_span_a_time_of_today_or_a_date() -> None:
    now = datetime(2026, 11, 29, 15, 0, 0).astimezone()
    assert commands._since("15m", now) == datetime(2026, 11, 29, 14, 45).astimezone()
    assert commands._since("14:55", now) == datetime(2026, 11, 29, 14, 55).astimezone()
    assert commands._since("2026-11-28T10:00", now) == datetime(2026, 11, 28, 10).astimezone()
    for text in ("yesterday", "", "99999999d", "25:00", "2026-13-01"):
        with pytest.raises(SuiteError):
            commands._since(text, now)


def test_since_leaves_out_what_came_before() -> None:
    done = call("logs", str(RECORDINGS / "vllm-0.32-mtp2-over-limit.log"), "--since", "2026-11-29T14:55:53")
    assert "earlier lines left out" in done.stdout
    assert "Using max model len" not in done.stdout


def test_an_interrupted_log_is_reported_up_to_there(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def interrupted(*_: object, **__: object):  # type: ignore[no-untyped-def]
        yield b"INFO 11-29 00:00:01 [a.py:1] seen\n"
        raise KeyboardInterrupt

    monkeypatch.setattr("bench.wire.logs.blocks", interrupted)
    path = tmp_path / "x.log"
    path.write_text("")
    monkeypatch.setattr(sys, "argv", ["ctxbench", "logs", str(path)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert "seen" in capsys.readouterr().out
    assert ended.value.code == 130
