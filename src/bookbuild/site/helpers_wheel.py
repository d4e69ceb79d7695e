"""Write the wheel of `helpers` that downloaded notebooks install, in `wheels/` of the site.

No build backend is used, so that the site can be built offline; the contents and requirements are
read from `pyproject.toml`.
"""

from __future__ import annotations

import base64
import hashlib
import tomllib
import zipfile
from pathlib import Path
from typing import Any

from bookbuild.source.checkout import Book

FOLDER = "wheels"
_DATE = (1980, 1, 1, 0, 0, 0)  # constant, so that the same files give the same wheel


def name(book: Book) -> str:
    """Return the file name of the wheel, "" if the checkout has no helpers."""
    if not (book.root / "src/helpers").is_dir() or not (project := _project(book)):
        return ""
    return f"{_base(project)}-py3-none-any.whl"


def write(book: Book, site: Path) -> str:
    """Write the wheel into a site; return its file name, "" if the checkout has no helpers."""
    wheel = name(book)
    if not wheel:
        return ""
    settings = tomllib.loads((book.root / "pyproject.toml").read_text("utf8"))
    info = f"{_base(settings['project'])}.dist-info"
    files = {}
    for package in settings["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]:
        folder = book.root / package
        for path in sorted(folder.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                files[path.relative_to(folder.parent).as_posix()] = path.read_bytes()
    files[f"{info}/METADATA"] = _metadata(settings["project"]).encode()
    files[f"{info}/WHEEL"] = (
        b"Wheel-Version: 1.0\nGenerator: bookbuild\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    )
    scripts = settings["project"].get("scripts", {})
    lines = [f"{script} = {place}" for script, place in scripts.items()]
    files[f"{info}/entry_points.txt"] = "\n".join(["[console_scripts]", *lines, ""]).encode()
    files[f"{info}/licenses/LICENSE"] = (book.root / "LICENSE").read_bytes()
    record = [f"{path},sha256={_digest(data)},{len(data)}" for path, data in files.items()]
    files[f"{info}/RECORD"] = "\n".join([*record, f"{info}/RECORD,,", ""]).encode()
    folder = site / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(folder / wheel, "w") as archive:
        for path, data in files.items():
            entry = zipfile.ZipInfo(path, _DATE)
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, data, zipfile.ZIP_DEFLATED)
    return wheel


def _project(book: Book) -> dict[str, Any] | None:
    path = book.root / "pyproject.toml"
    return tomllib.loads(path.read_text("utf8"))["project"] if path.is_file() else None


def _base(project: dict[str, Any]) -> str:
    return f"{project['name'].replace('-', '_')}-{project['version']}"


def _metadata(project: dict[str, Any]) -> str:
    extras = project.get("optional-dependencies", {})
    fields = [
        ("Metadata-Version", "2.4"),
        ("Name", project["name"]),
        ("Version", project["version"]),
        ("Summary", project["description"]),
        ("License-Expression", project["license"]),
        ("License-File", "LICENSE"),
        ("Requires-Python", project["requires-python"]),
        *(("Requires-Dist", needed) for needed in project["dependencies"]),
    ]
    for extra, packages in extras.items():
        fields.append(("Provides-Extra", extra))
        fields += [("Requires-Dist", f"{needed}; extra == {extra!r}") for needed in packages]
    return "".join(f"{key}: {value}\n" for key, value in fields)


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
