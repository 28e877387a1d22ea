"""`ctxbench serve simulator`: what it lists, what it refuses, and that it ends with its parent."""

from __future__ import annotations

import httpx
import pytest
from click.testing import CliRunner

from bench.cli.main import app
from bench.errors import BenchError, SuiteError
from bench.servers.child import serving
from bench.servers.simulator import FAULTS, profile_names


def test_the_list_shows_every_profile_and_fault() -> None:
    shown = CliRunner().invoke(app, ["serve", "simulator", "--list"])
    assert shown.exit_code == 0
    for name in [*profile_names(), *FAULTS]:
        assert name in shown.stdout


@pytest.mark.parametrize(
    "arguments",
    [["--profile", "none"], ["--fault", "none"], ["--speed", "0"], ["--host", "0.0.0.0"]],  # noqa: S104
)
def test_a_wrong_argument_is_a_usage_error(arguments: list[str]) -> None:
    refused = CliRunner().invoke(app, ["serve", "simulator", *arguments])
    assert isinstance(refused.exception, SuiteError)
    assert isinstance(refused.exception, BenchError) and refused.exception.exit_code == 2


def test_it_serves_in_a_process_of_its_own_until_its_parent_lets_go() -> None:
    with serving(["simulator", "--profile", "toy", "--speed", "50"]) as child:
        shown = httpx.get(child.base_url + "/models", trust_env=False).json()
        assert shown["data"][0]["id"] == "toy"
    assert child.process.returncode == 0
