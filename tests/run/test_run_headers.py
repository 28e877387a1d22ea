"""A route's own headers: sent, shown, and secret where they come from the environment."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

from run_helpers import ctxbench_here, only_run, suite_text

from bench.servers.simulator import start as simulate

USAGE = 2
HEADERS = 'headers = { X-Rank = 3, X-Gate-Key = { from_env = "CTX_TEST_GATE" } }'
SECRET = "hush-hush-secret"


def written(path: Path, base_url: str) -> str:
    path.write_text(suite_text({"a": base_url}, route=HEADERS).replace("[256, 512]", "[256]"))
    return path.name


def test_a_servers_requests_carry_them_and_what_it_repeats_is_masked(tmp_path: Path) -> None:
    seen: list[tuple[str | None, str | None]] = []

    class Gate(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append((self.headers.get("x-rank"), self.headers.get("x-gate-key")))
            self.send_response(403)
            self.end_headers()
            self.wfile.write(f"no entry with {seen[-1][1]}".encode())

        def log_message(self, format: str, *args: object) -> None:
            del format, args

    with HTTPServer(("127.0.0.1", 0), Gate) as gate:
        thread = threading.Thread(target=gate.serve_forever, daemon=True)
        thread.start()
        suite = written(tmp_path / "s.toml", f"http://127.0.0.1:{gate.server_port}/v1")
        done = ctxbench_here(["check", suite], tmp_path, CTX_TEST_GATE=SECRET)
        gate.shutdown()
        thread.join()
    assert set(seen) == {("3", SECRET)}
    told = " ".join((done.stdout + done.stderr).split())
    assert "no entry with ***" in told
    assert SECRET not in told


def test_a_run_shows_where_values_come_from_and_no_file_holds_one_of_the_environment(
    tmp_path: Path,
) -> None:
    with simulate("toy-target-only") as server:
        suite = written(tmp_path / "s.toml", server.base_url)
        shown = ctxbench_here(["run", suite, "--dry-run"], tmp_path, CTX_TEST_GATE=SECRET)
        done = ctxbench_here(["run", suite], tmp_path, CTX_TEST_GATE=SECRET)
    assert (shown.returncode, done.returncode) == (0, 0), shown.stderr + done.stderr
    assert "header X-Rank: 3" in shown.stdout and "header X-Gate-Key: from CTX_TEST_GATE" in shown.stdout
    run = only_run(tmp_path / "results")
    files = [path for path in run.rglob("*") if path.is_file()]
    assert len(files) > 3
    assert not any(SECRET.encode() in path.read_bytes() for path in files)
    report = (run / "report.html").read_text()
    assert "X-Rank: 3; X-Gate-Key: from CTX_TEST_GATE" in report


def test_a_variable_that_is_not_set_or_cannot_be_sent_is_named_before_anything_is_asked(
    tmp_path: Path,
) -> None:
    suite = written(tmp_path / "s.toml", "http://127.0.0.1:9/v1")
    done = ctxbench_here(["run", suite], tmp_path)
    assert done.returncode == USAGE and "CTX_TEST_GATE is not set" in done.stderr
    done = ctxbench_here(["run", suite], tmp_path, CTX_TEST_GATE="two\nlines-hush")
    assert done.returncode == USAGE and "no header can carry" in done.stderr and "hush" not in done.stderr
