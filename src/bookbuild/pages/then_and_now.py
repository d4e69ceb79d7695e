"""The page of claims: what the old notes said, what holds today, and where it is proved."""

from __future__ import annotations

import re
from collections import Counter

from bookbuild.pages.chapters import Chapter
from bookbuild.pages.chapters import chapters as chapters_of
from bookbuild.pages.markdown import page
from bookbuild.source import claims as claims_file
from bookbuild.source.checkout import OLD_NOTES, Book
from bookbuild.source.claims import VERDICTS, Claim
from bookbuild.source.words import words


def render(book: Book, lang: str, chapters: list[Chapter]) -> str:
    """The page as Markdown."""
    w = words(lang, "then_and_now")
    names = [chapter.name for chapter in chapters]
    slips = chapters_of(book, [OLD_NOTES])[lang] if OLD_NOTES in book.texts else []
    claims = [c for c in claims_file.load(book) if c.chapter in names]
    known = {claim.id for claim in claims}
    parts = [f"# {w['title']}", w["lead"], _filter(claims, w)]
    for chapter in chapters:
        rows = [claim for claim in claims if claim.chapter == chapter.name]
        if rows:
            parts.append(f"## [{chapter.title}]({chapter.name}.ipynb)")
            parts += [_card(claim, lang, [chapter, *slips], known) for claim in rows]
    return page("book/claims.yml and the chapters", w["summary"], "\n\n".join(parts) + "\n")


def proofs(claim: Claim, chapters: list[Chapter]) -> list[str]:
    """Links to the sections whose cells name a claim, each once."""
    sections = [
        chapter.sections[cell.id]
        for chapter in chapters
        for cell in chapter.cells
        if claim.id in cell.metadata.get("claims", [])
    ]
    return list(dict.fromkeys(f"[{s.title}]({s.href})" for s in sections))


def _filter(claims: list[Claim], w: dict[str, str]) -> str:
    """The counts, which are also the choice of what to show; a style sheet alone does the rest."""
    counts = Counter(claim.verdict for claim in claims)
    lines = ['<fieldset class="verdicts">', f"<legend>{w['filter']}</legend>"]
    for verdict in ("all", *(v for v in VERDICTS if counts[v])):
        number = counts[verdict] if verdict in VERDICTS else len(claims)
        checked = " checked" if verdict == "all" else ""
        lines.append(
            f'<label class="verdict {verdict}"><input type="radio" name="verdict" '
            f'value="{verdict}"{checked}> {w[verdict]} <b>{number}</b></label>'
        )
    return "\n".join([*lines, "</fieldset>"])


def _card(claim: Claim, lang: str, chapters: list[Chapter], known: set[str]) -> str:
    """One claim."""
    w = words(lang, "then_and_now")

    def linked(text: str) -> str:
        """Other claims that a text names lead to their cards."""
        return re.sub(
            r"(?<![\w-])[A-Z]\d*-\d+(?!\w)",
            lambda m: f'<a href="#{m[0]}">{m[0]}</a>' if m[0] in known else m[0],
            " ".join(text.split()),
        )

    where = re.fullmatch(r"(\S+), (lines?) (.+)", claim.note)
    last = [w["note"].format(*where.groups()) if where else claim.note]
    if links := proofs(claim, chapters):
        last.append(f"{w['proof']}{w['colon']}{w['and'].join(links)}")
    if claim.proof:
        last.append(f"{w['no_cell']}{w['colon']}{' '.join(claim.proof[lang].split())}")
    since = _since(claim.since, w) if claim.since else ""
    return f"""\
<div class="claim-card" id="{claim.id}" data-verdict="{claim.verdict}">

<span class="verdict {claim.verdict}">{w[claim.verdict]}</span>{since}

**{w["said"]}**{w["colon"]}{linked(claim.says[lang])}

**{w["today"]}**{w["colon"]}{linked(claim.today[lang])}

<small>{claim.id}</small> · {" · ".join(last)}

</div>"""


def _since(version: str, w: dict[str, str]) -> str:
    """Since which version; a bare number is PyTorch's."""
    name = f"PyTorch {version}" if version[:1].isdigit() else version
    return f" {w['since']} {name}{w['since_end']}"
