# On a fresh clone only python3 (3.11 or later) and make are needed.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

.PHONY: demo test lint unit clean

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

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
