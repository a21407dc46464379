# Two commands set everything up on a fresh machine, in .venv: `make demo` and `make test`.

PYTHON ?= python3
# Without a GPU a CPU build of torch is preferred: smaller by gigabytes, as fast. The package itself takes a range.
TORCH ?= 2.13.0
BIN := .venv/bin
INSTALLED := .venv/.installed
MODEL := qwen2.5-coder-0.5b-q4
SMALL_MODEL := smollm2-135m-q4

.PHONY: demo test test-fast test-model lint format models clean

demo: $(INSTALLED) ## installs, gets the model, completes a sample file
	$(BIN)/spec-complete model pull $(MODEL)
	@echo; sed -n '38,41p' examples/inventory.py
	@$(BIN)/spec-complete complete examples/inventory.py --at 41:15 --no-daemon

test: lint test-fast test-model test-neovim ## sets up and passes every test but those in VS Code

test-fast: $(INSTALLED)
	$(BIN)/python -m pytest -m "not model and not neovim and not vscode"

test-model: $(INSTALLED) models
	$(BIN)/python -m pytest -m "model and not neovim and not vscode"

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(INSTALLED)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

models: $(INSTALLED)
	$(BIN)/spec-complete model pull $(MODEL)
	$(BIN)/spec-complete model pull $(SMALL_MODEL)

$(INSTALLED): pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	@if command -v nvidia-smi >/dev/null; then echo "a GPU: torch as pip finds it"; else \
	  $(BIN)/python -m pip install --quiet "torch==$(TORCH)+cpu" 2>/dev/null || \
	  $(BIN)/python -m pip install --quiet "torch==$(TORCH)"; fi
	$(BIN)/python -m pip install --quiet --editable ".[test]"
	touch $(INSTALLED)

clean:
	rm -rf .venv build *.egg-info .pytest_cache .mypy_cache .ruff_cache artifacts

include editor-plugins/plugins.mk
