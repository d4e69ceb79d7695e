# make book    build both languages and serve them on 127.0.0.1 (SERVE=0: only build)
# make test    everything that can be proved: check, unit tests, notebooks, the site in a browser
# make lab     JupyterLab on the book
# JOBS=4 runs four tests at a time instead of two.
# Needs Python 3.11 or newer; everything else goes into .venv, exact versions from requirements.txt.

PYTHON ?= python3
SERVE ?= 1
JOBS ?= 2
VENV := .venv
BIN := $(VENV)/bin

.PHONY: book test lab lint check unit notebooks colab site bench clean
.DEFAULT_GOAL := book

book: $(VENV)/ready
	$(BIN)/book build
ifneq ($(SERVE),0)
	$(BIN)/book serve
endif

test: lint check unit notebooks colab site

lint: $(VENV)/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

check: $(VENV)/ready
	$(BIN)/book check

unit: $(VENV)/ready
	OMP_NUM_THREADS=1 $(BIN)/pytest -q -n $(JOBS) --dist loadfile tests/helpers tests/bookbuild

notebooks: $(VENV)/ready
	$(BIN)/pytest -q -n $(JOBS) book --record-validated

colab: $(VENV)/ready
	OMP_NUM_THREADS=1 $(BIN)/pytest -q -n $(JOBS) tests/colab

site: $(VENV)/ready
	$(BIN)/book build
	BOOK_SITE=_build/site $(BIN)/pytest -q -n $(JOBS) --dist loadgroup tests/site

lab: $(VENV)/ready
	$(BIN)/jupyter lab --notebook-dir=book

bench: $(VENV)/ready
	$(BIN)/python benchmarks/import_time.py

clean:
	rm -rf _build

# visdom is published as source only; the constraint is what building it needs, with any pip.
$(VENV)/ready: requirements.txt build-constraints.txt pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(0 if v >= (3, 11) else \
	  "Python 3.11 or newer is needed, %s is %d.%d: make PYTHON=/path/to/python3.11" \
	  % (sys.executable, v[0], v[1]))'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
	  echo "No virtual environment could be made; on Debian: apt install python3-venv"; exit 1; }
	PIP_CONSTRAINT=build-constraints.txt PIP_BUILD_CONSTRAINT=build-constraints.txt \
	  PIP_DISABLE_PIP_VERSION_CHECK=1 $(BIN)/python -m pip install -r requirements.txt
	PIP_DISABLE_PIP_VERSION_CHECK=1 $(BIN)/python -m pip install -q --no-deps -e .
	@touch $@
