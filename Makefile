# On a fresh clone only python3 (3.11 or later) and make are needed.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

.PHONY: demo test lint unit browser bench clean

demo: $(VENV)/.installed   ## three routes of a real engine on this machine, in about two minutes
	$(BIN)/ctxbench demo

test: $(VENV)/.installed lint unit   ## everything that CI runs

lint: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

unit: $(VENV)/.installed
	$(BIN)/python -m pytest

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

browser: $(VENV)/.installed   ## report.html in a real browser; needs Debian's chromium
	$(BIN)/python -m pytest tests/browser/report_in_browser.py

bench: $(VENV)/.installed   ## all benchmarks; writes benchmarks/RESULTS.md
	$(BIN)/python -m benchmarks

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
