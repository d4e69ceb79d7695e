"""Read the configuration of a checkout and locate its chapters and files."""

from __future__ import annotations

import copy
import os
import sys
import sysconfig
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from bookbuild.source.basics import (
    LANGUAGES,
    BookError,
    digest,
    fingerprint,
    nearest,
    read_text,
    write_text,
)
from bookbuild.source.data_files import TEXT, Schema, non_empty_list

__all__ = [
    "ADDRESSES",
    "ERRORS_OF",
    "LANGUAGES",
    "OLD_NOTES",
    "REFERENCE",
    "Book",
    "BookError",
    "Language",
    "digest",
    "fingerprint",
    "program",
    "read_text",
    "write_text",
]
REFERENCE = "Reference"  # the part of _toc.yml with pages that are not chapters
ERRORS_OF = "errors_"  # prefix of the page of a message family
OLD_NOTES = "old_notes"  # reference page whose cells disprove claims that no chapter treats


_PAGE = {"type": "object", "properties": {"file": TEXT}, "required": ["file"]}
# Subpages, such as message families.
_BELOW = {"sections": non_empty_list(_PAGE, "a list of pages")}
_CHAPTER = _PAGE | {"properties": {"file": TEXT} | _BELOW}
_PART = {
    "type": "object",
    "properties": {"caption": TEXT, "chapters": non_empty_list(_CHAPTER, "a list of pages")},
    "required": ["caption", "chapters"],
}
_TOC = Schema(
    {
        "type": "object",
        "properties": {"parts": non_empty_list(_PART, "a list of parts with caption and chapters")},
        "required": ["parts"],
        "description": "parts with caption and chapters",
    }
)
_LANGUAGE = {
    "type": "object",
    "properties": {
        "name": TEXT,
        "config": {
            "type": "object",
            "properties": {"language": TEXT, "html_title": TEXT, "author": TEXT},
            "required": ["language", "html_title"],
        },
        "parts": {"type": "object", "additionalProperties": TEXT},
    },
    "required": ["name", "config"],
    "description": "a language with name and config",
}
_LANGUAGES = Schema(
    {
        "type": "object",
        "properties": {
            "languages": {
                "type": "object",
                "properties": dict.fromkeys(LANGUAGES, _LANGUAGE),
                "required": list(LANGUAGES),
                "description": f"the languages {' and '.join(LANGUAGES)}",
            }
        },
        "required": ["languages"],
        "description": "a list of languages under `languages`",
    }
)
# Addresses in _config.yml that environment variables override; CI of a fork sets them.
ADDRESSES = {("repository", "url"): "BOOK_REPOSITORY_URL", ("html", "baseurl"): "BOOK_BASE_URL"}
_CONFIG = Schema(
    {
        "type": "object",
        "properties": {
            section: {"type": ["object", "null"], "properties": {key: {"type": ["string", "null"]}}}
            for section, key in ADDRESSES
        },
    }
)


@dataclass(frozen=True)
class Language:
    """A language of the book, from `languages` of `_config.yml`."""

    code: str  # "en" or "zh": the name of its folder
    tag: str  # value of the HTML attribute `lang`: "en", "zh-CN"
    name: str  # in the language itself: "English", "中文"
    title: str  # title of the book
    author: str
    parts: dict[str, str]  # translations of part names in _toc.yml


@dataclass(frozen=True)
class Book:
    """A checkout of the book: configuration, table of contents and file locations."""

    root: Path

    @classmethod
    def find(cls, start: Path | None = None) -> Book:
        """Return the book around `start` (default: current folder), by the nearest `_config.yml`.

        Raises:
            BookError: no such folder exists, or the current directory was deleted.
        """
        try:
            start = (start or Path.cwd()).resolve()
        except FileNotFoundError:
            raise BookError("the current directory no longer exists") from None
        for folder in (start, *start.parents):
            if (folder / "_config.yml").is_file() and (folder / "book").is_dir():
                return cls(folder)
        raise BookError(f"no book here: neither {start} nor a folder above it has a _config.yml")

    @cached_property
    def config(self) -> dict:
        """Contents of `_config.yml`, with addresses overridden by environment variables."""
        config = copy.deepcopy(_CONFIG.read(self.root / "_config.yml", "_config.yml"))
        for (section, key), variable in ADDRESSES.items():
            settings = config.get(section) or {}
            address = os.environ.get(variable) or settings.get(key) or ""
            config[section] = {**settings, key: address.rstrip("/")}
        return config

    @property
    def repository(self) -> str:
        """URL of the repository, "" if none is configured."""
        return self.config["repository"]["url"]

    @property
    def address(self) -> str:
        """URL of the published site without a trailing slash, "" if unknown."""
        return self.config["html"]["baseurl"]

    @cached_property
    def languages(self) -> dict[str, Language]:
        """The languages of the book by their codes.

        Raises:
            BookError: `_config.yml` lacks a language, its name, or the title of the book.
        """
        file = "_config.yml"
        sections = _LANGUAGES.read(self.root / file, file)["languages"]
        return {
            code: Language(
                code=code,
                tag=sections[code]["config"]["language"].replace("_", "-"),
                name=sections[code]["name"],
                title=sections[code]["config"]["html_title"],
                author=sections[code]["config"].get("author") or self.config["author"],
                parts=sections[code].get("parts", {}),
            )
            for code in LANGUAGES
        }

    def other_language(self, lang: str) -> Language:
        """Return the language into which pages in `lang` are translated."""
        return next(language for code, language in self.languages.items() if code != lang)

    @cached_property
    def toc(self) -> dict:
        """Contents of `_toc.yml`."""
        return _TOC.read(self.root / "_toc.yml", "_toc.yml")

    @property
    def _parts(self) -> list[dict]:
        return self.toc["parts"]

    @cached_property
    def parts(self) -> list[tuple[str, list[str]]]:
        """The parts of `_toc.yml` with the names of their pages, in reading order.

        Raises:
            BookError: the file is malformed, or lists a page twice.
        """
        parts = [(p["caption"], [page["file"] for page in p["chapters"]]) for p in self._parts]
        for name, count in Counter(name for _, names in parts for name in names).items():
            if count > 1:
                raise BookError(f"_toc.yml: {name} is listed {count} times, expected once")
        return parts

    @cached_property
    def pages(self) -> list[str]:
        """Names of all pages in `_toc.yml` in reading order, including subpages."""
        return [
            name
            for part in self._parts
            for page in part["chapters"]
            for name in (page["file"], *(below["file"] for below in page.get("sections", ())))
        ]

    @cached_property
    def chapters(self) -> list[str]:
        """Names of the chapters in reading order, without reference pages."""
        return [name for part, names in self.parts if part != REFERENCE for name in names]

    @cached_property
    def texts(self) -> list[str]:
        """Names of all pages with a file in `book/text`: chapters and some reference pages."""
        reference = (name for part, names in self.parts if part == REFERENCE for name in names)
        return [*self.chapters, *(name for name in reference if self.text(name).exists())]

    @property
    def site(self) -> Path:
        """The folder of the built site.

        Raises:
            BookError: the site was not built.
        """
        folder = self.root / "_build/site"
        if not (folder / "index.html").is_file():
            raise BookError(f"there is no site in {folder}: run `book build` first")
        return folder

    def text(self, chapter: str) -> Path:
        """Return the path of a chapter's text, which contains both languages."""
        return self.root / "book" / "text" / f"{chapter}.md"

    def notebook(self, lang: str, chapter: str) -> Path:
        """Return the path of a chapter's notebook in one language."""
        return self.root / "book" / lang / f"{chapter}.ipynb"

    def relative(self, path: Path) -> str:
        """Return a path relative to the checkout, as shown in messages."""
        return path.relative_to(self.root).as_posix()

    def choose(self, names: tuple[str, ...] | list[str]) -> list[str]:
        """Validate `names` and return them in reading order; all texts if `names` is empty.

        Raises:
            BookError: a name is not a chapter; the message suggests the closest match.
        """
        for name in names:
            if name not in self.texts:
                hint = nearest(name, self.texts, f"have {', '.join(self.texts)}", 0.4)
                raise BookError(f"no chapter {name!r}: {hint}")
        return [c for c in self.texts if not names or c in names]


def program() -> list[str]:
    """Return fingerprints of this package, of Python and of the installed packages."""
    packages = Path(sysconfig.get_path("purelib")).glob("*.dist-info")
    own = fingerprint(Path(__file__).parents[1].rglob("*"))
    return [own, sys.version, *sorted(path.name for path in packages)]
