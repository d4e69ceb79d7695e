"""The book in a real browser: what readers see, press and type, in both languages."""

from __future__ import annotations

import gzip
import os
import re
import statistics
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

import nbformat
import pytest
import yaml
from axe_playwright_python.sync_playwright import Axe

ROOT = Path(__file__).resolve().parents[2]
TOC = yaml.safe_load((ROOT / "_toc.yml").read_text("utf8"))
NAMES = [chapter["file"] for part in TOC["parts"] for chapter in part["chapters"]]
LANGUAGES = {"en": "en", "zh": "zh-CN"}
HAN = re.compile("[\u3400-\u9fff]")

# What the interface says, and not what the chapters say.
LABELS = """() => {
  const texts = [];
  const note = (element, text) => {
    if (text && text.trim() && element.closest("[lang]") === document.documentElement)
      texts.push(text.trim().replace(/\\s+/g, " "));
  };
  for (const name of ["aria-label", "title", "placeholder", "data-bs-title", "data-toggle-hint"])
    for (const e of document.querySelectorAll(`[${name}]`)) note(e, e.getAttribute(name));
  for (const e of document.querySelectorAll(
    "button, summary, label, .prev-next-area small, .page-toc-title, .caption-text, .part-name," +
    ".admonition-title, .skip-link, .bd-footer-content, .menu small, .book-brand, .book-name"))
    note(e, e.textContent);
  return texts;
}"""
NAMES_OF_THINGS = re.compile(r"\w+Error|\.ipynb|\.md|\.pdf|Colab|Binder|PyTorch|CC BY|MIT")


# Unfold everything, then leave out what axe has seen on this page: a token of the same class in the
# same kind of block, an element built of the same tags and classes in the same place.
THIN = """() => {
  for (const fold of document.querySelectorAll("article details")) fold.open = true;
  const seen = new Set();
  const first = (key) => !seen.has(key) && seen.add(key);
  const name = (e) => e.localName + "." + e.getAttribute("class");
  const place = (e) => e.matches("article") ? "" : name(e) + ">" + place(e.parentElement);
  for (const token of document.querySelectorAll("article :is(.highlight, .sig) span"))
    if (token.isConnected && !first(place(token))) token.replaceWith(token.textContent);
  for (const formula of [...document.querySelectorAll(".katex")].slice(2)) formula.remove();
  const parts = "article :is(div.cell, dl.py, pre, p:not(th *), li, tr)";
  for (const part of document.querySelectorAll(parts))
    if (part.isConnected) {
      const inside = new Set([...part.querySelectorAll("*")].map(name));
      if (!first(place(part) + [...inside].sort())) part.remove();
    }
}"""

# Phones, and what makes their text wider or narrower than on the machine that runs the test.
PHONES = (320, 360, 375, 390, 414)
LETTERS = {
    "as installed": "",
    "narrow": "* { font-family: 'Liberation Sans Narrow', 'Noto Sans CJK SC' !important }",
    "spaced": "* { letter-spacing: .12em !important }",  # what WCAG 1.4.12 lets a reader set
}
AXE = Axe()


@dataclass
class Visit:
    """What happened when a page was opened, once for each page."""

    requests: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    weight: int = 0
    lang: str = ""
    labels: list[str] = field(default_factory=list)
    wide: dict[str, int] = field(default_factory=dict)
    violations: dict[str, list[str]] = field(default_factory=dict)


@pytest.fixture(scope="session")
def pages(site) -> list[str]:
    """Every page of both languages, such as `en/detach.html`."""
    found = sorted(f"{p.parent.name}/{p.name}" for p in site.glob("*/*.html"))
    assert {f"{lang}/{name}.html" for lang in LANGUAGES for name in NAMES} <= set(found)
    return found


@pytest.fixture(scope="module", params=LANGUAGES)
def visits(request, contexts, url, pages) -> dict[str, Visit]:
    """Open every page of a language once, and note all that the tests ask about it."""
    sizes: dict[str, int] = {}
    return {
        name: visit(contexts["desktop"], f"{url}/{name}", sizes)
        for name in pages
        if name.startswith(f"{request.param}/")
    }


def visit(context, address: str, sizes: dict[str, int]) -> Visit:
    """Open a page; `sizes` keeps what a file that many pages load weighs, gzipped."""
    found, answers = Visit(), []
    opened = context.new_page()
    opened.on("request", lambda r: found.requests.append(r.url))
    opened.on("pageerror", lambda e: found.errors.append(str(e)))
    opened.on("console", lambda m: m.type == "error" and found.errors.append(m.text))
    opened.on("response", lambda answer: answers.append(answer))
    opened.goto(address)
    found.lang = opened.locator("html").get_attribute("lang")
    found.labels = opened.evaluate(LABELS)
    found.wide = widths(opened)
    found.violations = violations(opened)
    opened.wait_for_load_state("networkidle")
    for answer in (a for a in answers if a.status == 200):
        if answer.url not in sizes:
            sizes[answer.url] = len(gzip.compress(answer.body(), 6))
        found.weight += sizes[answer.url]
    opened.close()
    return found


def widths(opened) -> dict[str, int]:
    """How wide the unfolded page is on each phone where it is wider than the phone."""
    found, desktop = {}, opened.viewport_size
    opened.evaluate("document.querySelectorAll('article details').forEach(e => e.open = true)")
    style = opened.evaluate_handle("document.head.appendChild(document.createElement('style'))")
    for letters, css in LETTERS.items():
        style.evaluate("(style, css) => { style.textContent = css }", css)
        for phone in PHONES if not css else PHONES[:1]:
            opened.set_viewport_size({"width": phone, "height": 720})
            width = opened.evaluate("document.documentElement.scrollWidth")
            if width > phone:
                found[f"{phone} px, {letters}"] = width
    style.evaluate("style => style.remove()")
    opened.set_viewport_size(desktop)
    return found


def violations(opened) -> dict[str, list[str]]:
    """What axe finds in the light theme, and in the dark one, where only contrast can differ."""
    opened.evaluate(THIN)
    opened.evaluate(AXE.axe_script)
    found = {}
    for scheme in ("light", "dark"):
        opened.emulate_media(color_scheme=scheme)
        opened.wait_for_function(f"document.documentElement.dataset.theme === '{scheme}'")
        options = {"resultTypes": ["violations"]}
        if scheme == "dark":
            options["runOnly"] = ["color-contrast"]
        for violation in opened.evaluate("o => axe.run(o).then(r => r.violations)", options):
            nodes = [n["html"][:120] for n in violation["nodes"]]
            found[f"{violation['id']}, {scheme}"] = nodes[:3]
    return found


# ---------------------------------------------------------------- every page


def test_no_page_asks_another_host(visits, url):
    foreign = {
        n: [r for r in v.requests if not r.startswith((url, "data:"))] for n, v in visits.items()
    }
    assert not {n: r for n, r in foreign.items() if r}


def test_no_page_has_an_error(visits):
    assert not {n: v.errors for n, v in visits.items() if v.errors}


def test_pages_are_light(visits):
    weights = {n: v.weight for n, v in visits.items()}
    assert statistics.median(weights.values()) <= 250_000
    assert not {n: w for n, w in weights.items() if w > 400_000}
    requests = {n: len(v.requests) for n, v in visits.items()}
    assert not {n: r for n, r in requests.items() if r > 25}


def test_each_page_says_its_language(visits):
    assert not {n: v.lang for n, v in visits.items() if v.lang != LANGUAGES[n[:2]]}


def test_the_interface_speaks_the_language_of_the_page(visits):
    wrong = {}
    for name, visit in visits.items():
        for label in visit.labels:
            own = NAMES_OF_THINGS.sub("", label)
            english = not HAN.search(label) and re.search("[A-Za-z]{3}", own)
            if english if name.startswith("zh") else HAN.search(label):
                wrong.setdefault(label, name)
    assert not wrong


class Page(HTMLParser):
    """The anchors of a page, and what it links to or loads."""

    def __init__(self, path: Path):
        super().__init__()
        self.ids, self.links = set(), []
        self.feed(path.read_text("utf8"))

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.ids |= {attrs[k] for k in ("id", "name") if attrs.get(k)}
        self.links += [attrs[k] for k in ("href", "src", "action") if attrs.get(k)]


def test_no_internal_link_or_anchor_is_broken(site):
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


def test_every_image_of_a_page_has_a_text_of_its_own(visits, site):
    wrong = []
    for name in visits:
        for tag in re.findall(r"<img [^>]*>", (site / name).read_text("utf8")):
            alt = re.search(r'alt="([^"]*)"', tag)
            if alt is None or alt[1].endswith((".png", ".svg")) or "No description" in alt[1]:
                wrong.append(f"{name}: {tag}")
    assert not wrong


def test_no_page_scrolls_sideways_on_a_phone(visits):
    assert not {n: v.wide for n, v in visits.items() if v.wide}


def test_axe_finds_nothing_in_either_theme(visits):
    assert not {n: v.violations for n, v in visits.items() if v.violations}


# What of the header is not on the screen, or lies under something else.
HIDDEN = """() => {
  const hidden = (e) => {
    const box = e.getBoundingClientRect();
    const [x, y] = [box.left + box.width / 2, box.top + box.height / 2];
    return box.left < 0 || box.right > innerWidth || box.width < 24 || box.height < 24
      || !e.contains(document.elementFromPoint(x, y));
  };
  const controls = document.querySelectorAll(
    ".bd-header-article :is(.btn, .language-switch), details.menu[open] :is(li > *)");
  return [...controls].filter(hidden).map((e) => e.outerHTML.slice(0, 120));
}"""
CONTROLS = ".primary-toggle, .language-switch, .theme-switch-button, .search-button"


@pytest.mark.parametrize("where", ["url", "repository_url"])
@pytest.mark.parametrize("fonts", ["narrow", "wide"])
def test_the_header_fits_phones_whatever_the_fonts_and_the_repository(
    request, with_fonts, fonts, where
):
    """All of it can be seen and pressed, and what its menu holds."""
    address, launched, wrong = request.getfixturevalue(where), with_fonts(fonts), {}
    opened = launched.new_page(viewport={"width": PHONES[0], "height": 720})
    for lang in LANGUAGES:
        opened.goto(f"{address}/{lang}/detach.html")
        menu = opened.locator("details.menu")
        assert menu.locator("ul").count() == 3 or where == "url"
        assert opened.locator(f".bd-header-article :is({CONTROLS}, .secondary-toggle)").count() == 5
        for letters in ("as installed", "spaced"):
            opened.add_style_tag(content=LETTERS[letters] or "/* none */")
            for phone in PHONES:
                opened.set_viewport_size({"width": phone, "height": 720})
                menu.locator("summary").click()
                hidden = opened.evaluate(HIDDEN)
                width = opened.evaluate("document.documentElement.scrollWidth")
                if hidden or width > phone:
                    wrong[lang, letters, phone] = width, hidden
                menu.locator("summary").click()
    launched.close()
    assert not wrong


def test_the_narrow_and_the_wide_fonts_differ(with_fonts):
    """Else the tests above would prove less than they say."""
    lengths = []
    for fonts in ("narrow", "wide"):
        launched = with_fonts(fonts)
        opened = launched.new_page()
        opened.set_content("<span style='font: 20px sans-serif'>Executable PyTorch Notes</span>")
        lengths.append(opened.locator("span").bounding_box()["width"])
        launched.close()
    if lengths[1] < 1.05 * lengths[0] and os.environ.get("REQUIRE_BROWSER") != "1":
        pytest.skip("the fonts of tests/site/fonts are not installed")
    assert lengths[1] >= 1.05 * lengths[0]


# ---------------------------------------------------------------- two languages


@pytest.mark.parametrize("lang", LANGUAGES)
def test_the_home_page_lists_every_chapter_with_its_line(page, url, lang):
    page.goto(f"{url}/{lang}/index.html")
    items = page.locator("ul.chapters > li")
    assert items.count() == len(NAMES)
    for name, item in zip(NAMES, items.all(), strict=True):
        assert item.locator("a").get_attribute("href") == f"{name}.html"
        assert len(item.locator(".summary").inner_text()) > 4
        notebook = ROOT / f"book/{lang}/{name}.ipynb"
        if notebook.exists():
            cells = nbformat.read(notebook, 4).cells
            title = next(line[2:] for line in cells[0].source.splitlines() if line.startswith("# "))
            assert item.locator("a").inner_text() == title.replace("`", "")


@pytest.mark.parametrize(("start", "goal"), [("en", "zh"), ("zh", "en")])
def test_the_switch_keeps_page_and_section(page, url, start, goal):
    page.goto(f"{url}/{start}/detach.html")
    sections = page.locator("main section[id]").evaluate_all("all => all.map(s => s.id)")
    chosen = sections[3]
    page.goto(f"{url}/{start}/detach.html#{chosen}")
    page.click("a.language-switch")
    page.wait_for_url(f"{url}/{goal}/detach.html#{chosen}")
    assert page.locator("html").get_attribute("lang") == LANGUAGES[goal]
    # without an anchor: where one is reading
    page.goto(f"{url}/{start}/detach.html")
    page.evaluate(
        "id => document.getElementById(id).scrollIntoView({behavior: 'instant'})", sections[5]
    )
    page.click("a.language-switch")
    page.wait_for_url(f"{url}/{goal}/detach.html#{sections[5]}")
    top = page.locator(f"[id='{sections[5]}']").bounding_box()["y"]
    assert -5 <= top <= 300


def test_the_root_sends_readers_by_browser_and_by_choice(browser, url, site):
    for locale, lang in (("zh-CN", "zh"), ("zh-TW", "zh"), ("fr-FR", "en"), ("en-GB", "en")):
        context = browser.new_context(locale=locale)
        page = context.new_page()
        for address in (url, site.as_uri()):
            page.goto(f"{address}/index.html")
            page.wait_for_url(f"{address}/{lang}/index.html")
        context.close()
    context = browser.new_context(locale="zh-CN")
    page = context.new_page()
    page.goto(f"{url}/index.html")
    page.wait_for_url(f"{url}/zh/index.html")
    page.click("a.language-switch")
    page.wait_for_url(f"{url}/en/index.html")
    page.goto(f"{url}/index.html")
    page.wait_for_url(f"{url}/en/index.html")
    context.close()


def test_the_root_works_without_scripts(browser, url):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{url}/index.html")
    page.click("text=阅读中文版")
    page.wait_for_url(f"{url}/zh/index.html")
    context.close()


# ---------------------------------------------------------------- search


def search(page, words: str) -> list[str]:
    """Type words into the field that the button opens; the pages found, best first."""
    page.click(".book-search")
    field = page.locator("#pst-search-dialog input")
    field.fill(words)
    field.press("Enter")
    page.wait_for_function(
        "() => document.querySelector('#search-results h2') && typeof Search !== 'undefined'"
        " && document.querySelector('#search-results p.search-summary')"
        "?.textContent.trim() && !/^(正在|Searching)/.test("
        "document.querySelector('#search-results h2').textContent)"
    )
    links = page.locator("#search-results ul.search a").evaluate_all("all => all.map(a => a.href)")
    return [urlsplit(link).path.rsplit("/", 1)[1].removesuffix(".html") for link in links]


@pytest.mark.parametrize(
    ("lang", "words", "chapter"),
    [
        ("zh", "显存", "memory_caching"),
        ("zh", "分离", "detach"),
        ("zh", "交叉熵", "losses"),
        ("zh", "计算图", "detach"),
        ("zh", "反向传播", "detach"),
        ("zh", "副本", "data_parallel"),
        ("zh", "损失函数", "losses"),
        ("zh", "detach", "detach"),
        ("en", "cross-entropy", "losses"),
        ("en", "detached", "detach"),
        ("en", "allocator", "memory_caching"),
        ("en", "replica", "data_parallel"),
    ],
)
def test_a_word_typed_into_the_search_finds_its_chapter(page, url, lang, words, chapter):
    page.goto(f"{url}/{lang}/index.html")
    assert chapter in search(page, words)


@pytest.mark.parametrize(
    ("lang", "words"), [("zh", "榴莲"), ("zh", "望远镜"), ("zh", "量子纠缠"), ("en", "zymurgy")]
)
def test_a_word_that_the_book_lacks_finds_nothing(page, url, lang, words):
    page.goto(f"{url}/{lang}/detach.html")
    assert search(page, words) == []


def test_the_search_works_from_disk(page, site):
    errors = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda m: errors.append(m.text) if m.type == "error" else None)
    page.goto(f"{site.as_uri()}/zh/index.html")
    assert "detach" in search(page, "计算图")
    assert not errors


# ---------------------------------------------------------------- on the page


@pytest.mark.parametrize("lang", LANGUAGES)
def test_explorers_answer_to_keyboard_and_mouse(page, url, site, pages, lang):
    seen = set()
    for name in (n for n in pages if n.startswith(lang)):
        tags = set(re.findall(r"<([a-z]+(?:-[a-z]+)+)[ >]", (site / name).read_text("utf8")))
        for tag in tags:
            if tag in seen:
                continue
            page.goto(f"{url}/{name}")
            for number in range(page.locator(f"main {tag}").count()):
                seen.add(tag)
                element = page.locator(f"main {tag}").nth(number)
                for how in ("keyboard", "mouse"):
                    assert operate(page, element, how), f"{name}: {tag} ignores the {how}"
                    said = element.locator("[aria-live]").first.inner_text()
                    assert bool(HAN.search(said)) == (lang == "zh"), f"{name}: {tag} says {said!r}"
    assert seen, "the book has no explorer"


KEYS = {
    "range": ["ArrowRight", "ArrowLeft"],
    "number": ["ArrowUp", "ArrowDown"],
    "select-one": ["ArrowDown", "ArrowUp"],
    "radio": ["ArrowDown"],
    "checkbox": ["Space"],
}


def operate(page, element, how: str) -> bool:
    """Use the controls of an explorer until its status says something else."""
    status = element.locator("[aria-live]").first
    before = status.inner_text()
    for control in element.locator("button, input, select").all():
        for act in actions(page, control, how):
            if not control.is_enabled():
                break
            act()
            for wait in (0, 30):
                page.wait_for_timeout(wait)
                if status.inner_text() != before:
                    return True
    return False


def actions(page, control, how: str) -> list:
    """What a reader can do with a control."""
    kind = control.evaluate("e => e.localName === 'input' ? e.type : e.type || e.localName")
    if how == "keyboard":
        return [lambda key=key: control.press(key) for key in KEYS.get(kind, ["Enter"])]
    if kind == "range":
        sides = (0.95, 0.05)
        box = control.bounding_box()
        height = box["height"] / 2
        spots = [{"x": box["width"] * side, "y": height} for side in sides]
        return [lambda spot=spot: control.click(position=spot) for spot in spots]
    if kind == "select-one":
        values = control.locator("option").evaluate_all("all => all.map(o => o.value)")
        return [lambda value=value: control.select_option(value) for value in values]
    return [control.click]


@pytest.mark.parametrize("lang", LANGUAGES)
def test_a_solution_unfolds_by_keyboard(page, url, lang):
    page.goto(f"{url}/{lang}/detach.html")
    solution = page.locator(".tag_solution details").first
    code = solution.locator("pre").first
    assert not code.is_visible()
    assert (
        solution.locator("summary").inner_text()
        == {
            "en": "Show a solution",
            "zh": "查看参考答案",
        }[lang]
    )
    solution.locator("summary").focus()
    page.keyboard.press("Enter")
    assert code.is_visible()


@pytest.mark.parametrize("lang", LANGUAGES)
def test_a_pasted_error_finds_itself_first(page, url, lang):
    page.goto(f"{url}/{lang}/errors.html")
    items = page.locator("li[data-error]")
    errors = items.evaluate_all("all => all.map(e => e.dataset.error)")
    assert errors, "the book raises no error"
    # what stays in sight after each text, in the order in which it stands there
    paste = """texts => texts.map(text => {
      const field = document.getElementById("error-search");
      field.value = text;
      field.dispatchEvent(new Event("input"));
      return [...document.querySelectorAll("li[data-error]")]
        .filter(e => e.offsetParent).map(e => e.dataset.error);
    })"""
    traceback = 'Traceback (most recent call last):\n  File "train.py"\n'
    pasted = [text for error in errors for text in (error, traceback + error)]
    for text, found in zip(pasted, page.evaluate(paste, pasted), strict=True):
        assert found[:1] == [text.removeprefix(traceback)], f"pasted {text!r}"
    other = "KeyboardInterrupt: nobody wrote about this zymurgy"
    nothing, everything = page.evaluate(paste, [other, ""])
    assert nothing == []
    assert sorted(everything) == sorted(errors)


@pytest.mark.parametrize("lang", LANGUAGES)
def test_an_error_pasted_on_the_home_page_is_explained(page, url, lang):
    error = "RuntimeError: element 0 of tensors does not require grad and does not have a grad_fn"
    page.goto(f"{url}/{lang}/index.html")
    page.fill("#pasted-error", error)
    page.press("#pasted-error", "Enter")
    page.wait_for_url("**/errors.html?q=*")
    shown = page.locator("li[data-error]").evaluate_all(
        "all => all.filter(e => e.offsetParent).map(e => e.dataset.error)"
    )
    assert shown[:1] == [error]


def test_the_theme_is_kept_and_follows_the_system_at_first(browser, url):
    context = browser.new_context(color_scheme="dark")
    page = context.new_page()
    theme = "document.documentElement.dataset.theme"
    page.goto(f"{url}/en/index.html")
    assert page.evaluate(theme) == "dark"
    page.click(".theme-switch-button")
    page.wait_for_function(f"{theme} === 'light'")
    page.goto(f"{url}/en/detach.html")
    assert page.evaluate(theme) == "light"
    context.close()


def test_menus_of_the_header_open_and_close_by_keyboard(page, url):
    page.goto(f"{url}/en/detach.html")
    menu = page.locator("details.menu")
    menu.locator("summary").focus()
    page.keyboard.press("Enter")
    assert menu.locator("a").first.is_visible()
    page.keyboard.press("Escape")
    assert not menu.locator("a").first.is_visible()


def test_on_a_phone_the_chapters_open_from_the_menu(phone, url):
    phone.goto(f"{url}/zh/index.html")
    phone.click(".primary-toggle")
    link = phone.locator("#pst-primary-sidebar-modal a", has_text="detach").first
    link.click()
    phone.wait_for_url("**/zh/detach.html")
