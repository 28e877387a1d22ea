"""A run is resumed on what it was begun with: another server, tokenizer or corpus is refused, or told."""

from __future__ import annotations

import asyncio
import shutil
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from run_helpers import TOKENIZER, ctxbench_here, events, exchanges, suite_text

from bench.analysis.verdicts.measure import measure_all
from bench.errors import EngineError, SuiteError
from bench.journal import read_info
from bench.plan.suite import parse_suite
from bench.records import Route, ServerFacts
from bench.records import Speculation as Declared
from bench.report.run_pass import RunPass
from bench.run.progress import Progress
from bench.run.same import server_differences
from bench.run.study import Order, resume, start
from bench.servers import simulator
from bench.servers.simulator import load_profile
from bench.servers.simulator import start as simulate

ROUTE = Route(name="a", base_url="http://127.0.0.1:1/v1")
VLLM = ServerFacts(
    engine="vllm",
    version="0.32.0",
    model="m",
    max_model_len=4096,
    block_size=16,
    kv_capacity_tokens=100_000,
    num_speculative_tokens=2,
    started_at=1.0,
    flags={"speculative_method": "mtp", "num_gpu_blocks": "6250"},
)


def changed(facts: ServerFacts = VLLM, **fields: Any) -> list[str]:
    now = msgspec.structs.replace(facts, **fields)
    return [one.text for one in server_differences(ROUTE, facts, now)]


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"model": "n"}, "route a: model was m, is now n"),
        ({"engine": "sglang"}, "route a: engine was vllm, is now sglang"),
        ({"version": "0.33.0"}, "route a: engine version was 0.32.0, is now 0.33.0"),
        ({"num_speculative_tokens": 4}, "route a: number of speculative tokens was 2, is now 4"),
        ({"block_size": 1616}, "route a: block size was 16, is now 1616"),
        ({"max_model_len": 8192}, "route a: context length was 4096, is now 8192"),
        ({"flags": {"speculative_method": "eagle"}}, "route a: speculation method was mtp, is now eagle"),
    ],
)
def test_what_makes_a_server_another_one_is_a_difference(fields: dict[str, Any], text: str) -> None:
    assert changed(**fields) == [text]


def test_another_weights_file_behind_the_same_name_is_a_difference() -> None:
    was = ServerFacts(
        engine="llamacpp", flags={"model_path": "m-q4.gguf", "model_ftype": "Q4_1", "slots": "1"}
    )
    assert changed(was, flags={"model_path": "m-q8.gguf", "model_ftype": "Q8_0", "slots": "2"}) == [
        "route a: model file was m-q4.gguf, is now m-q8.gguf",
        "route a: quantisation was Q4_1, is now Q8_0",
    ]


@pytest.mark.parametrize("flag", ["cache_dtype", "kv_cache_dtype"])
def test_another_type_of_the_kv_cache_is_a_difference(flag: str) -> None:
    was = msgspec.structs.replace(VLLM, flags={flag: "auto"})
    assert changed(was, flags={flag: "fp8"}) == ["route a: type of the KV cache was auto, is now fp8"]


def test_what_is_new_with_every_start_is_no_difference() -> None:
    now: dict[str, Any] = {"started_at": 2.0, "kv_capacity_tokens": 90_000, "drafter_limit": 4096}
    assert changed(**now, flags={"speculative_method": "mtp", "num_gpu_blocks": "6000"}) == []


def test_a_fact_that_either_side_does_not_know_is_no_difference() -> None:
    unknown = ServerFacts(engine="generic")
    assert (
        list(server_differences(ROUTE, unknown, msgspec.structs.replace(VLLM, num_speculative_tokens=None)))
        == []
    )
    assert list(server_differences(ROUTE, VLLM, unknown)) == []
    assert list(server_differences(ROUTE, None, VLLM)) == []


def test_drafts_that_the_server_did_not_show_before_are_held_against_what_the_suite_declares() -> None:
    silent = msgspec.structs.replace(VLLM, num_speculative_tokens=None)

    def texts(declared: int | None) -> list[str]:
        speculation = Declared(method="mtp", num_speculative_tokens=declared) if declared else None
        route = msgspec.structs.replace(ROUTE, speculation=speculation)
        return [one.text for one in server_differences(route, silent, VLLM)]

    assert texts(2) == []
    assert texts(4) == ["route a: number of speculative tokens was 4, is now 2"]
    assert texts(None) == ["route a: number of speculative tokens was none, is now 2"]


def begun(text: str, tmp_path: Path) -> tuple[Path, int]:
    """A run as if killed right after its first cold prompt, and its server's port, which is free again."""
    with simulate("toy-target-only") as server:
        text = text.replace("URL", server.base_url)
        order = Order(suite=parse_suite(text), suite_text=text, results=tmp_path / "r", folder=tmp_path)
        run = asyncio.run(start(order, Progress()))
        port = server.port
    cut_after_the_first_cold(run)
    return run, port


def cut_after_the_first_cold(run: Path) -> None:
    journal = run / "journal.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    first_cold = next(n for n, line in enumerate(lines) if b'"id":"a/256/cold/1"' in line)
    journal.write_bytes(b"".join(lines[: first_cold + 1]))


def small(*, prompt: str = "") -> str:
    text = suite_text({"a": "URL"}, prompt=prompt)
    return text.replace("[256, 512]", "[256]").replace("repeats = 2", "repeats = 1")


def test_another_server_at_the_same_address_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    run, port = begun(small(), tmp_path)
    other = msgspec.structs.replace(load_profile("toy-target-only"), model="other", block_size=32)
    before = (run / "journal.jsonl").read_bytes()
    with simulate(other, port=port) as server:
        with pytest.raises(EngineError) as refused:
            asyncio.run(resume(run, Progress(), folder=tmp_path))
        assert server.truth().requests == []
    model = read_info(run).facts["a"].model
    remedy = "serve it as it was, or go on with --force, which the report will tell"
    assert str(refused.value).splitlines() == [
        f"route a: model was {model}, is now other: {remedy}",
        f"route a: block size was 16, is now 32: {remedy}",
    ]
    assert (run / "journal.jsonl").read_bytes() == before


def test_forced_a_run_goes_on_and_journal_and_report_tell_on_what(tmp_path: Path) -> None:
    run, port = begun(small(), tmp_path)
    other = msgspec.structs.replace(load_profile("toy-target-only"), block_size=32)
    with simulate(other, port=port):
        done = ctxbench_here(["run", "--resume", str(run), "--force", "--no-report"], tmp_path)
    assert done.returncode == 0, done.stderr
    (told,) = events(run, "forced")
    assert told.data == {"route": "a", "what": "block size", "was": "16", "now": "32"}
    assert told.message == "route a: block size was 16, is now 32"
    assert RunPass(run).run().info.notes[-1] == f"from {told.at} on, by --force: {told.message}"
    # The other server has never seen the cold prompt of the first session.
    assert [(one.trial.condition, one.purpose) for one in exchanges(run)][:3] == [
        ("cold", "trial"),
        ("cold", "prime"),
        ("replay", "trial"),
    ]
    rows = list(measure_all(read_info(run), exchanges(run)))
    assert {one.trial_id for one in rows if one.verdict.valid} == {one.id for one in read_info(run).plan}
    with simulate(other, port=port):  # what was gone on with is what the next session is held against
        asyncio.run(resume(run, Progress(), folder=tmp_path))


def test_another_start_of_the_same_server_is_no_other_server(tmp_path: Path) -> None:
    run, port = begun(small(), tmp_path)
    roomier = msgspec.structs.replace(load_profile("toy-target-only"), kv_capacity_tokens=65_536)
    with simulate(roomier, port=port):
        asyncio.run(resume(run, Progress(), folder=tmp_path))
    assert events(run, "forced") == []


def test_a_server_that_the_run_starts_is_held_against_its_earlier_start_too(tmp_path: Path) -> None:
    shipped = Path(simulator.__file__).parent / "profiles" / "toy-target-only.toml"
    profile = tmp_path / "served.toml"
    profile.write_bytes(shipped.read_bytes())
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    up = f"exec {sys.executable} -m bench serve simulator --profile '{profile}' --port {port}"
    text = small().replace("URL", f"http://127.0.0.1:{port}/v1") + f"[route.server]\nup = '''{up}'''\n"
    order = Order(suite=parse_suite(text), suite_text=text, results=tmp_path / "r", folder=tmp_path)
    run = asyncio.run(start(order, Progress()))
    cut_after_the_first_cold(run)
    profile.write_text(profile.read_text().replace("block_size = 16", "block_size = 32"))
    said = r"route a: block size was 16, is now 32: serve it .*; 2 of 3 trials are left"
    with pytest.raises(EngineError, match=said):
        asyncio.run(resume(run, Progress(), folder=tmp_path))
    assert len(exchanges(run)) == 1
    asyncio.run(resume(run, Progress(), folder=tmp_path, force=True))
    assert [one.message for one in events(run, "forced")] == ["route a: block size was 16, is now 32"]
    rows = list(measure_all(read_info(run), exchanges(run)))
    assert {one.trial_id for one in rows if one.verdict.valid} == {one.id for one in read_info(run).plan}


def other_corpus(tmp_path: Path) -> None:
    text = (tmp_path / "corpus.txt").read_text()
    (tmp_path / "corpus.txt").write_text(text.replace("word", "vow"))


def other_tokenizer(tmp_path: Path) -> None:
    with (tmp_path / "tokenizer.json").open("a") as file:
        file.write("\n")


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (other_corpus, r"^corpus 'corpus.txt' was text [0-9a-f]{12}, is now text [0-9a-f]{12}: bring its "),
        (other_tokenizer, r"^route a: tokenizer was tiktoken \S+ [0-9a-f]{12}, is now tiktoken "),
    ],
)
def test_other_texts_are_refused_and_forced_replayed_behind_a_new_cold(
    change: Callable[[Path], None], text: str, tmp_path: Path
) -> None:
    shutil.copy(TOKENIZER, tmp_path / "tokenizer.json")
    lines = (f"Line {number} has a word or two of its own, and ends here.\n" for number in range(3000))
    (tmp_path / "corpus.txt").write_text("".join(lines))
    asked = small().replace('"synthetic"', '"corpus.txt"').replace(str(TOKENIZER), "tokenizer.json")
    run, port = begun(asked, tmp_path)
    change(tmp_path)
    with simulate("toy-target-only", port=port) as server:
        with pytest.raises(SuiteError, match=text):
            asyncio.run(resume(run, Progress(), folder=tmp_path))
        assert server.truth().requests == []
        asyncio.run(resume(run, Progress(), folder=tmp_path, force=True))
    (told,) = events(run, "forced")
    assert (told.data["what"] == "tokenizer") == (told.data["route"] == "a")
    assert [(one.trial.condition, one.purpose) for one in exchanges(run)][1:3] == [
        ("cold", "prime"),
        ("replay", "trial"),
    ]
