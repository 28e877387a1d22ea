"""A command is imported when it is asked for, and says in its help what it takes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from bench.cli.command import Group, Number, argument, command
from bench.cli.main import app
from bench.resources import shipped

SUITE = str(shipped("prompts", "suites", "laptop.toml"))


def imported(arguments: Sequence[str]) -> set[str]:
    """The modules that a command line has imported when it ends."""
    code = (
        "import atexit, sys; atexit.register(lambda: print(*sys.modules, file=sys.stderr));"
        "from bench.cli.main import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        check=False,
    )
    return set(done.stderr.decode().splitlines()[-1].split())


def test_a_command_imports_none_of_the_others() -> None:
    names = {
        module.rpartition(".")[2] for module in imported(["run", "--help"]) if module.startswith("bench.cli.")
    }
    assert names == {"main", "collector", "command", "layout", "interrupt", "run", "finish"}


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["run", SUITE, "--dry-run"]])
def test_help_and_a_dry_run_need_nothing_heavy(arguments: list[str]) -> None:
    heavy = {"pandas", "matplotlib", "scipy", "tiktoken", "pydantic"}
    heavy |= {"aiohttp", "httpx", "prometheus_client"}
    found = imported(arguments)
    assert "bench.cli.main" in found and found & heavy == set()


def test_every_place_holds_a_command_and_the_help_keeps_their_order() -> None:
    said = CliRunner().invoke(app, ["--help"]).stdout.partition("Commands:\n")[2]
    assert [line.split()[0] for line in said.splitlines()] == list(app.commands)
    assert list(app.commands)[:3] == ["demo", "plan", "check"] and len(app.commands) == 18
    assert all(isinstance(one, click.Command) for one in app.commands.values())


def test_a_group_without_a_command_shows_its_help() -> None:
    shown = CliRunner().invoke(app, ["serve"])
    assert "simulator  Serve a simulated model" in shown.output


def test_a_name_that_is_none_is_a_usage_error() -> None:
    refused = CliRunner().invoke(app, ["nonsense"])
    assert refused.exit_code == 2 and "No such command 'nonsense'" in refused.output


@command
@argument("source", help="Where from.")
@argument("target", help="Where to.", required=False)
@click.option("--share", type=Number(0, 2), default=1, help="How much.")
def copied(source: str, target: str | None, share: float) -> None:
    """Copy. Example:

    ctxbench copied here there
    """
    print(source, target, share)


def test_the_help_of_a_command_has_its_arguments_its_options_and_their_defaults() -> None:
    said = CliRunner().invoke(copied, ["-h"]).stdout
    rows = [" ".join(line.split()) for line in said.splitlines()]
    assert rows[0] == "Usage: copied [OPTIONS] SOURCE [TARGET]"
    assert "SOURCE Where from." in rows and "[TARGET] Where to." in rows
    assert rows.index("Arguments:") < rows.index("[TARGET] Where to.") < rows.index("Options:")
    assert said.count("Where from.") == 1
    assert "--share NUMBER How much. [default: 1; 0<=x<=2]" in rows
    assert "ctxbench copied here there" in rows


@pytest.mark.parametrize("share", ["nan", "-nan", "inf", "-inf", "2.1", "-0.1", "x", ""])
def test_a_number_beyond_its_limits_or_none_at_all_is_named_by_its_option(share: str) -> None:
    refused = CliRunner().invoke(copied, ["a", "--share", share])
    assert refused.exit_code == 2 and "Invalid value for '--share': " in refused.output


def test_a_number_within_its_limits_is_taken() -> None:
    assert CliRunner().invoke(copied, ["a", "--share", "0.5"]).stdout == "a None 0.5\n"


def test_a_command_is_imported_once_it_is_asked_for_and_not_before(tmp_path: Path) -> None:
    group = Group("g", "Nothing.", {"one": "bench.cli.no_such_module:one", "run": "bench.cli.run:run"})
    assert list(group.commands) == ["one", "run"] and "run" in group.commands
    assert group.get_command(click.Context(group), "run") is group.commands["run"]
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        group.commands["one"]
