"""The first cell of each notebook: it makes `import helpers` work where the notebook was opened."""

from __future__ import annotations

ID = "setup"
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

    The notebooks of the repository carry no address: a clone is installed from itself. Those that
    readers download install a wheel of the site that they find beside them, else what their page
    was built from: the commit, or the wheel at the address of the site.

    Args:
        repository: what `git clone` takes, such as `https://github.com/owner/name`; empty for none.
        commit: the commit to install, by its full hash.
        wheel: the name of the wheel in `wheels/` of the site; empty in the repository.
        address: where the site is published; empty if it is unknown.
    """
    place = f'"{address}/wheels/"\nsource += "{wheel}"' if wheel and address else '""'
    if repository:
        place = f'"git+{repository}"\nsource += "@{commit}"'
    near = _NEAR.format(wheel=wheel) if wheel else ""
    missing = _NO_WHEEL.format(wheel=wheel) if wheel else _MISSING
    return _SOURCE.format(source=place, near=near, missing=missing)[:-1]
