"""Wrong setups: one line that says what and what to do, the right exit code, and no half-written run."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from run_helpers import ctxbench_here, suite_text

from bench.journal import Journal
from bench.records import Route, ServerFacts
from bench.run.watch.order import WatchOrder, kept
from bench.servers.simulator import Simulator
from bench.servers.simulator import start as simulate

USAGE, ENGINE = 2, 3


@pytest.fixture(scope="module")
def server() -> Iterator[Simulator]:
    with simulate("toy-target-only") as running:
        yield running


def refused(tmp_path: Path, text: str, *more: str, **environment: str) -> tuple[int, str]:
    """Exit code and the one line of a run that must not start."""
    (tmp_path / "s.toml").write_text(text)
    result = ctxbench_here(["run", "s.toml", "--quiet", *more], tmp_path, **environment)
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1, result.stderr
    assert not (tmp_path / "results").exists()
    return result.returncode, result.stderr


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_an_unreachable_server(tmp_path: Path) -> None:
    port = free_port()
    code, line = refused(tmp_path, suite_text({"a": f"http://127.0.0.1:{port}/v1"}))
    assert code == ENGINE
    assert f"127.0.0.1:{port}" in line


def test_a_wrong_path(server: Simulator, tmp_path: Path) -> None:
    code, line = refused(tmp_path, suite_text({"a": server.base_url.replace("/v1", "/v2")}))
    assert code == ENGINE
    assert "/v2/models" in line and "404" in line


def test_a_model_that_is_not_served(server: Simulator, tmp_path: Path) -> None:
    code, line = refused(tmp_path, suite_text({"a": server.base_url}, route='model = "gpt"'))
    assert code == ENGINE
    assert "'gpt' is not served; served: toy" in line


def test_a_key_variable_that_is_not_set_and_a_key_that_is_refused(tmp_path: Path) -> None:
    with simulate("toy-target-only", faults=["unauthorized"]) as server:
        text = suite_text({"a": server.base_url}, route='api_key_env = "CTX_TEST_KEY"')
        code, line = refused(tmp_path, text)
        assert code == USAGE
        assert "CTX_TEST_KEY is not set" in line
        code, line = refused(tmp_path, text, CTX_TEST_KEY="sk-very-secret")
    assert code == ENGINE
    assert "401" in line and "secret" not in line


def test_a_tier_above_the_limit_names_tier_and_limit(server: Simulator, tmp_path: Path) -> None:
    text = suite_text({"a": server.base_url}).replace("[256, 512]", "[32760]")
    code, line = refused(tmp_path, text)
    assert code == USAGE
    assert "32,760 + 16 output tokens" in line and "32,768" in line


@pytest.mark.parametrize(
    ("prompt", "said"),
    [
        ('corpus = "no-such-file.txt"', "no-such-file.txt"),
        ('corpus = "short.txt"', "short.txt"),
        ('task = "no-such-task"', "no-such-task"),
        ('tokenizer = "none.json"', "[prompt] tokenizer: none.json: cannot be read"),
    ],
)
def test_a_corpus_task_or_tokenizer_that_cannot_be_used(
    server: Simulator, tmp_path: Path, prompt: str, said: str
) -> None:
    (tmp_path / "short.txt").write_text("Just a few words, no more than that.\n")
    key = prompt.partition(" ")[0]
    lines = suite_text({"a": server.base_url}).splitlines()
    text = "\n".join(prompt if re.match(rf"{key} ", line) else line for line in lines)
    text = text if prompt in text else text.replace("[prompt]", f"[prompt]\n{prompt}")
    code, line = refused(tmp_path, text)
    assert code == USAGE
    assert said in line


def test_a_malformed_suite_a_missing_one_and_none_at_all(tmp_path: Path) -> None:
    code, line = refused(tmp_path, "[suite\n")
    assert code == USAGE and "s.toml: not valid TOML" in line
    result = ctxbench_here(["run", "none.toml"], tmp_path)
    assert result.returncode == USAGE and "none.toml: cannot be read" in result.stderr
    result = ctxbench_here(["run"], tmp_path)
    assert result.returncode == USAGE and "either a suite file or --resume" in result.stderr


def test_a_route_that_is_not_in_the_suite(server: Simulator, tmp_path: Path) -> None:
    code, line = refused(tmp_path, suite_text({"a": server.base_url}), "--route", "b")
    assert code == USAGE and "the suite has no such route; it has a" in line


def test_a_server_without_metrics_is_measured_and_the_report_says_what_is_missing(tmp_path: Path) -> None:
    with simulate("toy-target-only", faults=["metrics-404"]) as server:
        (tmp_path / "s.toml").write_text(suite_text({"a": server.base_url}))
        result = ctxbench_here(["run", "s.toml"], tmp_path)
    assert result.returncode == 0, result.stderr
    assert "no metrics" in result.stderr


def test_a_run_directory_in_use_and_one_that_is_none(server: Simulator, tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(suite_text({"a": server.base_url}))
    assert ctxbench_here(["run", "s.toml", "--no-report", "--quiet"], tmp_path).returncode == 0
    (run,) = (tmp_path / "results").iterdir()
    with Journal.resume(run):
        result = ctxbench_here(["run", "--resume", str(run), "--quiet"], tmp_path)
    assert result.returncode == USAGE
    assert "in use by another ctxbench" in result.stderr and len(result.stderr.splitlines()) == 1
    result = ctxbench_here(["run", "--resume", str(tmp_path)], tmp_path)
    assert result.returncode == USAGE and "not a run directory" in result.stderr


def test_a_watch_is_not_resumed_and_nothing_in_it_is_touched(tmp_path: Path) -> None:
    route = Route(name="watched", base_url="http://127.0.0.1:1/v1", metrics_url="http://127.0.0.1:1/metrics")
    with kept(route, WatchOrder(url="http://127.0.0.1:1", out=tmp_path / "w"), ServerFacts()):
        pass
    before = {path.name: path.read_bytes() for path in (tmp_path / "w").iterdir() if path.is_file()}
    mtimes = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "w").iterdir()}
    result = ctxbench_here(["run", "--resume", "w", "--quiet"], tmp_path)
    assert result.returncode == USAGE and result.stderr.count("\n") == 1
    assert "this is a watch, not a run" in result.stderr
    assert {path.name: path.stat().st_mtime_ns for path in (tmp_path / "w").iterdir()} == mtimes
    assert {path.name: path.read_bytes() for path in (tmp_path / "w").iterdir() if path.is_file()} == before
