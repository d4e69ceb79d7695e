"""Render the page *Then and now*: each claim of the old notes, its verdict, and the proof."""

from __future__ import annotations

import re
from collections import Counter

from bookbuild.pages.chapters import Chapter
from bookbuild.pages.chapters import chapters as chapters_of
from bookbuild.pages.markdown import fill, page
from bookbuild.source import claims as claims_file
from bookbuild.source.checkout import OLD_NOTES, Book
from bookbuild.source.claims import VERDICTS, Claim
from bookbuild.source.words import words


def render(book: Book, lang: str, chapters: list[Chapter]) -> str:
    """Return the page as Markdown."""
    names = [chapter.name for chapter in chapters]
    old_notes = chapters_of(book, [OLD_NOTES])[lang] if OLD_NOTES in book.texts else []
    claims = [c for c in claims_file.load(book) if c.chapter in names]
    groups = []
    for chapter in chapters:
        own = [claim for claim in claims if claim.chapter == chapter.name]
        if own:
            groups.append((chapter, [(c, _notes(c, lang, [chapter, *old_notes])) for c in own]))
    known = {claim.id for claim in claims}
    w, counts = words(lang, "then_and_now"), Counter(claim.verdict for claim in claims)
    body = fill(
        "then_and_now.md",
        w=w,
        lang=lang,
        groups=groups,
        counts={"all": len(claims)} | {v: counts[v] for v in VERDICTS if counts[v]},
        linked=lambda text: _linked(text, known),
    )
    return page("book/claims.yml and the chapters", w["summary"], body)


def proofs(claim: Claim, chapters: list[Chapter]) -> list[str]:
    """Return links to the sections whose cells name a claim, without duplicates."""
    sections = [
        chapter.sections[cell.id]
        for chapter in chapters
        for cell in chapter.cells
        if claim.id in cell.metadata.get("claims", [])
    ]
    return list(dict.fromkeys(f"[{s.title}]({s.href})" for s in sections))


def _linked(text: str, known: set[str]) -> str:
    """Return a text as one line of HTML in which ids of claims are links to their cards."""
    return re.sub(
        r"(?<![\w-])[A-Z]\d*-\d+(?!\w)",
        lambda m: f'<a href="#{m[0]}">{m[0]}</a>' if m[0] in known else m[0],
        " ".join(text.split()),
    )


def _notes(claim: Claim, lang: str, chapters: list[Chapter]) -> list[str]:
    """Return the notes below a claim: its location in the old notes, and its proof."""
    w = words(lang, "then_and_now")
    where = re.fullmatch(r"(\S+), (lines?) (.+)", claim.note)
    notes = [w["note"].format(*where.groups()) if where else claim.note]
    if links := proofs(claim, chapters):
        notes.append(f"{w['proof']}{w['colon']}{w['and'].join(links)}")
    if claim.proof:
        notes.append(f"{w['no_cell']}{w['colon']}{' '.join(claim.proof[lang].split())}")
    return notes
