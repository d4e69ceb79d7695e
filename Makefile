# make book    build both languages and serve them on 127.0.0.1 (SERVE=0: only build); no PyTorch
# make test    everything that can be proved: check, unit tests, notebooks, the site in a browser
# make quick   check, and the tests of what the last change touches
# make live    the site with a kernel behind each page: its cells run there
# make lab     JupyterLab on the book
# make versions TORCH=2.11.0 TORCHVISION=0.26.0   the notebooks under another PyTorch
# make newest  the notebooks and both sites under the newest of everything; deprecations are errors
# make notebooks-zh  the Chinese notebooks, whose code and outputs are those of the English ones
# make validated  all notebooks, and note in book/validated.json what was proved where
# make warnings  the notebooks with deprecations as errors
# make gpu     beside the PyTorch of a machine with a GPU: the notebooks and tests/gpu there
# JOBS=2 runs two tests at a time; four suit two cores, because many wait for a process or a clock.
# Needs Python 3.11 or newer; everything else goes into .venv, exact versions from requirements.txt,
# or for `make book`, `make check` and `make release` only what requirements-book.txt has of them.

PYTHON ?= python3
SERVE ?= 1
JOBS ?= 4
# Without compiled files each of some hundred processes would compile PyTorch's source again: seconds each.
unexport PYTHONDONTWRITEBYTECODE
VENV := .venv
BIN := $(VENV)/bin
# visdom is published as source only; the constraint is what building it needs, with any pip.
CONSTRAINED := PIP_CONSTRAINT=build-constraints.txt PIP_BUILD_CONSTRAINT=build-constraints.txt \
  PIP_DISABLE_PIP_VERSION_CHECK=1
BESIDE_TORCH := grep -vE '^(\#|torch==|torchvision==)' requirements.txt
# A test of processes, times or a browser that fails once on a busy machine gets a second chance,
# and the summary names it; a fault fails twice.
AGAIN := --reruns 1 --reruns-delay 2 -r R
PROVE := OMP_NUM_THREADS=1 BOOK_SITE=_build/site $(BIN)/pytest -q -n $(JOBS) --dist loadfile \
  --no-loadscope-reorder $(AGAIN)
# Packages that each PyTorch pins to versions of its own.
OF_TORCH := grep -viE '^(filelock|fsspec|jinja2|markupsafe|mpmath|networkx|sympy|typing_extensions)=='

.PHONY: book editions chinese-font test quick live lab lint check release unit notebooks notebooks-zh validated colab site
.PHONY: versions newest newest-site notebooks-branch conda warnings wheels gpu bench clean
.DEFAULT_GOAL := book

book: $(VENV)/book
	$(BIN)/book build
ifneq ($(SERVE),0)
	$(BIN)/book serve
endif

# The site with what its home pages then offer; Chromium prints the PDF.
editions: $(VENV)/book
	$(BIN)/book build --zip --pdf --epub

chinese-font:
	sudo apt-get update
	sudo apt-get install -y --no-install-recommends fonts-noto-cjk

# One run for all of `tests`, the longest first, so that no core waits for the last file of a part.
test: lint check notebooks
	$(BIN)/book build
	$(PROVE) tests/site tests/colab tests/bookbuild tests/helpers tests/gpu

quick: lint check
	OMP_NUM_THREADS=1 $(BIN)/python tests/quick.py

lint: $(VENV)/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

check: $(VENV)/book
	$(BIN)/book check

release: $(VENV)/book
	$(BIN)/book check --release

unit: $(VENV)/ready
	$(PROVE) tests/bookbuild tests/helpers tests/gpu

# The Chinese notebooks hold the same code and outputs, or `make check` fails: a run of them proves
# only that comments change nothing.
notebooks: $(VENV)/ready
	$(BIN)/pytest -q -n $(JOBS) book/en

notebooks-zh: $(VENV)/ready
	$(BIN)/pytest -q -n $(JOBS) book/zh

validated: $(VENV)/ready
	$(BIN)/pytest -q -n $(JOBS) book --record-validated

colab: $(VENV)/ready
	$(PROVE) --dist load tests/colab

site: $(VENV)/ready
	$(BIN)/book build
	$(PROVE) tests/site

live: $(VENV)/ready
	$(BIN)/book build
	$(BIN)/book live

lab: $(VENV)/ready
	$(BIN)/jupyter lab --notebook-dir=book

# Cells that differ there are kept in book/versions.json; new ones fail. Without TORCHVISION, which
# does not exist for each PyTorch, the chapters that need it are left out.
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

# Jupyter Book pins an old Sphinx: it only writes the configuration, the newest Sphinx builds.
newest-site: OTHER = $(VENV)-newest-site
newest-site: $(VENV)/book
	test -x $(OTHER)/bin/pip || $(PYTHON) -m venv $(OTHER)
	$(OTHER)/bin/pip install -q --upgrade click linkify-it-py markdownify mini-racer myst-nb nbformat \
	  sphinx-book-theme sphinx-copybutton sphinx-design sphinx-external-toc tinycss2
	$(OTHER)/bin/pip install -q --no-deps -e .
	$(OTHER)/bin/pip list | grep -iE '^(sphinx|myst-nb|myst-parser|docutils|sphinx-book-theme) '
	$(BIN)/python -m bookbuild.site.sphinx_build $(OTHER)/bin/python _build/newest-site

# The environment that Binder makes, and a chapter in it.
conda: OTHER = $(CURDIR)/$(VENV)-conda
conda:
	test -x $(OTHER)/bin/python || conda env create -q -f environment.yml -p $(OTHER)
	cd / && $(OTHER)/bin/python -c 'import helpers.explain, visdom'
	$(OTHER)/bin/jupyter lab --version
	BOOK_CUDA=0 $(OTHER)/bin/python -m pytest -q -n 0 book/en/detach.ipynb

# The notebooks that Colab and Binder open: this commit's, with the address of its helpers.
notebooks-branch:
	cp -r _build/notebooks/. book/
	git add book
	git -c user.name=Pages -c user.email=pages@localhost commit -q --allow-empty \
	  -m "Notebooks of $$(git rev-parse HEAD)"
	git push -q --force origin HEAD:refs/heads/notebooks

warnings: $(VENV)/ready
	BOOK_WARNINGS=error $(BIN)/pytest -q -n $(JOBS) book/en

# Everything but PyTorch, for a machine without internet: make gpu WHEELS=wheels
# FOR=3.12 if Python is another one there; Linux on x86-64.
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

# One job at a time, because the notebooks share the GPU; tests/gpu runs in any case. The path file
# is for a PyTorch in a virtual environment, whose packages another environment does not see.
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

# A half-made environment is made again; the packages that it has are kept where it works.
# What is imported is compiled then: pip would compile all, which takes longer than to install it.
$(VENV)/book: requirements-book.txt build-constraints.txt pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(0 if v >= (3, 11) else \
	  "Python 3.11 or newer is needed, %s is %d.%d: make PYTHON=/path/to/python3.11" \
	  % (sys.executable, v[0], v[1]))'
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV) || { \
	  rm -rf $(VENV); \
	  echo "No virtual environment could be made; on Debian: apt install python3-venv"; exit 1; }
	$(CONSTRAINED) $(BIN)/python -m pip install --no-compile -r requirements-book.txt
	$(CONSTRAINED) $(BIN)/python -m pip install -q --no-deps -e .
	@touch $@

$(VENV)/ready: $(VENV)/book requirements.txt
	$(CONSTRAINED) $(BIN)/python -m pip install --no-compile -r requirements.txt
	@touch $@
