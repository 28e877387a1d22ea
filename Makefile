# On a fresh clone only python3 (3.11 or later) and make are needed.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

.PHONY: demo test lint unit browser bench gallery clean

demo: $(VENV)/.installed   ## three routes of a real engine on this machine, in about three minutes
	$(BIN)/ctxbench demo

test: $(VENV)/.installed lint unit   ## everything that CI runs

lint: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy -p bench -p benchmarks

unit: $(VENV)/.installed
	$(BIN)/python -m pytest

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

browser: $(VENV)/.installed   ## report.html in a real browser; needs Debian's chromium
	$(BIN)/python -m pytest tests/browser/report_in_browser.py

bench: $(VENV)/.installed   ## all benchmarks; writes benchmarks/RESULTS.md
	$(BIN)/python -m benchmarks all

gallery: $(VENV)/.installed   ## the pictures of docs/gallery and README, from both demos
	rm -rf build/gallery
	$(BIN)/ctxbench demo --results build/gallery/real > build-demo.txt
	$(BIN)/ctxbench demo --simulated --results build/gallery/simulated > build-demo-simulated.txt
	mkdir -p docs/gallery
	mv build-demo.txt docs/gallery/demo.txt
	mv build-demo-simulated.txt docs/gallery/demo-simulated.txt
	for plot in build/gallery/real/*/plots/*.png; do cp $$plot docs/gallery/demo-$$(basename $$plot); done
	for plot in build/gallery/simulated/*/plots/*.png; do cp $$plot docs/gallery/simulated-$$(basename $$plot); done

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
