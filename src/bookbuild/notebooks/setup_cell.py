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
    if not source:
        raise RuntimeError("the book's package helpers is missing: open this "
                           "notebook in a clone of the book, or pip install "
                           "the clone, and run this cell again")
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", source],
                   check=True)
    importlib.invalidate_caches()
elif not any(pathlib.Path(folder, "detach.py").is_file()
             for folder in spec.submodule_search_locations or ()):
    raise RuntimeError(f"{{spec.origin or 'a folder called helpers'}} hides the "
                       "book's helpers: rename it, restart the kernel, and "
                       "run this cell again")
"""


def source(repository: str = "", commit: str = "") -> str:
    """Return the source of the setup cell.

    The notebooks of the repository carry no address: a clone is installed from itself. Those that
    readers download carry the address of the commit that their page was built from.

    Args:
        repository: what `git clone` takes, such as `https://github.com/owner/name`; empty for none.
        commit: the commit to install, by its full hash.
    """
    if not repository:
        return _SOURCE.format(source='""')[:-1]
    return _SOURCE.format(source=f'"git+{repository}"\nsource += "@{commit}"')[:-1]
