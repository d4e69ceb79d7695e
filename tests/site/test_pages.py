"""The book in a real browser: what readers see, press and type, in both languages."""

from __future__ import annotations

import gzip
import re
import statistics
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

import nbformat
import pytest
import yaml

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


@dataclass
class Visit:
    """What happened when a page was opened, once for each page."""

    requests: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    weight: int = 0
    lang: str = ""
    labels: list[str] = field(default_factory=list)


@pytest.fixture(scope="session")
def pages(site) -> list[str]:
    """Every page of both languages, such as `en/detach.html`."""
    found = sorted(f"{p.parent.name}/{p.name}" for p in site.glob("*/*.html"))
    assert {f"{lang}/{name}.html" for lang in LANGUAGES for name in NAMES} <= set(found)
    return found


@pytest.fixture(scope="session")
def visits(contexts, url, pages) -> dict[str, Visit]:
    """Open every page once."""
    made = {}
    for name in pages:
        visit = made[name] = Visit()
        opened = contexts["desktop"].new_page()
        opened.on("request", lambda r, v=visit: v.requests.append(r.url))
        opened.on("pageerror", lambda e, v=visit: v.errors.append(str(e)))
        opened.on(
            "console", lambda m, v=visit: v.errors.append(m.text) if m.type == "error" else None
        )
        answers = []
        opened.on("response", lambda answer, all=answers: all.append(answer))
        opened.goto(f"{url}/{name}", wait_until="networkidle")
        visit.weight = sum(len(gzip.compress(a.body(), 6)) for a in answers if a.status == 200)
        visit.lang = opened.locator("html").get_attribute("lang")
        visit.labels = opened.evaluate(LABELS)
        opened.close()
    return made


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


def test_no_page_scrolls_sideways_on_a_phone(phone, url, pages):
    wide = {}
    for name in pages:
        phone.goto(f"{url}/{name}")
        for fold in phone.locator("details:not(.menu)").all():
            fold.evaluate("e => e.open = true")
        width = phone.evaluate("document.documentElement.scrollWidth")
        if width > 375:
            wide[name] = width
    assert not wide


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(contexts, url, pages, scheme):
    from axe_playwright_python.sync_playwright import Axe

    opened, axe, found = contexts["desktop"].new_page(), Axe(), {}
    opened.emulate_media(color_scheme=scheme)
    rules = None if scheme == "light" else {"runOnly": ["color-contrast"]}  # all that differs
    try:
        for name in pages:
            opened.goto(f"{url}/{name}")
            assert opened.evaluate("document.documentElement.dataset.theme") == scheme
            opened.evaluate(THIN)
            for violation in axe.run(opened, options=rules).response["violations"]:
                nodes = [n["html"][:120] for n in violation["nodes"]]
                found.setdefault(violation["id"], {}).setdefault(name, nodes[:3])
    finally:
        opened.close()
    assert not found


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
            page.wait_for_timeout(30)
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
    field = page.locator("#error-search")
    shown = "all => all.filter(e => e.offsetParent).map(e => e.dataset.error)"
    for error in errors:
        for pasted in (error, f'Traceback (most recent call last):\n  File "train.py"\n{error}'):
            field.fill(pasted)
            page.wait_for_timeout(20)
            assert items.evaluate_all(shown)[:1] == [error], f"pasted {pasted!r}"
    field.fill("KeyboardInterrupt: nobody wrote about this zymurgy")
    page.wait_for_timeout(20)
    assert items.evaluate_all(shown) == []
    field.fill("")
    page.wait_for_timeout(20)
    assert len(items.evaluate_all(shown)) == len(errors)


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
    menu = page.locator("details.download-buttons")
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
