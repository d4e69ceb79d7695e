"""Write the zip file: both sites, the notebooks, the `helpers` wheel, and a README."""

from __future__ import annotations

import zipfile
from pathlib import Path

from bookbuild.editions.edition import NAME
from bookbuild.site import helpers_wheel
from bookbuild.source.checkout import LANGUAGES, Book
from bookbuild.source.templates import render


def make(book: Book, site: Path, out: Path) -> None:
    """Write a site without its edition files to `out`; readers open `index.html` in the zip."""
    offered = set(site.glob(f"{NAME}*"))
    files = {p.relative_to(site): p for p in site.rglob("*") if p.is_file()}
    files |= {
        Path("notebooks", lang, path.name): path
        for lang in LANGUAGES
        for path in (site / lang / "_sources").glob("*.ipynb")
    }
    readme = render("editions", "README.txt", wheel=helpers_wheel.name(book))
    part = out.with_suffix(".zip.part")
    with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"{NAME}/README.txt", readme)
        for name, path in sorted(files.items()):
            if path not in offered and path != part:
                archive.write(path, Path(NAME) / name)
    part.replace(out)
