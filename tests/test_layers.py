"""The house of DESIGN section 3: which floor may import which."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parent.parent / "bench"

GROUND = {"records", "errors", "resources", "address", "masking", "folders", "journal", "engines"}
# floor -> floors it may import, besides itself
ALLOWED: dict[str, set[str]] = {
    "records": set(),
    "errors": set(),
    "resources": {"errors"},
    "address": set(),
    "masking": set(),
    "folders": set(),
    "engines": {"records", "errors"},
    "journal": {"records", "errors"},
    "plan": GROUND | {"analysis"},
    "prompting": GROUND,
    "wire": GROUND,
    "run": GROUND | {"wire", "plan", "prompting", "analysis"},
    "analysis": GROUND,
    "report": GROUND | {"analysis"},
    "servers": {"records", "errors", "folders"},
    "api": GROUND | {"analysis", "report"},
    "__init__": {"records", "errors", "api"},
    "__main__": {"cli"},
    "cli": GROUND | {"plan", "prompting", "wire", "run", "analysis", "report", "servers", "api"},
}
# Pure floors compute; they never look at a clock, a file or a socket.
PURE = {"engines", "analysis"}
IMPURE_MODULES = {
    "time",
    "socket",
    "asyncio",
    "os",
    "pathlib",
    "subprocess",
    "aiohttp",
    "random",
    "io",
}


def floor_of(path: Path) -> str:
    return path.relative_to(BENCH).parts[0].removesuffix(".py")


def imports(path: Path, *, top_level_only: bool = False) -> set[str]:
    """Absolute names of what a module imports, wherever the import stands."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    nodes = tree.body if top_level_only else list(ast.walk(tree))
    package = path.relative_to(BENCH.parent).with_suffix("").parts[:-1]
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = list(package[: len(package) - node.level + 1]) if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            found |= {module} | {f"{module}.{alias.name}" for alias in node.names}
    return found


MODULES = sorted(p for p in BENCH.rglob("*.py") if "_shipped" not in p.parts)


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(BENCH)))
def test_a_module_imports_only_the_floors_below_it(path: Path) -> None:
    floor = floor_of(path)
    used = {name.split(".")[1] for name in imports(path) if name.startswith("bench.")}
    assert used - {floor} <= ALLOWED[floor], f"{floor} imports {used - {floor} - ALLOWED[floor]}"


@pytest.mark.parametrize(
    "path", [p for p in MODULES if floor_of(p) in PURE], ids=lambda p: str(p.relative_to(BENCH))
)
def test_pure_floors_have_no_clock_file_or_socket(path: Path) -> None:
    assert not {name.split(".")[0] for name in imports(path)} & IMPURE_MODULES


ROOMS = ("logs", "verdicts", "statistics", "decisions")
"""Of the analysis: each makes use of those before it. What is watched makes use of the first three."""


@pytest.mark.parametrize(
    "path", [p for p in MODULES if floor_of(p) == "analysis"], ids=lambda p: str(p.relative_to(BENCH))
)
def test_rooms_of_the_analysis_use_only_those_before_them(path: Path) -> None:
    room = path.parent.name
    allowed = ROOMS[:3] if room == "watch" else ROOMS[: ROOMS.index(room)] if room in ROOMS else ()
    used = {name.split(".")[2] for name in imports(path) if name.startswith("bench.analysis.")}
    assert used - {room} <= set(allowed)


def test_only_the_wire_knows_aiohttp_and_only_the_command_line_prints() -> None:
    for path in MODULES:
        floor = floor_of(path)
        if floor != "wire":
            assert not {n.split(".")[0] for n in imports(path)} & {"httpx", "httpx_aiohttp", "aiohttp"}, path
        if floor != "cli":
            calls = [n for n in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(n, ast.Call)]
            assert not [c for c in calls if isinstance(c.func, ast.Name) and c.func.id == "print"], path


def test_there_are_no_import_cycles_between_modules() -> None:
    graph = {}
    names = {
        ".".join(p.relative_to(BENCH.parent).with_suffix("").parts).removesuffix(".__init__"): p
        for p in MODULES
    }
    for name, path in names.items():
        graph[name] = {n for n in imports(path, top_level_only=True) if n in names and n != name}
    done: set[str] = set()

    def visit(name: str, trail: tuple[str, ...]) -> None:
        assert name not in trail, " -> ".join([*trail, name])
        if name not in done:
            for other in graph[name]:
                visit(other, (*trail, name))
            done.add(name)

    for name in graph:
        visit(name, ())


def test_what_the_package_imports_is_what_it_asks_for() -> None:
    """A library that is there for the tests alone is missing where the package is installed."""
    project = tomllib.loads((BENCH.parent / "pyproject.toml").read_text("utf-8"))["project"]
    groups = [project["dependencies"], *project["optional-dependencies"].values()]
    groups.remove(project["optional-dependencies"]["dev"])
    asked = {re.split(r"[^\w-]", one)[0].replace("-", "_") for group in groups for one in group}
    guarded = {"huggingface_hub", "httpx", "pynvml", "pyarrow"}  # used where somebody has them
    used = {name.split(".")[0] for path in MODULES for name in imports(path)}
    foreign = used - set(sys.stdlib_module_names) - {"bench", "__future__"}
    assert foreign - guarded <= asked
    assert {"numpy", "msgspec", "certifi"} <= foreign
