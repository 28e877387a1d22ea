"""The preflight line by line: what a server's facts, pages and first answer say, and what to do about it."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import time
from collections import namedtuple
from pathlib import Path
from typing import Any

import msgspec
import pytest
from run_helpers import TOKENIZER, ctxbench_here, suite_text

from bench.engines import get
from bench.engines.context import ContextVerdict, EngineVerdict, Finding, RuleVerdict
from bench.errors import EngineError, SuiteError
from bench.plan.suite import parse_suite
from bench.records import ClientHealth, Route, ServerFacts, Suite
from bench.run.openroute import OpenRoute
from bench.run.order import Order
from bench.run.preflight import checks
from bench.run.preflight.checks import Check, check_disk
from bench.run.preflight.limits import context_of, with_limits
from bench.run.preflight.whole import preflight
from bench.run.progress import Progress
from bench.run.study import start
from bench.servers.simulator import Profile, load_profile
from bench.servers.simulator import start as simulate
from bench.wire.client import Client

URL = "http://127.0.0.1:1/v1"
MTP = 'speculation = { method = "mtp", num_speculative_tokens = 2 }'


def check_all(text: str, folder: Path) -> list[Check]:
    order = Order(suite=parse_suite(text), suite_text=text, results=folder / "results", folder=folder)
    return asyncio.run(preflight(order))


def opened(route: Route, **facts: Any) -> OpenRoute:
    """A route as it is after connecting, with these facts; nobody is asked anything."""
    return OpenRoute(
        route=route,
        client=Client(URL),
        dialect=get("vllm"),
        facts=ServerFacts(engine="vllm", version="0.32.0", model="m", **facts),
        model="m",
        metrics_url=None,
    )


def lines(found: object) -> list[tuple[str, str]]:
    assert isinstance(found, list)
    return [(one.name, one.state) for one in found]


def test_a_level_whose_replays_do_not_fit_into_the_cache_is_refused() -> None:
    waves = checked(suite="concurrency = [1, 4]")  # four times 512 + 16 tokens
    for capacity, state in ((2112, "ok"), (2111, "fail")):
        facts = {"prefix_caching": True, "kv_capacity_tokens": capacity, "block_size": 16}
        found = list(checks._cache(waves, opened(waves.routes[0], **facts)))
        assert lines(found) == [("cache", state)]
    assert "4 requests at once of 528 tokens are more" in found[0].text
    assert "lower concurrency to 3" in found[0].text


def checked(**changes: str) -> Suite:
    return parse_suite(suite_text({"a": URL}, **changes))


# --- a healthy server -----------------------------------------------------------------------------


@pytest.mark.parametrize(("profile", "route"), [("toy-target-only", ""), ("toy", MTP)])
def test_a_healthy_server_passes_and_every_line_says_what_was_found(
    profile: str, route: str, tmp_path: Path
) -> None:
    with simulate(profile) as server:
        found = check_all(suite_text({"a": server.base_url}, route=route), tmp_path)
    # The client line tells of this machine, which may be busy.
    assert {one.state for one in found if one.name != "client"} == {"ok"}, found
    named = {one.name: one.text for one in found}
    assert set(named) >= {"client", "server", "metrics", "limit", "cache", "request", "prompts", "time"}
    assert named["limit"].startswith("32,768 tokens (/v1/models); longest trial 528")
    assert "counts as the server does on ten samples and on the longest prompt" in named["prompts"]
    assert "template of 17 tokens; prompts of 256 and 512 tokens are exact" in named["prompts"]
    assert not (tmp_path / "results").exists()


def test_the_same_for_machines(tmp_path: Path) -> None:
    with simulate("toy-target-only") as server:
        (tmp_path / "s.toml").write_text(suite_text({"a": server.base_url}))
        result = ctxbench_here(["check", "s.toml", "--json"], tmp_path)
    found = msgspec.convert(json.loads(result.stdout), list[Check])
    assert result.returncode == 0 and {one.route for one in found} == {"", "a"}


def test_a_route_that_cannot_be_reached_keeps_no_other_from_being_checked(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with simulate("toy-target-only") as server:
        text = suite_text({"gone": f"http://127.0.0.1:{port}/v1", "here": server.base_url})
        (tmp_path / "s.toml").write_text(text)
        result = ctxbench_here(["check", "s.toml"], tmp_path)
    assert result.returncode == 1
    said = [line.split()[:3] for line in result.stdout.splitlines()]
    assert ["fail", "gone", "server"] in said
    assert ["ok", "here", "request"] in said and ["ok", "here", "prompts"] in said


# --- who counts, who is served --------------------------------------------------------------------


def test_another_models_tokenizer_is_refused_with_figures(tmp_path: Path) -> None:
    # The same vocabulary without its merges: every text has far more tokens.
    spec = json.loads(TOKENIZER.read_text())
    spec["model"]["merges"] = spec["model"]["merges"][:50]
    (tmp_path / "other.json").write_text(json.dumps(spec))
    with simulate("toy-target-only") as server:
        text = suite_text({"a": server.base_url}).replace(str(TOKENIZER), "other.json")
        found = check_all(text, tmp_path)
    (line,) = [one for one in found if one.name == "prompts"]
    assert line.state == "fail" and "it is not the served model's tokenizer" in line.text
    assert not [one for one in found if one.name == "time"]


def test_a_body_limit_in_the_way_is_met_before_the_first_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed = Client.post_json

    async def through_a_proxy(self: Client, path: str, body: object, **more: Any) -> Any:
        if len(msgspec.json.encode(body)) > 20_000:
            raise EngineError(f"POST {path}: HTTP 413: Request Entity Too Large")
        return await passed(self, path, body, **more)

    monkeypatch.setattr(Client, "post_json", through_a_proxy)
    with simulate("toy-target-only") as server:
        text = suite_text({"a": server.base_url})
        assert {one.state for one in check_all(text, tmp_path) if one.name == "prompts"} == {"ok"}
        found = check_all(text.replace("[256, 512]", "[256, 8192]"), tmp_path)
    (line,) = [one for one in found if one.name == "prompts"]
    assert line.state == "fail" and "client_max_body_size" in line.text and "413" in line.text


def test_a_server_at_work_for_somebody_gets_no_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bench.run.preflight.probe._IDLE_LIMIT_S", 0.2)
    with simulate("toy-target-only", speed=0.01) as server:
        with somebody(server.port):
            while not server.truth().requests:
                time.sleep(0.005)
            found = check_all(suite_text({"a": server.base_url}), tmp_path)
        asked = len(server.truth().requests)
    (line,) = [one for one in found if one.name == "idle"]
    assert line.state == "fail" and "still working for somebody" in line.text
    assert asked == 1


def somebody(port: int) -> socket.socket:
    """Somebody else's long answer, for as long as the connection stays open."""
    body = b'{"model": "toy", "prompt": "a b c", "max_tokens": 4000, "ignore_eos": true}'
    head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n"
    line = socket.create_connection(("127.0.0.1", port))
    line.sendall(head.encode() + b"Content-Type: application/json\r\n\r\n" + body)
    return line


# --- what facts say -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({"max_model_len": 528}, [("limit", "ok")]),
        ({"max_model_len": 527}, [("limit", "fail")]),
        ({}, [("limit", "warn")]),
    ],
)
def test_the_longest_trial_must_fit_the_served_limit(
    facts: dict[str, int], expected: list[tuple[str, str]]
) -> None:
    suite = checked()
    assert lines(list(checks._limits(suite, opened(suite.routes[0], **facts)))) == expected


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({"prefix_caching": True, "kv_capacity_tokens": 528, "block_size": 16}, [("cache", "ok")]),
        ({"prefix_caching": True, "kv_capacity_tokens": 527, "block_size": 16}, [("cache", "fail")]),
        ({"prefix_caching": False, "block_size": 16}, [("cache", "fail")]),
        # floor(255 / 256) blocks of 256 tokens: nothing of the shorter tier can come back.
        (
            {"prefix_caching": True, "kv_capacity_tokens": 9000, "block_size": 256},
            [("cache", "ok"), ("cache", "warn")],
        ),
    ],
)
def test_a_replay_must_be_able_to_hit(facts: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    suite = checked()
    assert lines(list(checks._cache(suite, opened(suite.routes[0], **facts)))) == expected
    alone = msgspec.structs.replace(suite, conditions=("cold",))
    assert list(checks._cache(alone, opened(suite.routes[0], **facts))) == []


@pytest.mark.parametrize(
    ("route", "k", "expected"),
    [
        ("", None, []),
        ("", 2, [("speculation", "fail")]),
        (MTP, 2, [("speculation", "ok")]),
        (MTP, 4, [("speculation", "fail")]),
        (MTP, None, [("speculation", "ok")]),
    ],
)
def test_declared_and_seen_speculation_must_agree(
    route: str, k: int | None, expected: list[tuple[str, str]]
) -> None:
    suite = checked(route=route)
    assert lines(list(checks._speculation(opened(suite.routes[0], num_speculative_tokens=k)))) == expected


def test_a_line_about_speculation_says_who_declares_it() -> None:
    route = checked(route=MTP).routes[0]
    said = [
        [one.text for one in checks._speculation(opened(route, num_speculative_tokens=k))] for k in (2, None)
    ]
    assert said == [
        ["the suite declares mtp, k = 2, and so does the server"],
        ["the suite declares mtp, k = 2; the server does not show it before the first draft"],
    ]


def test_a_tier_over_a_limit_the_config_sets_is_named_with_what_sets_it(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"max_position_embeddings": 300}')
    suite = checked(route='config = "config.json"')
    found = with_limits(suite, opened(suite.routes[0], max_model_len=300), tmp_path)
    (line,) = checks._context(suite, found)
    assert line.state == "fail" and line.fault == "suite"
    assert "512" in line.text and "300" in line.text
    assert context_of(suite, opened(checked().routes[0]), tmp_path) is None


@pytest.mark.parametrize(
    ("conditions", "codes", "state"),
    [
        (("cold",), ("drafter_short",), "fail"),
        (("cold", "over-limit"), ("drafter_short",), "warn"),
        (("cold", "over-limit"), ("drafter_short", "served_over_target"), "fail"),
    ],
)
def test_a_short_drafter_is_what_an_over_limit_suite_is_about(
    conditions: tuple[Any, ...], codes: tuple[str, ...], state: str
) -> None:
    suite = msgspec.structs.replace(checked(route=MTP), conditions=conditions)
    findings = tuple(Finding(code=code, severity="fail", message=f"because of {code}") for code in codes)
    engine = EngineVerdict(engine="vllm", status="fail", drafter_limit=400, findings=findings)
    verdict = ContextVerdict(rule=RuleVerdict(outcome="extended"), engine=engine)
    found = msgspec.structs.replace(opened(suite.routes[0]), context=verdict)
    (line,) = checks._context(suite, found)
    assert (line.state, line.text) == (state, f"because of {codes[-1]}")


# --- this machine ---------------------------------------------------------------------------------


def test_a_full_disk_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**12, 10**12, 5_000_000))
    (line,) = check_disk(tmp_path / "not" / "yet" / "there")
    assert line.state == "fail" and line.text.startswith("5 MB are left")


@pytest.mark.parametrize(("lag", "state"), [(0.2, "ok"), (5.0, "ok"), (5.1, "warn")])
def test_a_late_event_loop_is_a_warning(lag: float, state: str) -> None:
    seen = ClientHealth(loop_lag_p50_ms=lag, loop_lag_p99_ms=lag, loop_lag_max_ms=9.0, cpu_share=0.1)
    assert checks._client(seen).state == state
    assert checks._client(None).state == "warn"


def test_a_log_source_that_is_not_there_is_refused(tmp_path: Path) -> None:
    suite = checked(route='log = "server.log"')
    (line,) = checks._log(opened(suite.routes[0]), tmp_path)
    assert line.state == "fail" and "no such file" in line.text
    (tmp_path / "server.log").touch()
    assert lines(list(checks._log(opened(suite.routes[0]), tmp_path))) == [("log", "ok")]
    suite = checked(route='log = "docker:vllm"')
    assert lines(list(checks._log(opened(suite.routes[0]), tmp_path))) == [("log", "ok")]


def test_a_log_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    with simulate("toy-target-only") as server:
        text = suite_text({"a": server.base_url}, route='log = "gone.log"')
        found = check_all(text, tmp_path)
    assert [one.state for one in found if one.name == "log"] == ["fail"]


def test_the_servers_own_version_stands_apart_from_those_that_are_known() -> None:
    route = checked().routes[0]
    assert checks._server(opened(route)) == "vLLM 0.32.0, m (known: 0.8.5 to 0.33 (V1), V0 in part)"
    generic = msgspec.structs.replace(opened(route), dialect=get("generic"))
    assert checks._server(generic) == "any OpenAI-compatible server (no metrics) 0.32.0, m"


def test_a_models_name_has_no_power_over_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def found(_: Order) -> list[Check]:
        return [Check(route="a", name="server", state="ok", text="vLLM, toy\u202egnp")]

    monkeypatch.setattr("bench.run.preflight.whole.preflight", found)
    (tmp_path / "s.toml").write_text(suite_text({"a": URL}))
    said = ctxbench_here(["check", "s.toml"], tmp_path).stdout
    assert "toy\\u202egnp" in said and "\u202e" not in said


# --- faults that are not in tests/faults ----------------------------------------------------------


def short_context() -> Profile:
    return msgspec.structs.replace(load_profile("toy-target-only"), max_model_len=400)


@pytest.mark.parametrize(
    ("fault", "name", "state", "words"),
    [
        ("usage-null", "usage", "fail", "no usage"),
        ("server-error", "request", "fail", "HTTP 500"),
        ("rate-limited", "request", "fail", "HTTP 429"),
        ("too-large", "request", "fail", "HTTP 413"),
        ("error-event", "request", "fail", "a tiny request failed"),
        ("reset-stream", "request", "fail", "a tiny request failed"),
    ],
)
def test_further_faults_get_their_line(
    fault: str, name: str, state: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bench.run.exchange._SETTLE_LIMIT_S", 0.3)
    with simulate("toy-target-only", faults=[fault]) as server:
        found = check_all(suite_text({"a": server.base_url}), tmp_path)
    assert [words in one.text for one in found if (one.name, one.state) == (name, state)] == [True], found


def test_a_tier_over_the_served_limit_is_never_sent(tmp_path: Path) -> None:
    with simulate(short_context()) as server:
        (tmp_path / "s.toml").write_text(suite_text({"a": server.base_url}))
        result = ctxbench_here(["run", "s.toml", "--quiet"], tmp_path)
        assert max(request.prompt_tokens for request in server.truth().requests) < 100
    assert result.returncode == 2
    assert "tier 512 + 16 output tokens exceed the served limit of 400 tokens (/v1/models)" in result.stderr


# --- between routes ---------------------------------------------------------------------------------


def test_routes_that_differ_in_more_than_speculation_are_warned_of(tmp_path: Path) -> None:
    toy = load_profile("toy-target-only")
    with simulate(toy) as one, simulate(msgspec.structs.replace(toy, max_model_len=16_384)) as other:
        text = suite_text({"a": one.base_url, "b": other.base_url})
        found = [line for line in check_all(text, tmp_path) if line.name == "routes"]
    assert [line.state for line in found] == ["warn"]
    assert found[0].text == ("they differ in more than speculation: served limit: 32,768 (a), 16,384 (b)")


def test_a_file_in_place_of_the_results_folder_fails_the_check(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for results in (tmp_path / "file", tmp_path / "file" / "below"):
        (line,) = check_disk(results)
        assert (line.state, line.fault) == ("fail", "suite")
        assert line.text == f"{tmp_path / 'file'} is a file: choose a folder with --results"
    assert check_disk(tmp_path / "yet" / "to be made") == []


def test_a_results_folder_that_cannot_be_written_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # By the question itself: whoever runs these tests may be allowed everything.
    monkeypatch.setattr("bench.run.preflight.checks.os.access", lambda path, mode: path != tmp_path)
    (line,) = check_disk(tmp_path / "new")
    assert (line.state, line.text) == (
        "fail",
        f"{tmp_path} cannot be written: give yourself the right, or choose another folder with --results",
    )


def test_a_results_folder_is_looked_at_before_any_server_is_asked(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with simulate("toy-target-only") as server:
        text = suite_text({"a": server.base_url})
        order = Order(suite=parse_suite(text), suite_text=text, results=tmp_path / "file")
        with pytest.raises(SuiteError, match="is a file: choose a folder with --results"):
            asyncio.run(start(order, Progress()))
        assert server.truth().requests == []
