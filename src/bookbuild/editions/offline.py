"""The zip: both sites, the notebooks, a wheel of `helpers`, and how to run them offline."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from bookbuild.editions.edition import NAME
from bookbuild.source.checkout import LANGUAGES, Book, BookError

_README = """\
Executable PyTorch Notes

Read: open index.html in a browser.

Run, without internet, where Python has PyTorch, torchvision and JupyterLab:

    python -m pip install --no-index --no-deps wheels/{wheel}
    jupyter lab notebooks/en

With internet, this fetches what is missing, PyTorch included:

    python -m pip install jupyterlab wheels/{wheel}


可执行的 PyTorch 笔记

阅读：用浏览器打开 index.html。

运行（无需联网，前提是 Python 里已有 PyTorch、torchvision 和 JupyterLab）：

    python -m pip install --no-index --no-deps wheels/{wheel}
    jupyter lab notebooks/zh

能联网时，下面的命令会补齐缺少的包，包括 PyTorch：

    python -m pip install jupyterlab wheels/{wheel}
"""


def make(book: Book, site: Path, out: Path) -> None:
    """Pack a site before it offers any file; open `index.html` of the unpacked folder.

    Raises:
        BookError: the wheel could not be built.
    """
    with tempfile.TemporaryDirectory(prefix="book-wheel-") as folder:
        wheel = _wheel(book.root, Path(folder))
        offered = set(site.glob(f"{NAME}*"))
        files = {p.relative_to(site): p for p in site.rglob("*") if p.is_file()}
        files |= {
            Path("notebooks", lang, path.name): path
            for lang in LANGUAGES
            for path in (site / lang / "_sources").glob("*.ipynb")
        }
        files[Path("wheels", wheel.name)] = wheel
        part = out.with_suffix(".zip.part")
        with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(f"{NAME}/README.txt", _README.format(wheel=wheel.name))
            for name, path in sorted(files.items()):
                if path not in offered and path != part:
                    archive.write(path, Path(NAME) / name)
        part.replace(out)


def _wheel(root: Path, folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--disable-pip-version-check"]
    done = subprocess.run(
        [*command, "--no-deps", "-w", folder, root], capture_output=True, text=True
    )
    found = list(folder.glob("*.whl"))
    if done.returncode or not found:
        raise BookError(f"the wheel of helpers was not built:\n{done.stderr.strip()[-2000:]}")
    return found[0]
