"""What the documentation says is true: keys, commands, examples and links."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import msgspec
import pytest

from bench.cli.options import as_markdown, commands
from bench.plan.suite import RouteTable, SuiteTable, parse_suite
from bench.records import ChatSettings, PromptSettings, RequestSettings, RouteServer, Timeouts
from bench.resources import shipped

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("name", commands())
def test_every_command_has_an_example_in_its_help_and_a_place_in_the_docs(name: str) -> None:
    text = commands()[name].help or ""
    assert f"ctxbench {name}" in text.split("Example", 1)[-1], "no example in the help"
    assert any(f"ctxbench {name}" in page.read_text() for page in PAGES), "not in README or docs"


@pytest.mark.parametrize("name", commands())
def test_every_example_in_a_help_parses(name: str) -> None:
    text = commands()[name].help or ""
    (example,) = re.findall(rf"^ *ctxbench {name}((?:.*\\\n)*.*)$", text, re.MULTILINE)
    words = shlex.split(example.replace("\\\n", " "))
    command = commands()[name]
    command.make_context(name, list(words), resilient_parsing=True)
    known = {option for parameter in command.params for option in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= known


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_every_command_in_the_docs_has_the_options_it_is_shown_with(page: Path) -> None:
    longest_first = sorted(commands(), key=len, reverse=True)
    for given in re.findall(r"(?:`|^\$ |^ *)ctxbench ([a-z][^`\n]*)", page.read_text(), re.MULTILINE):
        name = next((one for one in longest_first if f"{given} ".startswith(f"{one} ")), None)
        if name is None:
            assert not given.startswith("-") and "--" not in given, given  # a sentence
            continue
        known = {option for parameter in commands()[name].params for option in parameter.opts} | {"--help"}
        shown = set(re.findall(r"(?<![\w-])--[a-z][\w-]*", given.partition(" #")[0]))
        assert shown <= known, given


def test_the_page_of_options_is_what_the_commands_say() -> None:
    written = (ROOT / "docs" / "options.md").read_text()
    assert written == as_markdown(), "python -m bench.cli.options > docs/options.md"
    for name, command in commands().items():
        section = written.split(f"\n## {name}\n", 1)[1].split("\n## ", 1)[0]
        shown = [word for one in command.params if not getattr(one, "hidden", False) for word in one.opts]
        assert {word for word in shown if word[0] == "-"} <= set(re.findall(r"--?[a-z][\w-]*", section)), name


@pytest.mark.parametrize(
    ("heading", "kind", "left_out"),
    [
        ("[suite]", SuiteTable, set()),
        ("[prompt]", PromptSettings, set()),
        ("[chats]", ChatSettings, set()),
        ("[[route]]", RouteTable, set()),
        ("[route.server]", RouteServer, set()),
        ("[request]", RequestSettings, {"timeouts"}),
    ],
)
def test_the_suite_page_has_every_key_and_no_other(
    heading: str, kind: type[msgspec.Struct], left_out: set[str]
) -> None:
    page = (ROOT / "docs" / "suite.md").read_text()
    section = page.split(f"## `{heading}`", 1)[1].split("\n## ", 1)[0]
    documented = set(re.findall(r"^\| `([\w.]+)` \|", section, re.MULTILINE))
    expected = {field.name for field in msgspec.structs.fields(kind)} - left_out
    if kind is RequestSettings:
        expected |= {f"timeouts.{field.name}" for field in msgspec.structs.fields(Timeouts)}
    assert documented == expected


@pytest.mark.parametrize("path", sorted(shipped("prompts", "suites").glob("*.toml")), ids=lambda p: p.name)
def test_every_ready_suite_is_one(path: Path) -> None:
    assert parse_suite(path.read_text(), name=path.name).name == path.stem


def test_the_readme_suite_is_one() -> None:
    (text,) = re.findall(r"```toml\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    suite = parse_suite(text)
    assert [route.name for route in suite.routes] == ["mtp4", "target-only"]
    assert len(text.strip().splitlines()) <= 15


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_and_pictures_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)", page.read_text()):
        if not target.startswith(("http://", "https://")):
            assert (page.parent / target).exists(), target
