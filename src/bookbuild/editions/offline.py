"""The zip: both sites, the notebooks, a wheel of `helpers`, and how to run them offline."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from bookbuild.editions.edition import NAME
from bookbuild.source.checkout import LANGUAGES, Book, BookError
from bookbuild.source.templates import render


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
        readme = render("editions", "README.txt", wheel=wheel.name)
        part = out.with_suffix(".zip.part")
        with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(f"{NAME}/README.txt", readme)
            for name, path in sorted(files.items()):
                if path not in offered and path != part:
                    archive.write(path, Path(NAME) / name)
        part.replace(out)


def _wheel(root: Path, folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--disable-pip-version-check"]
    process = subprocess.run(
        [*command, "--no-deps", "-w", folder, root], capture_output=True, text=True
    )
    wheels = list(folder.glob("*.whl"))
    if process.returncode or not wheels:
        raise BookError(f"the wheel of helpers was not built:\n{process.stderr.strip()[-2000:]}")
    return wheels[0]
