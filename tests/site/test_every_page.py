"""Open every page once in a browser, and check the collected facts."""

from __future__ import annotations

import gzip
import json
import re
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe
from book_pages import HAN, LANGUAGES, LETTERS, ROOT
from bs4 import BeautifulSoup

from bookbuild.source.checkout import Book

# Texts of the interface, without those of the chapters.
LABELS = """() => {
  const texts = [];
  const note = (element, text) => {
    if (text && text.trim() && element.closest("[lang]") === document.documentElement)
      texts.push(text.trim().replace(/\\s+/g, " "));
  };
  for (const name of ["aria-label", "title", "placeholder", "data-bs-title", "data-toggle-hint"])
    for (const e of document.querySelectorAll(`[${name}]`)) note(e, e.getAttribute(name));
  for (const e of document.querySelectorAll(
    "button, summary:not(.predict *), label, .prev-next-area small, .page-toc-title," +
    ".caption-text, .part-name, .admonition-title, .skip-link, .bd-footer-content, .menu small," +
    ".book-brand, .book-name"))
    note(e, e.textContent);
  return texts;
}"""
NAMES_OF_THINGS = re.compile(
    r"\w+Error|\.ipynb|\.md|\.pdf|Colab|Binder|Kaggle|PyTorch|CC BY|MIT|flex_attention"
)


# Remove what has tests of its own (explorers) or no structure (formulas, lines of drawings), tokens
# of code whose classes were seen in such a block, and parts that equal one seen before, on any
# page: same position, tags, attributes, classes and roles, references that resolve or not, empty or
# not. A page is new if a remaining element, a count of landmarks or a step of headings is new.
THIN = """(before) => {
  const seen = new Set(before.split(" ")), names = new Map(), places = new Map();
  const hash = (text) => {
    let a = 1, b = 2;
    for (let i = 0; i < text.length; i++) {
      a = Math.imul(a ^ text.charCodeAt(i), 2654435761);
      b = Math.imul(b ^ text.charCodeAt(i), 1597334677);
    }
    return (a >>> 0).toString(36) + (b >>> 0).toString(36);
  };
  const first = (text) => { const key = hash(text); return !seen.has(key) && seen.add(key); };
  const kept = (map, make) => (e) => map.has(e) ? map.get(e) : map.set(e, make(e)).get(e);
  const lost = (ids) => ids.split(/\\s+/).some((id) => id && !document.getElementById(id));
  const attribute = ({name, value}) =>
    /^(class|role|type)$/.test(name) ? `${name}=${value}` :
    /^(for|aria-(controls|describedby|labelledby|owns))$/.test(name) ? name + lost(value) :
    name + !value.trim();
  for (const fold of document.querySelectorAll("article details")) fold.open = true;
  for (const e of document.querySelectorAll("article *"))
    if (/-explorer$/.test(e.localName)) e.remove();
  const lines = "svg :is(path, use, defs, line, rect, circle, image)";
  for (const e of document.querySelectorAll(`article :is(.katex, ${lines})`)) e.remove();
  // axe measures no contrast of code that is off screen or above a gradient
  for (const code of document.querySelectorAll(".highlight")) code.removeAttribute("style");
  const plain = document.head.appendChild(document.createElement("style"));
  plain.textContent = ".highlight { content-visibility: visible !important }" +
    ".highlight, .highlight pre { background-image: none !important }";
  for (const token of document.querySelectorAll("article :is(.highlight, .sig) span")) {
    const block = token.closest("[class*=cell_], .sig, .highlight").className;
    if (!first([token.className, !!token.closest(".hll"), block].join()))
      token.replaceWith(...token.childNodes);
  }
  const name = kept(names, (e) => e.localName + [...e.attributes].map(attribute).sort() +
    !e.textContent.trim());
  const place = kept(places, (e) => !e || e.matches("article, section") ? "" :
    name(e) + ">" + place(e.parentElement));
  const page = new Set([`${!document.title.trim()}`]), ids = new Set();
  for (const {id} of document.querySelectorAll("[id]"))
    page.add("twice " + (ids.has(id) && ids.size)) && ids.add(id);
  for (const tag of ["main", "header", "footer", "aside", "nav", "h1"])
    page.add(tag + document.querySelectorAll(tag).length);
  let level = "";
  for (const { localName } of document.querySelectorAll("h1, h2, h3, h4, h5, h6"))
    page.add(level + (level = localName));
  const parts = "article :is(div.cell, dl.py, pre, p:not(th *), li, tr, .copybtn), nav li";
  for (const part of document.querySelectorAll(parts))
    if (part.isConnected) {
      const inside = new Set([...part.querySelectorAll("*")].map(name));
      if (!first(place(part) + [...inside].sort())) part.remove();
    }
  for (const e of document.querySelectorAll("html, body :not(pre span, .sig span, svg *)"))
    page.add(name(e) + place(e));
  for (const e of document.querySelectorAll("[lang]")) page.add(e.getAttribute("lang"));
  const isNew = [...page].filter(first).length > 0;
  return [[...seen].join(" "), isNew];
}"""
# Contrast depends only on an element's style: remove the text of elements whose tag, and whose
# classes and own colours from the root down, were seen on this or another page.
FAINT = """(before) => {
  const seen = new Set(before.split("\\n"));
  const colours = (e) => (e.getAttribute("style") ?? "").split(";")
    .filter((declared) => /color|fill|background|opacity/.test(declared));
  const paint = (e) => [e.className.baseVal ?? e.className, colours(e),
    ...["fill", "disabled", "aria-current"].map((name) => e.getAttribute(name))].join();
  const place = (e) => !e ? "" :
    place(e.parentElement) + (/^,+$/.test(paint(e)) ? "" : ">" + paint(e));
  const key = (e) => e.localName + place(e);
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  let left = 0;
  while (texts.nextNode()) {
    const text = texts.currentNode;
    if (!text.data.trim()) continue;
    const style = key(text.parentElement);
    if (seen.has(style)) text.data = "";
    else left++;
    seen.add(style);
  }
  const kept = "input, select, textarea, style, script";
  for (const e of [...document.body.querySelectorAll("*")].reverse())
    if (!e.textContent.trim() && !e.matches(kept) && !e.querySelector(kept)) e.remove();
  return [[...seen].join("\\n"), left > 0];
}"""

AXE = Axe()


@dataclass
class Visit:
    """Facts about one visit to a page."""

    requests: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    weight: int = 0
    lang: str = ""
    labels: list[str] = field(default_factory=list)
    wide: dict[str, object] = field(default_factory=dict)
    figures: list[str] = field(default_factory=list)
    need: str = ""
    tasks: list[int] = field(default_factory=list)
    violations: dict[str, list[str]] = field(default_factory=dict)


@dataclass
class Looked:
    """Cache of all pages: gzipped sizes of files, parts and texts that axe has checked."""

    sizes: dict[str, int] = field(default_factory=dict)
    parts: str = ""
    texts: str = ""


@pytest.fixture(scope="module")
def unpainted(with_fonts):
    """Yield a context that lays pages out and runs scripts, but draws no frames, to save time.

    Without frames, `requestAnimationFrame` callbacks and media query events never run.
    """
    launched = with_fonts("wide", "--enable-begin-frame-control")
    yield launched.new_context(viewport={"width": 1280, "height": 800}, locale="en-US")
    launched.close()


@pytest.fixture(scope="module")
def looked_at() -> Looked:
    return Looked()


# Number of parts in which the pages of a language are opened, so that no test takes long.
PARTS = 8


@pytest.fixture(scope="module", params=LANGUAGES)
def visits_of(request, unpainted, url, pages, looked_at) -> Callable[[int], dict[str, Visit]]:
    """Return a function that opens every page of a part once, and returns the collected facts."""
    names = [name for name in pages if name.startswith(f"{request.param}/")]

    @cache
    def opened(part: int) -> dict[str, Visit]:
        return {n: visit(unpainted, f"{url}/{n}", looked_at) for n in names[part::PARTS]}

    return opened


@pytest.fixture
def visits(visits_of) -> dict[str, Visit]:
    """Return the facts of all pages of a language."""
    return {name: visit for part in range(PARTS) for name, visit in visits_of(part).items()}


# Outputs that are wider than their box.
CUT = """() => [...document.querySelectorAll(".cell_output pre")]
  .filter(e => e.offsetParent && e.scrollWidth > e.clientWidth + 1)
  .map(e => e.textContent.slice(0, 60))"""

# Code blocks whose height differs from the one reserved while they were off screen, without the
# cheat sheet, whose lines wrap on a phone.
JUMPS = """() => [...document.querySelectorAll(".cell_input .highlight")]
  .filter(e => !e.closest("#cheat-sheet"))
  .filter(e => getComputedStyle(e).contentVisibility === "auto")
  .map(e => [e.clientHeight, e.querySelector("pre").offsetHeight, e.textContent.slice(0, 60)])
  .filter(([kept, taken]) => Math.abs(kept - taken) > 1)"""


# Errors in the figures of a page on a phone; `others` are labels in the other language.
FIGURES = """(others) => [
  ...[...document.querySelectorAll(".book-figure")]
    .filter((figure) => figure.role !== "img" || figure.ariaLabel.length <= 30)
    .map((figure) => "without a description: " + figure.textContent.slice(0, 60)),
  ...[...document.querySelectorAll(".book-figure text")]
    .filter((text) => text.getClientRects().length && text.checkVisibility())
    .flatMap((text) => {
      const { fontSize } = getComputedStyle(text), svg = text.closest("svg"), wrong = [];
      const box = text.getBoundingClientRect(), frame = svg.getBoundingClientRect();
      if (parseFloat(fontSize) * frame.width / svg.viewBox.baseVal.width < 9) wrong.push("small");
      if (box.right > document.documentElement.clientWidth || box.left < 0) wrong.push("cut off");
      if (!text.getAttribute("style").includes("monospace") && others.includes(text.textContent))
        wrong.push("in the other language");
      return wrong.map((fault) => fault + ": " + text.textContent);
    })]"""

# The requirements of the chapter; the number of questions, explorers and exercises.
TASKS = """() => {
  const moves = (cell) => [...cell.querySelectorAll("*")].some(e => /-explorer$/.test(e.localName));
  const cells = [...document.querySelectorAll(".cell")];
  return [document.querySelector(".callout-need")?.textContent ?? "",
    document.querySelectorAll(".predict").length, cells.filter(moves).length,
    document.querySelectorAll(".tag_exercise").length];
}"""


def visit(context, address: str, looked_at: Looked) -> Visit:
    """Open a page, collect the facts that the tests check, and close it."""
    found, answers, errors, under_way = Visit(), [], [], set()
    opened = context.new_page()
    opened.on("request", lambda r: (found.requests.append(r.url), under_way.add(r)))
    for end in ("requestfinished", "requestfailed"):
        opened.on(end, lambda r: under_way.discard(r))
    opened.on("pageerror", lambda e: errors.append(str(e)))
    opened.on("console", lambda m: m.type == "error" and errors.append(m.text))
    opened.on("response", lambda answer: answers.append(answer))
    opened.goto(address)
    found.lang = opened.locator("html").get_attribute("lang")
    found.labels = opened.evaluate(LABELS)
    found.need, *found.tasks = opened.evaluate(TASKS)
    found.wide, found.figures = widths(opened, foreign_labels(address))
    for _ in range(50):  # the browser does not report the end of some requests
        if not under_way:
            break
        opened.wait_for_timeout(100)
    found.errors = errors.copy()  # ignore errors caused by the removals for axe
    found.violations = violations(opened, looked_at)
    for answer in (a for a in answers if a.status == 200):
        if answer.url not in looked_at.sizes:
            looked_at.sizes[answer.url] = len(gzip.compress(answer.body(), 6))
        found.weight += looked_at.sizes[answer.url]
    opened.close()
    return found


def foreign_labels(address: str) -> list[str]:
    """Return the labels in the other language of a page's figures."""
    lang, name = address.removesuffix(".html").split("/")[-2:]
    notebook = ROOT / "book" / lang / f"{name}.ipynb"
    if not notebook.exists():
        return []
    outputs = (
        o for c in json.loads(notebook.read_text("utf8"))["cells"] for o in c.get("outputs", ())
    )
    html = "".join("".join(output.get("data", {}).get("text/html", "")) for output in outputs)
    (other,) = LANGUAGES.keys() - {lang}
    return re.findall(f'<text lang="{other}"[^>]*>([^<]*)<', html)


def widths(opened, others: list[str]) -> tuple[dict[str, object], list[str]]:
    """Return widths at which the unfolded page overflows or cuts off outputs, and errors in the
    figures on a phone."""
    found, figures, desktop = {}, [], opened.viewport_size
    opened.evaluate("document.querySelectorAll('article details').forEach(e => e.open = true)")
    if cut := opened.evaluate(CUT):
        found["desktop, cut off"] = cut[:3]
    if jumps := opened.evaluate(JUMPS):
        found["desktop, code with other room"] = jumps[:3]
    style = opened.evaluate_handle("document.head.appendChild(document.createElement('style'))")
    for letters, css in LETTERS.items():
        style.evaluate("(style, css) => { style.textContent = css }", css)
        for phone in (320, 375) if not css else (320,):  # no breakpoint lies between
            opened.set_viewport_size({"width": phone, "height": 720})
            width = opened.evaluate("document.documentElement.scrollWidth")
            if width > phone:
                found[f"{phone} px, {letters}"] = width
            if cut := opened.evaluate(CUT):
                found[f"{phone} px, {letters}, cut off"] = cut[:3]
        if not css:
            figures = opened.evaluate(FIGURES, others)
            if jumps := opened.evaluate(JUMPS):
                found["phone, code with other room"] = jumps[:3]
    style.evaluate("style => style.remove()")
    opened.set_viewport_size(desktop)
    return found, figures


def violations(opened, looked_at: Looked) -> dict[str, list[str]]:
    """Return the violations in parts that are new to axe, by rule; check only contrast in both
    themes, because the theme changes nothing else."""
    looked_at.parts, is_new = opened.evaluate(THIN, looked_at.parts)
    found = {}
    if is_new:
        # without frames no ResizeObserver runs, so scrollable code is not focusable yet
        out = dict.fromkeys(("color-contrast", "scrollable-region-focusable"), {"enabled": False})
        found = axe(opened, {"rules": out})
    looked_at.texts, is_new = opened.evaluate(FAINT, looked_at.texts)
    for scheme in ("light", "dark") if is_new else ():
        opened.emulate_media(color_scheme=scheme)
        opened.evaluate("theme => { document.documentElement.dataset.theme = theme }", scheme)
        faint = axe(opened, {"runOnly": ["color-contrast"]})
        found |= {f"{name}, {scheme}": nodes for name, nodes in faint.items()}
    return found


def axe(opened, options: dict) -> dict[str, list[str]]:
    """Return up to three violating elements for each violated rule."""
    if not opened.evaluate("'axe' in window"):
        opened.evaluate(AXE.axe_script)
    run = "o => axe.run(o).then(r => r.violations)"
    violated = opened.evaluate(run, options | {"resultTypes": ["violations"], "preload": False})
    return {v["id"]: [n["html"][:120] for n in v["nodes"]][:3] for v in violated}


@pytest.mark.parametrize("part", range(PARTS))
def test_pages_report_no_errors(visits_of, part):
    assert not {n: v.errors for n, v in visits_of(part).items() if v.errors}


def test_pages_request_no_other_host(visits, url):
    foreign = {
        n: [r for r in v.requests if not r.startswith((url, "data:"))] for n, v in visits.items()
    }
    assert not {n: r for n, r in foreign.items() if r}


def test_pages_stay_within_size_and_request_limits(visits):
    weights = {n: v.weight for n, v in visits.items()}
    assert statistics.median(weights.values()) <= 150_000
    assert not {n: w for n, w in weights.items() if w > 300_000}
    requests = {n: len(v.requests) for n, v in visits.items()}
    assert not {n: r for n, r in requests.items() if r > 25}


def test_pages_declare_their_language(visits):
    assert not {n: v.lang for n, v in visits.items() if v.lang != LANGUAGES[n[:2]]}


def test_interface_labels_use_the_language_of_the_page(visits):
    wrong = {}
    for name, visit in visits.items():
        for label in visit.labels:
            own = NAMES_OF_THINGS.sub("", label)
            english = not HAN.search(label) and re.search("[A-Za-z]{3}", own)
            if english if name.startswith("zh") else HAN.search(label):
                wrong.setdefault(label, name)
    assert not wrong


class Page(HTMLParser):
    """Anchors of a page, and the addresses that it links to or loads."""

    def __init__(self, path: Path):
        super().__init__()
        self.ids, self.links = set(), []
        self.feed(path.read_text("utf8"))

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.ids |= {attrs[k] for k in ("id", "name") if attrs.get(k)}
        self.links += [attrs[k] for k in ("href", "src", "action") if attrs.get(k)]


def test_internal_links_and_anchors_exist(site):
    parsed = {
        p.relative_to(site).as_posix(): Page(p)
        for p in [*site.glob("*.html"), *site.glob("*/*.html")]
    }
    broken = []
    for name, page in parsed.items():
        for link in page.links:
            address = urlsplit(urljoin(f"http://book/{name}", link))
            if address.netloc != "book":
                continue
            target = unquote(address.path).lstrip("/")
            anchor = unquote(address.fragment)
            lost = anchor and target in parsed and anchor not in parsed[target].ids
            if lost or not (site / target).is_file():
                broken.append(f"{name} -> {link}")
    assert not broken


def test_every_image_has_an_alt_text(visits, site):
    wrong = []
    for name in visits:
        for tag in re.findall(r"<img [^>]*>", (site / name).read_text("utf8")):
            alt = re.search(r'alt="([^"]*)"', tag)
            if alt is None or alt[1].endswith((".png", ".svg")) or "No description" in alt[1]:
                wrong.append(f"{name}: {tag}")
    assert not wrong


def test_figure_labels_are_legible_and_in_the_page_language(visits):
    assert not {n: v.figures for n, v in visits.items() if v.figures}


def test_teacher_numbers_match_the_pages(visits, site):
    lang = next(iter(visits))[:2]
    teachers = BeautifulSoup((site / lang / "teachers.html").read_bytes(), "html.parser")
    sums = [0, 0, 0, 0]
    for name in Book(ROOT).chapters:
        visit = visits[f"{lang}/{name}.html"]
        own = [int(re.search(r"(\d+) (?:minutes|分钟)", visit.need)[1]), *visit.tasks]
        message = teachers.select_one(f"#lesson-{name} > span").text
        assert [int(n) for n in re.findall(r"\d+", message)] == [n for n in own if n], name
        sums = [a + b for a, b in zip(sums, own, strict=True)]
    total = teachers.select_one("#syllabus-total").text
    assert [int(n) for n in re.findall(r"\d+", total)] == [*divmod(sums[0], 60), *sums[1:]]


def test_pages_do_not_scroll_horizontally_on_a_phone(visits):
    assert not {n: v.wide for n, v in visits.items() if v.wide}


def test_axe_reports_no_violations_in_either_theme(visits):
    assert not {n: v.violations for n, v in visits.items() if v.violations}
