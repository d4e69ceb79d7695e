"""Generate the first cell of each notebook, which makes `helpers` importable."""

from __future__ import annotations

_SOURCE = """\
# Colab, Kaggle, Binder: install the book's helpers where they are missing.
import importlib, importlib.util, pathlib, subprocess, sys
clone = pathlib.Path("../..")
source = {source}
spec = importlib.util.find_spec("helpers")
if spec is None:
    source = str(clone) if (clone / "src/helpers").is_dir() else source
{near}    if not source:
        raise RuntimeError({missing})
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", source],
                   check=True)
    importlib.invalidate_caches()
elif not any(pathlib.Path(folder, "detach.py").is_file()
             for folder in spec.submodule_search_locations or ()):
    raise RuntimeError(f"{{spec.origin or 'a folder called helpers'}} hides the "
                       "book's helpers: rename it, restart the kernel, and "
                       "run this cell again")
"""


_MISSING = """\
"the book's package helpers is missing: open this "
                           "notebook in a clone of the book, or pip install "
                           "the clone, and run this cell again\""""
_NEAR = """\
    for folder in (".", "..", "../../wheels"):  # as downloaded, and in the zip
        wheel = pathlib.Path(folder, "{wheel}")
        source = str(wheel.resolve()) if wheel.is_file() else source
"""
_NO_WHEEL = """\
"the book's package helpers is missing: download "
                           "wheels/{wheel} "
                           "of the site that this notebook is from into this "
                           "notebook's folder, and run this cell again\""""


def source(repository: str = "", commit: str = "", wheel: str = "", address: str = "") -> str:
    """Return the source of the setup cell.

    Notebooks in the repository contain no address: the cell installs `helpers` from the clone.
    Downloaded notebooks install the site's wheel if it is nearby (see `_NEAR`), else from the
    commit that the site was built from, or from the wheel at the site's address.

    Args:
        repository: URL to clone, such as `https://github.com/owner/name`; empty for none.
        commit: full hash of the commit to install.
        wheel: file name of the wheel in the site's `wheels/`; empty in the repository.
        address: URL of the published site; empty if unknown.
    """
    place = f'"{address}/wheels/"\nsource += "{wheel}"' if wheel and address else '""'
    if repository:
        place = f'"git+{repository}"\nsource += "@{commit}"'
    near = _NEAR.format(wheel=wheel) if wheel else ""
    missing = _NO_WHEEL.format(wheel=wheel) if wheel else _MISSING
    return _SOURCE.format(source=place, near=near, missing=missing)[:-1]
