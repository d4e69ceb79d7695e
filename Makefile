# make book    build both languages and serve them on 127.0.0.1 (SERVE=0: only build); no PyTorch
# make test    run lint, `book check`, the English notebooks, and the tests without the mark `rest`
# make rest    run what `make test` leaves out: Chinese notebooks and pages, other editions, proofs
# make quick   run lint, `book check`, and the tests that the last change affects
# make live    build and serve the site with a kernel for each page, which runs its cells
# make lab     open the book in JupyterLab
# make versions TORCH=2.11.0 TORCHVISION=0.26.0   run the notebooks under another PyTorch
# make newest  run notebooks and build sites with the newest packages; deprecations are errors
# make validated  run all notebooks, and record those that pass in book/validated.json
# make warnings  run the notebooks with deprecations as errors
# make gpu     run the notebooks and tests/gpu on a GPU with the machine's own PyTorch
# JOBS=4 runs four tests at a time; on two cores, two at a time take less time than four.
# Requires Python 3.11 or newer. Packages are installed into .venv in the exact versions of
# requirements.txt, for `make book`, `make check` and `make release` of requirements-book.txt.

PYTHON ?= python3
SERVE ?= 1
JOBS ?= 2
# Without bytecode files, each of about a hundred processes would compile PyTorch's source again.
unexport PYTHONDONTWRITEBYTECODE
VENV := .venv
BIN := $(VENV)/bin
# visdom is published only as source; the constraints apply to its build, with any version of pip.
CONSTRAINED := PIP_CONSTRAINT=build-constraints.txt PIP_BUILD_CONSTRAINT=build-constraints.txt \
  PIP_DISABLE_PIP_VERSION_CHECK=1
BESIDE_TORCH := grep -vE '^(\#|torch==|torchvision==)' requirements.txt
# Rerun a failed test once: tests of processes, times or a browser may fail on a busy machine. The
# summary lists reruns.
AGAIN := --reruns 1 --reruns-delay 2 -r R
# A commit gives the same result in every run; `pytest` alone draws other inputs each time.
SEEDED := --hypothesis-seed=0
PROVE := OMP_NUM_THREADS=1 BOOK_SITE=_build/site $(BIN)/pytest -q -n $(JOBS) --dist loadfile \
  --no-loadscope-reorder $(AGAIN) $(SEEDED)
TESTS := tests/site tests/colab tests/bookbuild tests/helpers tests/gpu
# Remove packages whose versions each PyTorch pins.
OF_TORCH := grep -viE '^(filelock|fsspec|jinja2|markupsafe|mpmath|networkx|sympy|typing_extensions)=='

.PHONY: book editions chinese-font test rest built quick live lab lint check release notebooks notebooks-zh validated colab
.PHONY: versions newest newest-site notebooks-branch conda warnings wheels gpu bench clean
.DEFAULT_GOAL := book

book: $(VENV)/book
	$(BIN)/book build
ifneq ($(SERVE),0)
	$(BIN)/book serve
endif

# Build the site with the downloads of the home pages; Chromium prints the PDF.
editions: $(VENV)/book
	$(BIN)/book build --zip --pdf --epub

chinese-font:
	sudo apt-get update
	sudo apt-get install -y --no-install-recommends fonts-noto-cjk

# The site is built while pip installs PyTorch. One pytest runs all of `tests`, longest files
# first, so that no core is idle between parts.
test:
	$(MAKE) --no-print-directory -j 2 $(VENV)/ready built
	$(MAKE) --no-print-directory lint notebooks
	$(PROVE) -m "not rest" $(TESTS)

rest:
	$(MAKE) --no-print-directory -j 2 $(VENV)/ready built
	$(MAKE) --no-print-directory notebooks-zh
	$(PROVE) -m rest $(TESTS)

built: check
	$(BIN)/book build

quick: lint check
	OMP_NUM_THREADS=1 $(BIN)/python tests/quick.py

lint: $(VENV)/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

check: $(VENV)/book
	$(BIN)/book check

release: $(VENV)/book
	$(BIN)/book check --release

# `make check` requires the same code and outputs in both languages, so `notebooks-zh` only tests
# that the translated comments change no output.
notebooks: $(VENV)/ready
	$(BIN)/pytest -q -n $(JOBS) book/en

notebooks-zh: $(VENV)/ready
	$(BIN)/pytest -q -n $(JOBS) book/zh

validated: $(VENV)/ready
	$(BIN)/pytest -q -n $(JOBS) book --record-validated

colab: $(VENV)/ready
	$(PROVE) --dist load tests/colab

live: $(VENV)/ready
	$(BIN)/book build
	$(BIN)/book live

lab: $(VENV)/ready
	$(BIN)/jupyter lab --notebook-dir=book

# Cells with other outputs are recorded in book/versions.json; new ones fail. Without TORCHVISION
# (not every PyTorch has one), the chapters that need torchvision are skipped.
versions: OTHER = $(VENV)-$(TORCH)
versions:
	@test -n "$(TORCH)" || { echo "TORCH is needed: make versions TORCH=2.11.0 TORCHVISION=0.26.0"; \
	  exit 1; }
	test -x $(OTHER)/bin/pip || $(PYTHON) -m venv $(OTHER)
	$(BESIDE_TORCH) | $(OF_TORCH) > $(OTHER)/requirements.txt
	$(CONSTRAINED) $(OTHER)/bin/pip install -q torch==$(TORCH) \
	  $(if $(TORCHVISION),torchvision==$(TORCHVISION)) -r $(OTHER)/requirements.txt
	$(OTHER)/bin/pip install -q --no-deps -e .
	BOOK_CUDA=0 $(OTHER)/bin/pytest -q -n $(JOBS) book/en --record-versions

newest: OTHER = $(VENV)-newest
newest:
	test -x $(OTHER)/bin/pip || $(PYTHON) -m venv $(OTHER)
	$(CONSTRAINED) $(OTHER)/bin/pip install -q --upgrade -e '.[book,export,monitoring,test,video]'
	BOOK_CUDA=0 BOOK_WARNINGS=error $(OTHER)/bin/pytest -q -n $(JOBS) book/en --record-versions; \
	  differs=$$?; $(MAKE) newest-site && exit $$differs

# Jupyter Book pins an old Sphinx, so it only writes the configuration; the newest Sphinx builds.
newest-site: OTHER = $(VENV)-newest-site
newest-site: $(VENV)/book
	test -x $(OTHER)/bin/pip || $(PYTHON) -m venv $(OTHER)
	$(OTHER)/bin/pip install -q --upgrade click linkify-it-py markdownify mini-racer myst-nb nbformat \
	  sphinx-book-theme sphinx-copybutton sphinx-design sphinx-external-toc tinycss2
	$(OTHER)/bin/pip install -q --no-deps -e .
	$(OTHER)/bin/pip list | grep -iE '^(sphinx|myst-nb|myst-parser|docutils|sphinx-book-theme) '
	$(BIN)/python -m bookbuild.site.sphinx_build $(OTHER)/bin/python _build/newest-site

# Create the environment that Binder creates, and run a chapter in it.
conda: OTHER = $(CURDIR)/$(VENV)-conda
conda:
	test -x $(OTHER)/bin/python || conda env create -q -f environment.yml -p $(OTHER)
	cd / && $(OTHER)/bin/python -c 'import helpers.explain, visdom'
	$(OTHER)/bin/jupyter lab --version
	BOOK_CUDA=0 $(OTHER)/bin/python -m pytest -q -n 0 book/en/detach.ipynb

# Push the notebooks that Colab and Binder open; they install the helpers of this commit.
notebooks-branch:
	cp -r _build/notebooks/. book/
	git add book
	git -c user.name=Pages -c user.email=pages@localhost commit -q --allow-empty \
	  -m "Notebooks of $$(git rev-parse HEAD)"
	git push -q --force origin HEAD:refs/heads/notebooks

warnings: $(VENV)/ready
	BOOK_WARNINGS=error $(BIN)/pytest -q -n $(JOBS) book/en

# Download all packages except PyTorch for a Linux machine (x86-64) without internet, where
# `make gpu WHEELS=wheels` uses them. FOR=3.12 selects the Python version of that machine.
BUILD_BACKEND := hatchling editables pathspec pluggy tomlkit trove-classifiers
wheels: LINUX = $(foreach tag,1 2014 _2_17 _2_24 _2_27 _2_28 _2_31 _2_34,--platform manylinux$(tag)_x86_64)
wheels: $(VENV)/ready
	mkdir -p wheels
	$(BESIDE_TORCH) > wheels/requirements.txt
ifdef FOR
	$(CONSTRAINED) $(BIN)/pip wheel -q --no-deps -w wheels $$(grep ^visdom== wheels/requirements.txt)
	$(BIN)/pip download -q --no-deps --only-binary=:all: --find-links wheels -d wheels \
	  --python-version $(FOR) --implementation cp $(LINUX) -r wheels/requirements.txt $(BUILD_BACKEND)
else
	$(CONSTRAINED) $(BIN)/pip wheel -q --no-deps -w wheels -r wheels/requirements.txt $(BUILD_BACKEND)
endif

# Run one job at a time, because the notebooks share the GPU; tests/gpu runs even if cells differ.
# beside.pth makes the packages of a PyTorch in a virtual environment importable.
gpu: PACKAGES = import sysconfig; print(sysconfig.get_path("purelib"))
gpu: OTHER = $(VENV)-gpu
gpu: OFFLINE = $(if $(WHEELS),--no-index --find-links $(WHEELS))
gpu:
	test -x $(OTHER)/bin/pip || $(PYTHON) -m venv --system-site-packages $(OTHER)
	$(PYTHON) -c '$(PACKAGES)' > "$$($(OTHER)/bin/python -c '$(PACKAGES)')/beside.pth"
	$(OTHER)/bin/python -c 'import torch, torchvision; print("beside PyTorch", torch.__version__)'
	$(BESIDE_TORCH) > $(OTHER)/requirements.txt
	$(CONSTRAINED) $(OTHER)/bin/pip install -q --no-deps $(OFFLINE) -r $(OTHER)/requirements.txt
	$(OTHER)/bin/pip install -q --no-deps $(OFFLINE) -e .
	BOOK_CUDA=1 $(OTHER)/bin/pytest -q -n 1 book --record-validated --record-versions; \
	  differs=$$?; BOOK_CUDA=1 $(OTHER)/bin/pytest -q -rs tests/gpu && exit $$differs

bench: $(VENV)/ready
	$(BIN)/python benchmarks/import_time.py
	$(BIN)/python benchmarks/data_loading.py
	$(BIN)/python benchmarks/checkpoints.py

clean:
	rm -rf _build

# Recreate an incomplete environment; keep the packages of a working one. uv takes a third of pip's
# time; pip installs if uv fails, for example with an index that only pip's configuration names.
# Neither compiles modules, because only some of them are imported.
UV := 0.13.9
INSTALL = $(BIN)/uv pip install -q --system-certs --python $(BIN)/python \
  --build-constraint build-constraints.txt -r $(1) || \
  $(CONSTRAINED) $(BIN)/python -m pip install -q --no-compile -r $(1)

$(VENV)/book: requirements-book.txt build-constraints.txt pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(0 if v >= (3, 11) else \
	  "Python 3.11 or newer is needed, %s is %d.%d: make PYTHON=/path/to/python3.11" \
	  % (sys.executable, v[0], v[1]))'
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV) || { \
	  rm -rf $(VENV); \
	  echo "No virtual environment could be made; on Debian: apt install python3-venv"; exit 1; }
	$(BIN)/python -m pip install -q uv==$(UV) || true
	$(call INSTALL,requirements-book.txt)
	$(CONSTRAINED) $(BIN)/python -m pip install -q --no-deps -e .
	@touch $@

$(VENV)/ready: $(VENV)/book requirements.txt
	$(call INSTALL,requirements.txt)
	@touch $@
