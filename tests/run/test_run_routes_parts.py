"""Processes, records of running servers, and tables of a suite: the parts a run's servers are made of."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from run_helpers import TOKENIZER

from bench.errors import EngineError, SuiteError
from bench.plan.hooks import hook_lines, recorded, with_values_of
from bench.plan.suite import parse_suite
from bench.plan.trials import pair_key
from bench.records import FromEnv, Route, RouteServer, Suite
from bench.run.lifecycle.process import ServerProcess, Surroundings, identity
from bench.run.lifecycle.routes import SERVERS, Kept, Register, Server, surroundings
from bench.wire.client import Client

HERE = Path(__file__).parent


def suite_text(server: str, *, suite: str = "", other: str = "") -> str:
    return f"""
[suite]
name = "s"
tiers = [256]
{suite}
[prompt]
tokenizer = '{TOKENIZER}'
[[route]]
name = "a"
base_url = "http://127.0.0.1:8000/v1"
[route.server]
{server}
{other}
"""


OTHER = """
[[route]]
name = "b"
base_url = "http://127.0.0.1:8000/v1"
[route.server]
up = "true"
"""


# --- processes ---


def around(**env: str) -> Surroundings:
    return Surroundings(cwd=HERE, env=env, secrets=tuple(env.values()))


def group_of(process: ServerProcess) -> list[int]:
    """Living processes in a group."""
    listed = subprocess.run(
        ["ps", "-A", "-o", "pgid=,stat=,pid="], capture_output=True, text=True, check=True
    )
    rows = [line.split() for line in listed.stdout.splitlines()]
    return [int(pid) for group, state, pid in rows if int(group) == process.pid and state[0] != "Z"]


def test_everything_that_a_command_has_started_ends_with_it() -> None:
    async def main() -> None:
        process = ServerProcess("sleep 1000 & sleep 1000 & wait", around())
        while len(group_of(process)) < 3:
            await asyncio.sleep(0.01)
        await process.stop()
        assert group_of(process) == []
        await process.stop()  # harmless

    asyncio.run(main())


def test_what_does_not_end_on_term_is_killed() -> None:
    async def main() -> None:
        process = ServerProcess("trap '' TERM; echo ready; while :; do sleep 1; done", around())
        while "ready" not in process.last_lines():
            await asyncio.sleep(0.01)
        await process.stop(grace_s=0.05)
        assert group_of(process) == []

    asyncio.run(main())


def test_a_down_command_comes_first_and_its_failure_is_told() -> None:
    async def main() -> None:
        process = ServerProcess("sleep 1000", around())
        problem = await process.stop("echo not today; exit 3", grace_s=5)
        assert problem == "echo not today; exit 3: exit code 3: not today"
        assert group_of(process) == []

    asyncio.run(main())


def test_a_group_ends_even_if_we_are_killed_before_we_can_stop_it() -> None:
    script = (
        "import asyncio, os, signal, sys\n"
        "from pathlib import Path\n"
        "from bench.run.lifecycle.process import ServerProcess, Surroundings\n"
        "p = ServerProcess('sleep 1000 & sleep 1000', Surroundings(cwd=Path('.'), env={}))\n"
        "print(p.pid, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert result.returncode == -signal.SIGKILL
    pid = int(result.stdout)

    async def gone() -> None:
        while identity(pid) is not None:
            await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(gone(), 30))


def test_an_excerpt_begins_at_the_mark_is_bounded_and_holds_no_secret(tmp_path: Path) -> None:
    async def main() -> None:
        up = "echo before; read -r line < $PIPE; echo key $KEY; yes 0123456789 | head -n 1000; echo end"
        pipe = tmp_path / "pipe"
        os.mkfifo(pipe)
        env = {"KEY": "top-secret", "PIPE": str(pipe)}
        process = ServerProcess(up, Surroundings(cwd=HERE, env=env, secrets=("top-secret",)))
        while "before" not in process.last_lines():
            await asyncio.sleep(0.01)
        process.mark()
        pipe.write_text("go\n")
        assert await process.ended_within(30)
        found = process.excerpt(200)
        assert found.data.startswith(b"key ***\n0123456789\n") and found.data.endswith(b"9\nend\n")
        assert found.omitted == len("key top-secret\nend\n") + 1000 * 11 - 200
        await process.stop()

    asyncio.run(main())


def test_a_program_that_is_not_there_is_one_line() -> None:
    with pytest.raises(EngineError, match="/no/such/program: cannot be started: No such file"):
        ServerProcess(("/no/such/program",), around())


# --- records of running servers ---


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "1000"])
    yield process
    process.kill()
    process.wait()


def leave(run: Path, pid: int, **change: str) -> Kept:
    """A run directory as a run that was killed leaves it."""
    found = identity(pid)
    assert found is not None
    process = msgspec.structs.replace(found, **change)
    kept = Kept(
        route="a", base_url="http://127.0.0.1:8000/v1", command="serve it", since="t", process=process
    )
    run.mkdir(parents=True)
    (run / SERVERS).write_bytes(msgspec.json.encode([kept]))
    return kept


ROUTE = Route(name="b", base_url="http://127.0.0.1:8000/v1", server=RouteServer(up="x"))


def test_the_server_that_an_earlier_run_left_is_named_with_how_to_stop_it(
    tmp_path: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    leave(tmp_path / "earlier", sleeper.pid)
    said = Register(tmp_path).taken(ROUTE)
    assert f"process {sleeper.pid} of route a" in said and f"kill -- -{sleeper.pid}" in said
    respelt = msgspec.structs.replace(ROUTE, base_url="http://localhost:8000/v1")
    assert f"kill -- -{sleeper.pid}" in Register(tmp_path).taken(respelt)


@pytest.mark.parametrize("change", [{"started": "1"}, {"boot": "another"}])
def test_another_process_of_the_same_number_is_not_taken_for_it(
    tmp_path: Path, sleeper: subprocess.Popen[bytes], change: dict[str, str]
) -> None:
    leave(tmp_path / "earlier", sleeper.pid, **change)
    assert str(sleeper.pid) not in Register(tmp_path).taken(ROUTE)
    register = Register(tmp_path)
    register.keep_in(tmp_path / "earlier")
    asyncio.run(register.refuse_stale("a", lambda _: None))
    assert not (tmp_path / "earlier" / SERVERS).exists()


def test_a_server_of_an_earlier_session_is_waited_for_and_never_killed(
    tmp_path: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    leave(tmp_path / "run", sleeper.pid)
    register = Register(tmp_path)
    register.keep_in(tmp_path / "run")
    said: list[str] = []

    async def main() -> None:
        waiting = asyncio.create_task(register.refuse_stale("a", said.append))
        while not said:
            await asyncio.sleep(0)
        assert sleeper.poll() is None and not waiting.done()
        sleeper.kill()
        sleeper.wait()
        await waiting

    asyncio.run(main())
    assert f"process {sleeper.pid}" in said[0]


# --- tables ---


@pytest.mark.parametrize(
    ("server", "said"),
    [
        ("", "up"),
        ('up = ""', "server.up: a command"),
        ("up = []", "server.up: a command"),
        ('up = "x"\nupp = 1', "did you mean 'up'"),
        ('up = "vllm serve m --api-key sk-1"', "holds a key, or an address that is one"),
        ('up = ["vllm", "--api-key=sk-1"]', "holds a key, or an address that is one"),
        ('up = "x"\nrestart = -1', "restart = -1"),
        ('up = "x"\nready_timeout_s = 0', "ready_timeout_s"),
        ('up = "x"\nenv = { "A-B" = "sk-1" }', "'A-B' is no name"),
        ('up = "x"\nenv = { A = { from_env = "sk-1" } }', "server.env.A"),
        ('up = "x"\nenv = { A = ["sk-1"] }', "env"),
        ('up = "x"\nenv = { A = { form_env = "B" } }', "form_env"),
        ('up = "x"\nlog = "-"', "log"),
    ],
)
def test_a_server_table_that_is_wrong(server: str, said: str) -> None:
    with pytest.raises(SuiteError) as caught:
        parse_suite(suite_text(server))
    assert said in str(caught.value)
    assert "sk-1" not in str(caught.value)


def test_an_api_key_out_of_a_variable_may_stand_in_a_command() -> None:
    for key in ("$KEY", '"$KEY"'):
        (route,) = parse_suite(suite_text(f"up = 'vllm serve m --api-key {key}'")).routes
        assert route.server is not None and route.server.up == f"vllm serve m --api-key {key}"


def test_servers_on_one_address_take_turns_by_themselves_and_cannot_be_told_to_be_up_together() -> None:
    assert not parse_suite(suite_text('up = "x"', other=OTHER)).interleave
    with pytest.raises(SuiteError, match="the servers of a and b cannot both be up on"):
        parse_suite(suite_text('up = "x"', suite="interleave = true", other=OTHER))


def test_another_spelling_of_an_address_is_no_other_address() -> None:
    other = OTHER.replace("127.0.0.1", "localhost")
    assert other != OTHER and not parse_suite(suite_text('up = "x"', other=other)).interleave
    with pytest.raises(SuiteError, match="cannot both be up on localhost:"):
        parse_suite(suite_text('up = "x"', suite="interleave = true", other=other))


def test_servers_that_are_started_anew_share_no_cache() -> None:
    suite = parse_suite(suite_text('up = "x"', other=OTHER))
    assert [pair_key(suite, route) for route in suite.routes] == ["all", "all"]


VALUES = """up = "x"
[route.server.env]
LONG = "sk-very-secret"
'QUOTED' = 'another "secret"'
ESC = "sk-\\u0041BC"
N = 7
B = { from_env = "C" }
"""


def test_a_run_keeps_no_value_of_a_variable_and_a_resumed_one_finds_them_again() -> None:
    text = suite_text(VALUES + "\n# sk-very-secret\n")
    suite = parse_suite(text)
    kept, kept_text = recorded(suite, text, HERE)
    for secret in ("sk-very-secret", 'another "secret"', "sk-ABC", "u0041BC"):
        assert secret not in kept_text
        assert secret not in msgspec.json.encode(kept).decode()
    assert parse_suite(kept_text).name == "s"
    server = kept.routes[0].server
    assert server is not None
    assert server.env["LONG"] == FromEnv(from_env="LONG") and server.env["B"] == FromEnv(from_env="C")
    assert server.cwd == str(HERE.resolve())
    again = with_values_of(kept, suite).routes[0].server
    assert again is not None and again.env["LONG"] == "sk-very-secret" and again.env["N"] == "7"


def test_a_value_that_begins_another_leaves_nothing_of_that_one() -> None:
    text = suite_text('up = "x"\nenv = { A = "abcdef", B = "abcdef123456" }') + "# was abcdef123456\n"
    _, kept = recorded(parse_suite(text), text, HERE)
    assert "# was (not recorded)\n" in kept and "123456" not in kept


def test_no_value_is_shown() -> None:
    lines = hook_lines(parse_suite(suite_text(VALUES)).routes[0])
    assert "with: LONG (from the suite), QUOTED (from the suite), ESC (from the suite)" in lines[1]
    assert "B (from C)" in lines[1] and "sk-" not in " ".join(lines)


def route_of(server: str) -> tuple[Suite, Route]:
    suite = parse_suite(suite_text(server))
    return suite, suite.routes[0]


@pytest.mark.parametrize(
    ("server", "said"),
    [
        ('up = "x"\nenv = { A = { from_env = "CTX_TEST_NOT_SET" } }', "CTX_TEST_NOT_SET is not set"),
        ('up = "x"\ncwd = "no-such-folder"', "no-such-folder"),
        ('up = ["no-such-program-here", "x"]', "no program 'no-such-program-here'"),
    ],
)
def test_what_would_fail_when_a_routes_turn_comes_is_refused_before_anything_runs(
    server: str, said: str
) -> None:
    with pytest.raises(SuiteError, match=said):
        surroundings(route_of(server)[1], HERE)


# --- addresses ---


def test_an_address_that_is_just_being_let_go_is_waited_for(tmp_path: Path) -> None:
    """A killed process is gone before the last of its threads: until then its port answers."""
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]

    def let_go_when_asked() -> None:
        with listener:
            listener.accept()[0].close()

    text = suite_text('up = "exit 3"').replace("127.0.0.1:8000", f"127.0.0.1:{port}")
    route = parse_suite(text).routes[0]

    async def main() -> None:
        async with Client(route.base_url) as client:
            await Server(route, tmp_path, Register(tmp_path), lambda line: None).start(client)

    thread = threading.Thread(target=let_go_when_asked)
    thread.start()
    with pytest.raises(EngineError, match="ended with exit code 3"):  # it was started, then
        asyncio.run(main())
    thread.join()
