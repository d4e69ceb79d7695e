"""For programs that read: a Markdown twin of each chapter, `llms.txt`, the pitfalls as data.

All of them say that the code was run, and under which version.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path

from markdownify import MarkdownConverter
from nbformat import NotebookNode

from bookbuild.notebooks import setup_cell
from bookbuild.notebooks.cells import alt, output, tags
from bookbuild.notebooks.files import read
from bookbuild.pages.pitfall_list import place
from bookbuild.source import messages, pitfalls, versions
from bookbuild.source.checkout import LANGUAGES, Book
from bookbuild.source.headings import headings

_LEFT_OUT = re.compile(
    r'<a class="headerlink".*?</a>|<div class="filter".*?</div>|<form.*?</form>|<svg.*?</svg>'
    r'|<div class="error-search".*?</div>|<fieldset.*?</fieldset>|<script.*?</script>',
    re.S,
)
_PAGE = re.compile(r'(href="[\w-]+)\.html(?=["#])')
_WORDS = {
    "en": {
        "ran": "Every cell of this page was run{}, unless it says otherwise; what follows a cell "
        "under *Prints* or *Raises* is its stored output, which tests compare again.",
        "under": " under PyTorch {torch} ({device}, {date})",
        "also": "It was also run under PyTorch {}; where an outcome differs, [Status]({}) says so.",
        "marks": "`# ✗ wrong` marks code that one should not write, `# ✓ right` what to write "
        "instead.",
        "prints": "Prints",
        "raises": "Raises",
        "figure": "Shows: ",
        "not_run": "Not run: it needs a GPU.",
        "page": "Page",
        "comma": ", ",
        "and": "; ",
    },
    "zh": {
        "ran": "本页的单元格{}都运行过，另有说明的除外；“输出”或“报错”之下是它保存的输出，"
        "测试会再次比对。",
        "under": "在 PyTorch {torch}（{device}，{date}）上",
        "also": "还在 PyTorch {} 上运行过；结果有差异的地方见[状态]({})。",
        "marks": "`# ✗ 错误写法` 标出不该这样写的代码，`# ✓ 正确写法` 是应该写的。",
        "prints": "输出",
        "raises": "报错",
        "figure": "图示：",
        "not_run": "没有运行：需要 GPU。",
        "page": "网页",
        "comma": "、",
        "and": "；",
    },
}


def write(book: Book, site: Path, names: dict[str, tuple[str, str]], base: str) -> None:
    """Write them all into a site.

    `names` has the book's name and its author in each language; `base` is the site's address.
    """
    read_ = {
        (lang, path.stem): read(path)
        for lang in LANGUAGES
        for path in sorted((book.root / "book" / lang).glob("*.ipynb"))
    }
    for (lang, name), nb in read_.items():
        if (site / lang / f"{name}.html").is_file():
            (site / lang / f"{name}.md").write_text(chapter(book, lang, name, nb), "utf8")
    english = {name: nb for (lang, name), nb in read_.items() if lang == "en"}
    (site / "pitfalls.json").write_text(_pitfalls(book, english, names, base), "utf8")
    (site / "llms.txt").write_text(_llms(book, site, names, base), "utf8")


def markdown(html: str) -> str:
    """What a piece of a page says, with links to the twins of other pages."""
    told = _PAGE.sub(r"\1.md", _LEFT_OUT.sub("", html))
    converter = MarkdownConverter(heading_style="ATX", bullets="-", escape_underscores=False)
    return converter.convert(told).strip() + "\n"


# ---------------------------------------------------------------- a chapter


def chapter(book: Book, lang: str, name: str, nb: NotebookNode) -> str:
    """A chapter as Markdown, with the stored output of each cell."""
    first, *cells = nb.cells
    title, _, rest = first.source.partition("\n")
    parts = [title, _about(book, lang, name), rest.strip()]
    for cell in cells:
        parts.extend(_cell(lang, cell))
    text = "\n\n".join(part for part in parts if part)
    return re.sub(r"(\]\([\w-]+)\.ipynb(?=[)#])", r"\1.md", text) + "\n"


def _about(book: Book, lang: str, name: str) -> str:
    w, other = _WORDS[lang], next(x for x in LANGUAGES if x != lang)
    told = [w["ran"].format(under(book, lang, name)), w["marks"]]
    tested = [v for v, run in versions.tested(book).items() if name in run["chapters"]]
    if tested:
        told.append(w["also"].format(w["comma"].join(tested), "status.md"))
    told.append(
        f"[{w['page']}]({name}.html) · [notebook](_sources/{name}.ipynb) · "
        f"[{'中文' if other == 'zh' else 'English'}](../{other}/{name}.md)"
    )
    return "\n".join(f"> {line}" for line in told)


def under(book: Book, lang: str, name: str) -> str:
    """What a chapter was last proved under, as a piece of a sentence; empty if nobody noted it."""
    w = _WORDS[lang]
    found = [
        w["under"].format(device=device.upper(), **run)
        for device, run in sorted(runs(book, lang, name).items())
    ]
    return w["and"].join(found)


def runs(book: Book, lang: str, name: str) -> dict[str, dict]:
    """Return by device when a chapter was last proved and under which PyTorch."""
    return versions.validated(book).get(f"{lang}/{name}", {})


def _cell(lang: str, cell: NotebookNode) -> Iterator[str]:
    w = _WORDS[lang]
    if cell.cell_type == "markdown":
        if cell.source.startswith('<div class="predict"'):
            yield _asked(cell.source)
        elif "remove-cell" not in tags(cell):
            yield cell.source
    elif cell.id != setup_cell.ID:
        if "remove-cell" not in tags(cell):
            yield fenced(cell.source, "python")
            if cell.execution_count is None:
                yield f"*{w['not_run']}*"
        if text := output(cell):
            raises = any(out.output_type == "error" for out in cell.outputs)
            if len(cell.outputs[-1].get("data", ())) > 1:  # a figure or an explorer
                yield w["figure"] + (alt(cell) or text.strip("<>").partition(": ")[2] or text)
            else:
                yield f"{w['raises' if raises else 'prints']}:\n\n{fenced(text, 'text')}"


def _asked(html: str) -> str:
    """A question as `predict.html` writes it, in Markdown: a line for each choice."""
    for mark, said in (
        (r"<details[^>]*><summary>", "\n- "),
        (r"</summary>\s*<p>", "\n  "),
        (r"</?strong>", "**"),
        (r"</?em>", "*"),
        (r"</?code>", "`"),
        (r"<[^>]+>", ""),
    ):
        html = re.sub(mark, said, html)
    return re.sub(r"\n{3,}|\n\n(?=- )", "\n", unescape(html)).strip()


def fenced(text: str, language: str) -> str:
    """Code between fences that are longer than any in it."""
    longest = max((len(run) for run in re.findall("`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"


# ---------------------------------------------------------------- the whole


def _pitfalls(
    book: Book, notebooks: dict[str, NotebookNode], names: dict[str, tuple[str, str]], base: str
) -> str:
    """The pitfalls as `pitfalls.schema.json` describes them, which lies beside them."""
    at = f"{base}/" if base else ""
    found = []
    for one in pitfalls.load(book):
        name, (href, titles) = one.part.name, place(book, one)
        cell = next((c for c in notebooks[name].cells if c.id == one.id), None)
        if cell is None:
            continue  # the notebook is older than the text
        where = href.replace(".ipynb", ".html")
        tested = versions.tested(book).items()
        same = [
            version
            for version, run in tested
            if name in run["chapters"] and one.id not in run["differs"].get(name, {})
        ]
        proved = sorted({run["torch"] for run in runs(book, "en", name).values()})
        found.append(
            {
                "id": one.id,
                "chapter": name,
                "title": titles,
                "wrong": one.wrong,
                "right": one.right or None,
                "why": {lang: text or None for lang, text in one.part.answer.items()},
                "since": same[0] if same else proved[0] if proved else None,
                "proof": {
                    "cell": one.id,
                    "output": output(cell),
                    "torch": proved,
                },
                "address": {lang: f"{at}{lang}/pitfalls/{one.id}.html" for lang in LANGUAGES},
                "section": {lang: f"{at}{lang}/{where}" for lang in LANGUAGES},
            }
        )
    about = {
        "$schema": f"{at}pitfalls.schema.json",
        "title": {lang: names[lang][0] for lang in LANGUAGES},
        "about": "Each wrong code was run in a notebook of the book; `output` is what it printed "
        "or raised under the versions of PyTorch that `proof.torch` names.",
        "license": {"text": "CC-BY-4.0", "code": "MIT"},
    }
    rows = ",\n".join(json.dumps(one, ensure_ascii=False) for one in found)
    return f'{json.dumps(about, ensure_ascii=False)[:-1]}, "pitfalls": [\n{rows}\n]}}\n'


def _llms(book: Book, site: Path, names: dict[str, tuple[str, str]], base: str) -> str:
    """The pages for programs, as https://llmstxt.org has it: English first, then Chinese."""
    at = f"{base}/" if base else ""
    every = {run["torch"] for name in book.chapters for run in runs(book, "en", name).values()}
    torch = f" under PyTorch {', '.join(sorted(every))}" if every else ""
    lines = [
        f"# {names['en'][0]}",
        "> PyTorch's pitfalls, error messages and fixes in English and Chinese.",
        f"Every output on these pages was stored by a run{torch} and is compared again by tests; "
        f"[Status]({at}en/status.md) says what ran where, and what differs under other versions. "
        "In code, `# ✗ wrong` marks what one should not write, `# ✓ right` what to write instead. "
        "For an error message, look for its wording on the page of its family.",
    ]
    titles = {"en": "{}", "zh": "中文：{}"}
    families = {"errors": [family.page for family in messages.families(book)]}
    for lang in LANGUAGES:
        labels = book.config["sphinx"]["config"]["languages"][lang].get("parts", {})
        for part, pages in book.parts:
            listed = [
                f"- [{title}]({at}{lang}/{name}.md): {summary}"
                for page in pages
                for name in (page, *families.get(page, ()))
                if (title := _title(site / lang / f"{name}.md"))
                and (summary := _summary(site / lang / f"{name}.html")) is not None
            ]
            if listed:
                lines.append(f"## {titles[lang].format(labels.get(part, part))}")
                lines.append("\n".join(listed))
    lines += [
        "## Data",
        f"- [Pitfalls]({at}pitfalls.json): wrong code, right code, why, proof and address of each, "
        f"as [a schema]({at}pitfalls.schema.json) describes",
    ]
    return "\n\n".join(lines) + "\n"


def _title(twin: Path) -> str:
    return headings(twin.read_text("utf8"))[0].plain if twin.is_file() else ""


def _summary(page: Path) -> str:
    found = re.search('name="description" content="(.*?)"', page.read_text("utf8"))
    return unescape(found[1]) if found else ""
