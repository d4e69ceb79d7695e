"""Write the search index: a script with one record per section, which also loads from `file://`.

`book/_static/search.js` searches it in the browser. A record is a section, a card of the cheat
sheet, a message, a symptom, a term of the glossary, or a function of the reference.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

from bookbuild.pages.torch_names import ALIASES, imports, torch_names
from bookbuild.site.configuration import book_of, language_of
from bookbuild.source.checkout import REFERENCE
from bookbuild.source.words import search_words

INDEX = "search-index.js"
REPEATED = {
    "by_name",
    "old_notes",
    "pitfalls",
    "status",
    "teachers",
    "then_and_now",
}  # pages that repeat content of others: only their introduction is indexed
KINDS = {"errors": "message", "symptoms": "symptom", "cheat_sheet": "card"}
UNASKED = re.compile(
    r"\s*(import |from \S+ import |(torch|np|random)\.(random\.)?(manual_)?seed\()"
)
# Lines that print, assert or plot, or call a demonstration or checker of the book: not indexed.
SHOWN = re.compile(r"\s*(print\(|assert |plt\.|ax\w*\.|fig\w*\b)|.*\b(demos|exercises)\.")
WORD = re.compile(r"[A-Za-z_]\w{2,}|[一-鿿]")
# Names that queries may contain: attributes, calls, arguments, classes; not local variables.
PUBLIC = re.compile(r"(?<=\.)[A-Za-z_]\w{2,}|[A-Za-z_]\w{2,}(?=\(|=[^=])|(?<=class )\w+")
# Words in the form of a name: `search.js` adds those in the prose of a chapter to the names.
NAMED = re.compile(r"[A-Za-z]+[._][\w.]*\w|[A-Za-z_]\w*(?=\()")
_COMMON = 40  # a torch name in the code of more records is left out
_LONG = 40  # bytes of a sentence: 13 Chinese characters
# A name in a sentence: a letter, then a capital, a digit, a dot or an underscore; a version.
_NAME = re.compile(r"[A-Za-z][a-z-]*[A-Z\d_.][\w.-]*\w|[A-Za-z][\w-]+ \d[\d.]*", re.ASCII)
_SENTENCE = re.compile(r".*?[。！？]|.*?[.!?](?=\s)|.+", re.S)
LEFT_OUT = {
    "tag_solution",
    "tag_exercise",
    "tag_setup",
    "tag_setup-cell",
    "cell_output",
    "toctree-wrapper",
}


@dataclass
class Section:
    """Searchable content of a section: prose, code or its names, names of torch, and queries."""

    anchor: str
    title: str
    text: list[str] = field(default_factory=list)
    code: list[str] = field(default_factory=list)
    names: dict[str, None] = field(default_factory=dict)
    queries: list[str] = field(default_factory=list)  # queries that the section answers
    explained: str = ""  # for a cheat-sheet card: page and anchor of the explaining section

    def other_names(self) -> dict[str, None]:
        """Return the public names in the code that the section's prose does not contain."""
        seen = _words(" ".join([self.title, *self.text, *self.names]))
        return dict.fromkeys(name for name in self.code if name.lower() not in seen)

    def record(self) -> list[str]:
        """Return anchor, title, prose, code, names with queries, and the explaining section.

        The code of a section is stored as its public names, the code of a card as it is.
        """
        return [
            self.anchor,
            self.title,
            "\n".join(self.text),
            "\n".join(self.code) if self.explained else " ".join(self.other_names()),
            "\n".join([" ".join(dict.fromkeys(" ".join(self.names).split())), *self.queries]),
            self.explained,
        ]


def _words(text: str) -> set[str]:
    return {word.lower() for word in WORD.findall(text)}


def _pieces(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.lower()))


def sections(document: nodes.document) -> list[Section]:
    """Return the sections and entries of a page in order, without empty ones.

    Exercises and recaps, which repeat the sections, have only their titles.
    """
    records = [Section("", "")]
    _walk(document, records, records[0])
    first = next((n for n, s in enumerate(records) if s.anchor == "exercises"), len(records))
    for section in records[first:]:
        section.text, section.code = [], []
    return [s for s in records if s.title and (s.anchor or s.text)]


def _walk(node: nodes.Element, records: list[Section], here: Section) -> Section:
    """Add the text below a node to `records`; return the section of the node that follows.

    Folded hints of exercises are left out.
    """
    folded = 0
    for child in node.children:
        if isinstance(child, nodes.raw):
            opened = child.astext().count("<details") - child.astext().count("</details")
            folded = max(0, folded + opened)
            if opened:
                continue
        if folded or LEFT_OUT.intersection(getattr(child, "attributes", {}).get("classes", ())):
            continue
        if below := _begin(child, records):
            _walk(child, records, below)
            if isinstance(child, addnodes.desc):  # keep the signature and the first line
                below.text, below.code = below.text[:2], []
        elif card := _card(child):
            here = _new(records, card[0], child)
            here.explained = card[1]
        elif isinstance(child, nodes.raw):
            here = _Entries(records, here).read(child.astext())
        elif not _is_label(child) and not _add_text(child, here) and child.children:
            here = _walk(child, records, here)
    return here


def _begin(node: nodes.Node, records: list[Section]) -> Section | None:
    """Begin a record if a node is a section, a function or a term with an anchor; else None."""
    if isinstance(node, nodes.section):
        return _new(records, node["ids"][0], node.next_node(nodes.title))
    if isinstance(node, addnodes.desc):
        signature = node.next_node(addnodes.desc_signature)
        if signature is not None and signature["ids"]:
            record = _new(records, signature["ids"][0], signature["ids"][0])
            names = [p.next_node(addnodes.desc_sig_name) for p in _parameters(signature)]
            record.text.append(f"({', '.join(_plain(name) for name in names if name)})")
            return record
    if isinstance(node, nodes.definition_list_item) and (anchor := _anchor(node[0])):
        return _new(records, anchor, node[0])
    return None


def _card(node: nodes.Node) -> tuple[str, str] | None:
    """Return the anchor of the next cell and the linked section of a bold, linked title."""
    if not isinstance(node, nodes.paragraph):
        return None
    inside = [child for child in node if child.astext()]
    link = inside[0][0] if len(inside) == 1 and isinstance(inside[0], nodes.strong) else None
    cell = node.next_node(ascend=True, descend=False)
    if not isinstance(link, addnodes.pending_xref) or not getattr(cell, "get", dict)("ids"):
        return None
    return cell["ids"][0], f"{link['reftarget']}#{link.get('reftargetid') or ''}"


def _is_label(node: nodes.Node) -> bool:
    """Return True for titles, which are in the record already, for formulas and for verdicts."""
    skipped = (nodes.title, addnodes.desc_signature, nodes.math_block)
    term = isinstance(node, nodes.term) and _anchor(node)
    return bool(term) or isinstance(node, skipped) or _starts_raw(node)


def _starts_raw(node: nodes.Node) -> bool:
    return isinstance(node.next_node(ascend=False), nodes.raw)


def _add_text(node: nodes.Node, here: Section) -> bool:
    """Add the text of a paragraph, table row or code block; return False for other nodes."""
    if isinstance(node, nodes.literal_block):
        lines = node.astext().splitlines()
        lines = [line for line in lines if line.strip() and not UNASKED.match(line)]
        if here.explained:  # results show the card of a cheat sheet with all its lines
            here.code += lines
        else:
            lines = [line.partition("#")[0] for line in lines if not SHOWN.match(line)]
            here.code += PUBLIC.findall("\n".join(lines))
        code = node.astext()
        here.names |= dict.fromkeys(torch_names(code, ALIASES | imports(code)))
    elif isinstance(node, nodes.row):
        _add(here, " · ".join(_plain(cell) for cell in node.children))
        here.names |= _literals(node)
    elif isinstance(node, nodes.TextElement):
        _add(here, _plain(node))
        here.names |= _literals(node)
        if "keywords" in node["classes"]:
            here.names |= dict.fromkeys(re.split(r"[,、:：] *", node.astext()))
    else:
        return False
    return True


def _parameters(signature: nodes.Element) -> Iterator[nodes.Element]:
    return signature.findall(addnodes.desc_parameter)


class _Entries(HTMLParser):
    """Parser of raw HTML: an element with an id begins an entry; block elements end a line.

    Code and folded parts are left out.
    """

    blocks = {"li", "p", "div", "tr", "br", "dt", "dd", "summary", "h2", "h3", "h4", "ul", "ol"}
    silent = {"pre", "script", "style", "svg", "noscript", "label", "textarea", "fieldset", "small"}
    empty = {"br", "input", "img", "hr", "wbr"}

    def __init__(self, records: list[Section], here: Section):
        super().__init__()
        self.records, self.here = records, here
        self.open: list[tuple[str, str]] = []  # open elements: tag, and use of its text
        self.depth = 0  # number of open elements around the entry
        self.inside = False
        self.line = ""

    def read(self, source: str) -> Section:
        """Add the entries of an HTML fragment; return the section of the content that follows."""
        self.feed(source)
        self.close()
        self.end_line()
        return self.here

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Begin an entry or a line."""
        about = dict(attrs)
        if tag in self.blocks:
            self.end_line()
        entry = tag in ("li", "tr", "div", "article") and about.get("id") and not self.inside
        if entry and not self.left_out():
            self.inside, self.depth = True, len(self.open)
            self.here = _new(self.records, about["id"] or "", "")
        if tag not in self.empty:
            name = about.get("class") or ""
            folded = tag == "details" and name not in ("", "older", "cases")
            listed_elsewhere = re.search("verdict|error-lines|review-rules", name)
            label = tag == "summary" and self.open and self.open[-1][1] == "wording"
            left_out = folded or label or tag in self.silent or listed_elsewhere or name == "here"
            uses = {"also": "query", "older": "wording", "cases": "case"}
            self.open.append((tag, "left out" if left_out else uses.get(name, "")))

    def left_out(self) -> bool:
        """Return True inside an element that is left out."""
        return any(use == "left out" for _, use in self.open)

    def handle_endtag(self, tag: str) -> None:
        """End a line."""
        if tag in self.blocks:
            self.end_line()
        while self.open and self.open.pop()[0] != tag:
            pass
        self.inside = self.inside and len(self.open) > self.depth

    def handle_data(self, data: str) -> None:
        """Add text to the line."""
        if not self.left_out():
            self.line += data

    def end_line(self) -> None:
        """Add the line to the entry, except a link to a section, which has its own record.

        The other names of a symptom are queries.
        Of another wording, only the words are added that the title and the wordings before lack.
        Of a special case, only names are added. Of any other line, only the first two sentences
        are added, or one if it is long: they name the cause; the rest is advice.
        """
        uses = {use for _, use in self.open}
        if "wording" in uses:
            known = _pieces(" ".join([self.here.title, *self.here.queries]))
            new = [word for word in self.line.split() if _pieces(word) - known]
            self.here.queries += [" ".join(new)] if new else []
        elif "query" in uses:
            _, *names = re.split("[,:;，、：；] *", self.line.strip())  # the first is the label
            self.here.queries += names
        elif "case" in uses:
            known = " ".join(self.here.text)
            _add(self.here, " ".join(n for n in _NAME.findall(self.line) if n not in known))
        elif not self.line.lstrip().startswith("→"):
            sentences = _SENTENCE.findall(self.line)
            long = bool(sentences) and len(sentences[0].encode()) >= _LONG
            several = 1 if long else 2
            _add(self.here, "".join(sentences[: several if self.inside else None]))
        self.line = ""


def _new(records: list[Section], anchor: str, title: nodes.Node | str | None) -> Section:
    name = title if isinstance(title, str) else _plain(title) if title is not None else ""
    records.append(Section(anchor, name))
    return records[-1]


def _add(section: Section, text: str) -> None:
    """Add a line; the first line becomes the title of an entry without one."""
    if line := " ".join(text.split()):
        if section.anchor and not section.title:
            cut = len(line) if len(line) <= 100 else line.rfind(" ", 50, 99) + 1 or 99
            section.title = line if cut == len(line) else f"{line[:cut]}…"
            section.text += [line[cut:]] if line[cut:] else []
        else:
            section.text.append(line)


def _plain(node: nodes.Node) -> str:
    """Return the text of a node on one line, without formulas and image addresses."""
    texts = (
        text.astext()
        for text in node.findall(nodes.Text)
        if not isinstance(text.parent, (nodes.math, nodes.raw, addnodes.versionmodified))
    )
    return " ".join("".join(texts).split())


def _anchor(term: nodes.Element) -> str:
    """Return the anchor of a definition-list term, "" if it has none."""
    ids = [i for e in term.findall(nodes.Element) for i in e.get("ids", ())]
    return ids[0] if ids else ""


def _literals(node: nodes.Element) -> dict[str, None]:
    """Return inline code of fewer than 80 characters: it often names the section's subject."""
    return {text.astext(): None for text in node.findall(nodes.literal) if len(text.astext()) < 80}


# ---------------------------------------------------------------- the script


def read(app: Sphinx, document: nodes.document) -> None:
    """Store the records of a page that was just read."""
    env = app.env
    noted = getattr(env, "book_sections", {})
    parts = sections(document)
    if env.docname in REPEATED:
        parts = parts[:1]
        for part in parts:
            part.text = part.text[:2]
    typed = json.loads(env.metadata[env.docname].get("queries", "{}"))
    for part in parts:
        part.queries += typed.get(part.anchor, [])
    env.book_sections = noted | {env.docname: [part.record() for part in parts]}


def forget(app: Sphinx, env: BuildEnvironment, page: str) -> None:
    """Remove the records of a page that is reread or was deleted."""
    getattr(env, "book_sections", {}).pop(page, None)


def merge(app: Sphinx, env: BuildEnvironment, pages: set[str], other: BuildEnvironment) -> None:
    """Merge the records that another process has read."""
    noted = getattr(env, "book_sections", {})
    env.book_sections = noted | {page: other.book_sections[page] for page in pages}


def kinds(app: Sphinx) -> dict[str, tuple[str, str]]:
    """Return for each page in the table of contents its kind and the page shown in results.

    The kind is `"chapter"`, `"reference"` or a value of `KINDS` (pages of entries). For a page
    below another one, results show the parent.
    """
    site, names = app.config.external_site_map, {REFERENCE}
    names |= {language.parts.get(REFERENCE) for language in book_of(app).languages.values()}
    root = str(site.root.docname)
    pages = {root: ("reference", root)}
    for tree in site.root.subtrees:
        kind = "reference" if tree.caption in names else "chapter"
        for page in tree.files():
            below = (page, *site[page].child_files())
            pages |= {name: (KINDS.get(page, kind), page) for name in below}
    return pages


def index(app: Sphinx) -> str:
    """Return the script that sets `bookIndex`."""
    pages, records, places = [], [], {}
    for page, (kind, whole) in kinds(app).items():
        if page in app.env.titles:
            places[page] = len(pages)
            noted = app.env.book_sections.get(page, [])
            if page == "api" and language_of(app) == "zh":  # docstrings are English
                noted = [[anchor, title, "", "", "", ""] for anchor, title, *_ in noted]
            records += [[len(pages), *record] for record in noted]
            pages.append([page, app.env.titles[page].astext(), kind, places[whole]])
    records = [
        without_named(record) if pages[record[0]][2] == "chapter" else record
        for record in without_common_names(records)
    ]
    data = {
        "pages": pages,
        "columns": [*zip(*records, strict=True)],  # stored by column: compresses better
        "words": search_words(),
        "name_form": NAMED.pattern,
    }
    return f"globalThis.bookIndex={json.dumps(data, ensure_ascii=False, separators=(',', ':'))};\n"


def without_common_names(records: list[list]) -> Iterator[list]:
    """Leave out the torch names in the code of many records whose prose does not mention them."""
    names = [record[-2].partition("\n")[0].split(" ") for record in records]
    uses = Counter(name for some in names for name in some if name.startswith("torch."))
    for record, own in zip(records, names, strict=True):
        prose = " ".join(record[2:4])
        kept = [n for n in own if uses[n] <= _COMMON or n.rpartition(".")[2] in prose]
        _, end, queries = record[-2].partition("\n")
        yield [*record[:-2], " ".join(kept) + end + queries, record[-1]]


def without_named(record: list) -> list:
    """Leave out the names that the prose contains in the form of a name."""
    named = _pieces(" ".join(NAMED.findall(record[3])))
    names, end, queries = record[-2].partition("\n")
    kept = " ".join(name for name in names.split(" ") if _pieces(name) - named)
    return [*record[:-2], kept + end + queries, record[-1]]


def without_sphinx(app: Sphinx) -> None:
    """Disable Sphinx's own search index and search page."""
    app.builder.search = False


def page(app: Sphinx) -> Iterator[tuple[str, dict, str]]:
    """Yield the page of results, `search.html`."""
    yield "search", {}, "search.html"


def write(app: Sphinx, error: Exception | None) -> None:
    """Write the index beside the pages."""
    if not error and app.builder.format == "html":
        Path(app.outdir, INDEX).write_text(index(app), "utf8")


def setup(app: Sphinx) -> None:
    """Register the events."""
    app.connect("builder-inited", without_sphinx)
    app.connect("doctree-read", read)
    app.connect("env-purge-doc", forget)
    app.connect("env-merge-info", merge)
    app.connect("html-collect-pages", page)
    app.connect("build-finished", write)
