"""Collect when and on which device each chapter last passed, and its translation status."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from html import escape

from bookbuild.notebooks.cells import code_cells
from bookbuild.pages.chapters import Chapter
from bookbuild.pages.markdown import page
from bookbuild.source import claims as claims_file
from bookbuild.source import pitfalls, symptoms, texts, translation, versions
from bookbuild.source.checkout import LANGUAGES, Book
from bookbuild.source.words import words


@dataclass(frozen=True)
class Status:
    """Status of one chapter: last runs, translation and proved claims."""

    name: str
    runs: dict[str, dict[str, dict]]  # language -> device -> date, torch, seconds, card of a GPU
    translation: Counter  # number of pieces by state, `current` or `waiting`
    cells: int
    claims: tuple[int, int]  # number proved by a cell, total number


def collect(book: Book, chapters: dict[str, list[Chapter]]) -> list[Status]:
    """Return the status of every chapter that exists.

    Raises:
        BookError: `validated.json` or `claims.yml` is damaged.
    """
    runs = versions.validated(book)
    rows = claims_file.load(book)
    stamps = translation.load(book)
    statuses = []
    for english in chapters["en"]:
        name = english.name
        named = {i for cell in english.cells for i in cell.metadata.get("claims", [])}
        mine = [claim.id for claim in rows if claim.chapter == name]
        statuses.append(
            Status(
                name=name,
                runs={lang: runs.get(f"{lang}/{name}", {}) for lang in LANGUAGES},
                translation=_translation(book, name, stamps),
                cells=len(code_cells(english.notebook)),
                claims=(len(named.intersection(mine)), len(mine)),
            )
        )
    return statuses


def proved(statuses: Collection[Status], device: str, w: dict[str, str]) -> str:
    """Return how many notebooks passed on a device type, with GPUs, PyTorch versions and dates."""
    runs = [runs.get(device) for status in statuses for runs in status.runs.values()]
    passed = [run for run in runs if run]
    if not passed:
        return w["never"]
    values = {key: sorted({run[key] for run in passed}) for key in ("date", "torch")}
    cards = sorted({run["card"] for run in passed if "card" in run})
    where = [*cards, *(f"PyTorch {version}" for version in values["torch"])]
    dates = " … ".join(dict.fromkeys((values["date"][0], values["date"][-1])))
    return w["proved"].format(len(passed), len(runs), w["and"].join([*where, dates]))


def rows(book: Book, statuses: Collection[Status], lang: str) -> list[list[str]]:
    """Return the rows of the table: a header, then one row per chapter and language."""
    w = words(lang, "status")
    keys = ("chapter", "language", "validated", "translation", "cells", "claims")
    table = [[w[key] for key in keys]]
    for status in statuses:
        for language in LANGUAGES:
            runs = [
                w["ran"].format(device=device.upper(), **run)
                for device, run in sorted(status.runs[language].items())
            ]
            table.append(
                [
                    status.name,
                    book.languages[language].name,
                    w["comma"].join(runs) or w["never"],
                    "–" if language == "en" else _health(status.translation, w),
                    str(status.cells),
                    "{}/{}".format(*status.claims),
                ]
            )
    return table


def render(
    book: Book, lang: str, chapters: dict[str, list[Chapter]], by_name: Collection[str] = ()
) -> str:
    """Return the page as Markdown; `by_name` are the names of the index."""
    w = words(lang, "status")
    titles = {chapter.name: chapter.title for chapter in chapters[lang]}
    statuses = collect(book, chapters)
    devices = w["devices"].format(*(proved(statuses, device, w) for device in ("cpu", "gpu")))
    head, *body = rows(book, statuses, lang)
    lines = [head, ["---"] * len(head)]
    lines += [[f"[{titles[name]}]({name}.ipynb)", *rest] for name, *rest in body]
    text = f"# {w['title']}\n\n{w['lead']}\n\n{devices}\n\n{_table(lines)}\n"
    if tested := versions.tested(book):
        table = _table(_versions(tested, chapters[lang], w))
        text += f"\n## {w['versions']}\n\n{w['versions_lead']}\n\n{table}\n"
    if covered := coverage(book, lang, by_name):
        head = [w["page"], w["entries"], w["missing"]]
        lines = [head, ["---"] * len(head), *covered]
        text += f"\n## {w['coverage']}\n\n{w['coverage_lead']}\n\n{_table(lines)}\n"
    return page("the last test run, with each build", w["summary"], text)


def coverage(book: Book, lang: str, by_name: Collection[str] = ()) -> list[list[str]]:
    """Return one row per reference page: link, number of entries, and a note on gaps.

    `by_name` are the names of the index.

    Raises:
        BookError: a text or `symptoms.yml` is malformed.
    """
    w, table = words(lang, "status"), []
    if "symptoms" in book.pages:
        entries = symptoms.load(book).symptoms
        lacking = [
            f'<a href="symptoms.html#{one.id}">{escape(one.title[lang])}</a>'
            for one in entries
            if not all(cause.section for cause in one.causes)
        ]
        sources = sum(bool(one.found) for one in entries)
        note = w["missing_symptoms"].format(len(lacking), w["comma"].join(lacking), sources)
        table.append(["[](symptoms.md)", str(len(entries)), note])
    if "pitfalls" in book.pages:
        pitfall_entries = pitfalls.load(book)
        note = w["missing_pitfalls"].format(sum(not one.right for one in pitfall_entries))
        table.append(["[](pitfalls.md)", str(len(pitfall_entries)), note])
    if "by_name" in book.pages:
        table.append(["[](by_name.md)", str(len(by_name)), "–"])
    return table


def _versions(
    tested: dict[str, dict], chapters: list[Chapter], w: dict[str, str]
) -> list[list[str]]:
    """Return a table of the chapters with a column for each other version of PyTorch."""
    head = [w["chapter"]]
    for version, run in tested.items():
        dates = sorted({*run["chapters"].values()}) or ["–"]
        head.append(f"{version} ({' … '.join(dict.fromkeys((dates[0], dates[-1])))})")
    lines = [head, ["---"] * len(head)]
    for chapter in chapters:
        line = [f"[{chapter.title}]({chapter.name}.ipynb)"]
        for run in tested.values():
            if chapter.name not in run["chapters"]:
                line.append(w["not_run"])
                continue
            differs = run["differs"].get(chapter.name, {})
            cells = [cell for cell in chapter.cells if cell.id in differs]
            sections = dict.fromkeys(chapter.sections[cell.id] for cell in cells)
            links = w["comma"].join(f"[{s.title}]({s.href})" for s in sections)
            line.append(w["differs"].format(links) if links else w["same"])
        lines.append(line)
    return lines


def plain(book: Book, chapters: dict[str, list[Chapter]]) -> str:
    """Return the table as plain English text for a terminal."""
    table = rows(book, collect(book, chapters), "en")
    columns = range(len(table[0]))
    widths = [max(len(row[n]) + row[n].count("中文") * 2 for row in table) for n in columns]
    return "\n".join(
        "  ".join(
            text.ljust(width - 2 * text.count("中文"))
            for text, width in zip(row, widths, strict=True)
        ).rstrip()
        for row in table
    )


def _table(lines: list[list[str]]) -> str:
    return "\n".join("| " + " | ".join(_cell(text) for text in line) + " |" for line in lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _health(translation: Counter, w: dict[str, str]) -> str:
    """Return the number of pieces in each translation state as text."""
    parts = [w["current"].format(translation["current"], translation.total())]
    if translation["waiting"]:
        parts.append(w["waiting"].format(translation["waiting"]))
    return w["comma"].join(parts)


def _translation(book: Book, name: str, stamps: dict[str, dict]) -> Counter:
    current, pieces = translation.compare(texts.load(book, name), stamps.get(name, {}))
    outdated = {piece.piece for piece in pieces}
    return Counter(waiting=len(outdated), current=len(set(current) - outdated))
