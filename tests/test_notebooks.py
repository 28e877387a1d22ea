"""The notebooks run from top to bottom on the small recorded run, and are kept without outputs."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))


def test_both_notebooks_are_there() -> None:
    assert [path.name for path in NOTEBOOKS] == ["compare_routes.ipynb", "study.ipynb"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_kept_without_outputs_and_without_logic(path: Path) -> None:
    book = nbformat.read(path, as_version=4)
    for cell in book.cells:
        if cell.cell_type == "code":
            assert not cell.outputs and cell.execution_count is None
            assert not any(line.startswith(("def ", "class ", "for ")) for line in cell.source.splitlines())


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CTXBENCH_RUN", raising=False)
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "jupyter"))
    monkeypatch.setenv("PYTHONWARNINGS", "error")
    book = nbformat.read(path, as_version=4)
    NotebookClient(book, timeout=900, resources={"metadata": {"path": str(path.parent)}}).execute()
    kinds = [out.output_type for cell in book.cells if cell.cell_type == "code" for out in cell.outputs]
    assert "error" not in kinds and "execute_result" in kinds
    assert all(out.get("name") != "stderr" for cell in book.cells for out in cell.get("outputs", []))
