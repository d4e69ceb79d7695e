"""Test the files and metadata for search engines, messengers, programs and old links."""

from __future__ import annotations

import json
import re
import shutil
import struct
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import urljoin, urlsplit
from xml.etree import ElementTree

import pytest
import yaml
from axe_playwright_python.sync_playwright import Axe
from book_pages import LANGUAGES, NAMES, ROOT
from conftest import serving
from jsonschema import Draft202012Validator

from bookbuild.notebooks import setup_cell
from bookbuild.notebooks.cells import code_cells, output
from bookbuild.notebooks.files import read
from bookbuild.site import redirects
from bookbuild.site.extensions.languages import source
from bookbuild.site.metatags import PICTURE
from bookbuild.site.sphinx_build import build
from bookbuild.source.checkout import Book, BookError
from helpers.verdicts import chinese

BASE = "https://someone.github.io/notes"
VALIDATED = json.loads((ROOT / "book/validated.json").read_text("utf8"))
SHA = "0123456789abcdef0123456789abcdef01234567"


class Head(HTMLParser):
    """Parse the title, metadata, links and structured data of a page."""

    def __init__(self, path: Path):
        super().__init__()
        self.title, self.meta, self.links, self.data = "", {}, {}, []
        self.inside = ""
        self.feed(path.read_text("utf8").partition("</head>")[0])

    def handle_starttag(self, tag, attrs):
        about = dict(attrs)
        self.inside = "data" if about.get("type") == "application/ld+json" else tag
        if tag == "meta" and (name := about.get("name") or about.get("property")):
            self.meta[name] = about["content"]
        elif tag == "link":
            name = about["hreflang"] if about.get("hreflang") else about["rel"]
            self.links[name] = about["href"]

    def handle_data(self, data):
        if self.inside == "title":
            self.title += data
        elif self.inside == "data":
            self.data.append(json.loads(data))
        self.inside = ""


def indexable_pages(site: Path) -> list[Path]:
    """Return the pages that a search engine may list."""
    found = [*site.glob("en/**/*.html"), *site.glob("zh/**/*.html")]
    return [p for p in found if p.name != "search.html"]


@pytest.fixture(scope="session")
def published(toy, tmp_path_factory):
    """Return the toy site with a repository, a base URL and redirects."""
    root = toy.write(tmp_path_factory.mktemp("published"))
    (root / "book/moved.yml").write_text(
        "old: detach\nold#gone: schedule#cosine-decay\n"
        "detach#left: schedule#cosine-decay\nerrors/old-id: errors/no-grad-fn\n"
    )
    (root / "book/validated.json").write_text(
        '{"en/detach": {"cpu": {"date": "2026-01-02", "seconds": 1, "torch": "2.14.1"}}}'
    )
    (root / "book/versions.json").write_text(
        '{"2.11.0": {"chapters": {"detach": "2026-01-01"}, "differs": {}}}'
    )
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment("someone", "notes").items():
            patch.setenv(name, value)
        return build(root, quiet=True)


def environment(owner: str, name: str) -> dict[str, str]:
    """Return the variables that GitHub and the workflow of the pages set in a repository."""
    workflow = yaml.safe_load((ROOT / ".github/workflows/pages.yml").read_text("utf8"))
    job = workflow["jobs"]["build"]
    steps = [step for step in job["steps"] if step.get("run", "").startswith("make book")]
    context = {
        "github.server_url": "https://github.com",
        "github.repository": f"{owner}/{name}",
        "steps.pages.outputs.base_url": f"https://{owner}.github.io/{name}",
    }
    found = {"GITHUB_SHA": SHA} | job["env"] | steps[0]["env"]
    return {
        key: re.sub(r"\$\{\{ (\S+) \}\}", lambda m: context[m[1]], value)
        for key, value in found.items()
    }


# ---------------------------------------------------------------- search engines

# The properties of each schema.org type that the book may use, and those that search engines
# require.
ANY = {"@type", "name", "description", "url", "image"}
WORK = ANY | {"headline", "inLanguage", "isAccessibleForFree", "license", "author", "isPartOf"}
SCHEMA = {
    "TechArticle": (WORK | {"dependencies"}, {"headline", "author", "inLanguage", "description"}),
    "FAQPage": (WORK | {"mainEntity"}, {"mainEntity", "inLanguage"}),
    "Question": (WORK | {"acceptedAnswer"}, {"name", "acceptedAnswer"}),
    "Answer": (WORK | {"text"}, {"text"}),
    "Book": (WORK, {"name"}),
    "Organization": (ANY, {"name"}),
}


def wrong_by_schema(value, where="") -> list[str]:
    """Return violations of schema.org and of the requirements of search engines."""
    if isinstance(value, list):
        return [w for one in value for w in wrong_by_schema(one, where)]
    if not isinstance(value, dict):
        return [] if value or value is False else [f"{where} is empty"]
    kind, rest = value.get("@type"), value.keys() - {"@context"}
    if kind not in SCHEMA:
        return [f"{where}: unknown type {kind}"]
    allowed, needed = SCHEMA[kind]
    wrong = [f"{kind} has no {name}" for name in needed - rest]
    wrong += [f"{kind} may not have {name}" for name in rest - allowed]
    if len(value.get("headline", "")) > 110:
        wrong.append(f"{kind}: headline of more than 110 characters")
    for name in ("url", "image", "license"):
        if name in value and not value[name].startswith("https://"):
            wrong.append(f"{kind}: {name} is no address: {value[name]}")
    return wrong + [w for name in rest for w in wrong_by_schema(value[name], f"{kind}.{name}")]


def test_structured_data_check_reports_errors():
    good = {"@type": "Question", "name": "x", "acceptedAnswer": {"@type": "Answer", "text": "y"}}
    assert wrong_by_schema(good) == []
    assert wrong_by_schema(good | {"acceptedAnswer": {"@type": "Answer"}})
    assert wrong_by_schema(good | {"name": ""})
    assert wrong_by_schema(good | {"steps": 1})
    assert wrong_by_schema(good | {"url": "detach.html"})


def check_heads(site: Path, base: str) -> None:
    titles: dict[tuple[str, str], Path] = {}
    for path in indexable_pages(site):
        where, head = path.relative_to(site), Head(path)
        if "http-equiv" in path.read_text("utf8"):
            continue  # a redirect page
        lang, shown_text = where.parts[0], head.meta["description"]
        assert 0 < len(shown_text) <= 160 or not head.data, where
        for kind, text in (("title", head.title), ("description", shown_text)):
            assert (lang, kind, text) not in titles, (where, titles[lang, kind, text])
            titles[lang, kind, text] = where
        if where.stem in NAMES or len(where.parts) > 2:
            assert head.title.count(BOOK[lang]) == 1, head.title
        alone = len(where.parts) > 2
        kinds = [d["@type"] for d in head.data]
        assert kinds == (["FAQPage"] if where.parts[1] == "errors" else kinds)
        assert not alone or kinds, where
        for data in head.data:
            assert data["@context"] == "https://schema.org"
            assert wrong_by_schema(data) == [], where
            assert data["inLanguage"] == LANGUAGES[lang]
            assert data.get("url") == (f"{base}/{where}" if base else None)
        if not alone:
            assert (path.parent / head.links["alternate"]).is_file(), "no Markdown copy"
        check_addresses(head, where, base)
        assert (path.parent / head.links["apple-touch-icon"]).resolve().is_file()


BOOK = {"en": "Executable PyTorch Notes", "zh": "可执行的 PyTorch 笔记"}


def check_addresses(head: Head, where: Path, base: str) -> None:
    message = {k: v for k, v in head.meta.items() if k.startswith(("og:", "twitter:"))}
    addresses = [*message.values(), *head.links.values()]
    if not base:
        assert not message and not [x for x in addresses if "//" in x], where
        return
    lang, rest = where.parts[0], "/".join(where.parts[1:])
    assert head.links["canonical"] == message["og:url"] == f"{base}/{where}"
    found = {code: head.links[code] for code in ("en", "zh-CN", "x-default")}
    assert found == {
        "en": f"{base}/en/{rest}",
        "zh-CN": f"{base}/zh/{rest}",
        "x-default": f"{base}/en/{rest}",
    }
    assert message["og:title"] and message["og:description"] == head.meta["description"]
    assert message["og:type"] in ("article", "website")
    assert message["og:image"] == f"{base}/social.{lang}.png"
    assert message["og:site_name"] == BOOK[lang]
    assert message["twitter:card"] == "summary_large_image"


def test_unpublished_page_head_contains_no_absolute_address(toy_site):
    check_heads(toy_site, "")
    assert not (toy_site / "sitemap.xml").exists()
    assert "Sitemap" not in (toy_site / "robots.txt").read_text()
    for name in ("llms.txt", "pitfalls.json", "404.html", "index.html"):
        assert "<base" not in (toy_site / name).read_text("utf8")
        assert not re.search(r"https?://(?!www\.w3)", (toy_site / name).read_text("utf8"))


def test_published_page_head_contains_its_addresses(published):
    check_heads(published, BASE)
    kinds = {p.stem: [d["@type"] for d in Head(p).data] for p in indexable_pages(published)}
    assert kinds["detach"] == kinds["schedule"] == kinds["value"] == ["TechArticle"]
    assert kinds["no-grad-fn"] == ["FAQPage"] and kinds["index"] == kinds["errors"] == []


def test_home_title_contains_the_name_once(toy_site):
    for lang, name in BOOK.items():
        title = Head(toy_site / lang / "index.html").title
        assert title.count(name) == 1 and title.startswith(name) and "PyTorch" in title


def test_sitemap_lists_every_existing_page(published):
    tree = ElementTree.parse(published / "sitemap.xml").getroot()
    names = {"s": "http://www.sitemaps.org/schemas/sitemap/0.9"}
    listed = [e.text for e in tree.findall("s:url/s:loc", names)]
    pages = {p for p in indexable_pages(published) if "http-equiv" not in p.read_text("utf8")}
    assert sorted(listed) == sorted(f"{BASE}/{p.relative_to(published)}" for p in pages)
    for entry in tree.findall("s:url", names):
        links = {e.get("hreflang"): e.get("href") for e in entry if e.get("hreflang")}
        assert set(links) == {"en", "zh-CN"} and entry[0].text in links.values()
    robots = (published / "robots.txt").read_text()
    assert "User-agent: *\nAllow: /\n" in robots and f"Sitemap: {BASE}/sitemap.xml\n" in robots


def test_page_404_has_working_links_at_any_depth(toy_site, published):
    text = (published / "404.html").read_text("utf8")
    base = re.search('<base href="([^"]+)">', text)[1]
    assert base == f"{BASE}/" and text.index("<base") < text.index(
        "href=", text.index("<base") + 12
    )
    for where in (toy_site, published):
        text = (where / "404.html").read_text("utf8")
        assert "noindex" in text and "There is no page here" in text and "这里没有页面" in text
        links = re.findall(r'(?:href|action)="(?!https)([^"#]+)', text)
        assert len(links) >= 8
        # The toy book has no page of symptoms.
        lacking = [x for x in links if not (where / x).is_file() and "symptoms" not in x]
        assert not lacking, lacking


def test_published_images_have_the_declared_size_and_are_small():
    for name, size in (
        ("social.en.png", PICTURE),
        ("social.zh.png", PICTURE),
        ("touch-icon.png", (180, 180)),
    ):
        data = (ROOT / "book/_root" / name).read_bytes()
        assert data[:8] == b"\x89PNG\r\n\x1a\n" and struct.unpack(">II", data[16:24]) == size
        assert len(data) < 80_000


def test_entry_page_contains_the_content_of_the_list(toy_site):
    page = (toy_site / "en/errors/no-grad-fn.html").read_text("utf8")
    assert "<h1><code>RuntimeError: element <var>n</var> of tensors does not" in page
    for part in ("Nothing in the loss", "It is the first.", "RuntimeError: no grad", "x &lt; 1"):
        assert part in page
    assert 'href="../detach.html#two-ways-to-cut"' in page
    assert 'href="../errors_autograd.html#no-grad-fn"' in page
    assert 'href="../../zh/errors/no-grad-fn.html"' in page
    assert '<p><a href="../errors.html">' in page
    asked = Head(toy_site / "en/errors/no-grad-fn.html").data[0]["mainEntity"][0]
    assert "loss.backward()" in asked["acceptedAnswer"]["text"]
    assert "href" not in asked["acceptedAnswer"]["text"], "an answer contains a link"
    page = (toy_site / "zh/pitfalls/value.html").read_text("utf8")
    assert "<code>x.detach() * 2</code>" in page and "要保留 <code>x</code> 的&lt;值&gt;" in page


# ---------------------------------------------------------------- Markdown and JSON copies


def outputs(nb) -> list[str]:
    """Return the cells' outputs and errors, without drawings."""
    drawn = [c for c in code_cells(nb) if any(len(o.get("data", ())) > 1 for o in c.outputs)]
    return [output(c) for c in code_cells(nb) if output(c) and c not in drawn]


@pytest.mark.parametrize("lang", LANGUAGES)
def test_markdown_copy_contains_prose_code_and_every_output(site, lang):
    for path in sorted((ROOT / "book" / lang).glob("*.ipynb")):
        nb = read(path)
        twin = site / lang / f"{path.stem}.md"
        if not twin.is_file():
            assert path.stem not in NAMES, path.stem
            continue
        text = twin.read_text("utf8")
        assert text.startswith(nb.cells[0].source.split("\n")[0])
        runs = VALIDATED.get(f"{lang}/{path.stem}", {})
        about = text.split("\n\n")[1]
        assert all(
            f"PyTorch {run['torch']} (" in about.replace("（", " (") for run in runs.values()
        )
        marks = ("# ✗ wrong", "# ✓ right") if lang == "en" else ("# ✗ 错误写法", "# ✓ 正确写法")
        at = 0
        for cell in nb.cells:
            hidden = cell.id == "setup" or "remove-cell" in cell.metadata.get("tags", [])
            if cell.cell_type == "code" and not hidden:
                here = text.find(f"```python\n{cell.source}\n```", at)
                assert here >= at, f"{twin}: {cell.id}"
                at = here
                for tag, mark in zip(("wrong", "right"), marks, strict=True):
                    assert tag not in cell.metadata.get("tags", []) or mark in cell.source
            if cell.cell_type == "code" and output(cell) in outputs(nb):
                shown = output(cell) if lang == "en" else chinese(output(cell))
                here = text.find(f"text\n{shown}\n```", at)
                assert here >= at, f"{twin}: the output of {cell.id}"
                at = here


def test_every_verdict_uses_the_language_of_its_page(site):
    verdict = re.compile(r"^[✓✗] (?:[a-z ]+: |[一-鿿]+：)", re.M)
    begins = {"en": {"✗ not yet: ", "✓ correct: "}, "zh": {"✗ 还不对：", "✓ 正确："}}
    for path in (ROOT / "book/en").glob("*.ipynb"):
        counts = set()
        for lang in LANGUAGES:
            twin = (site / lang / path.with_suffix(".md").name).read_text("utf8")
            shown = verdict.findall(twin)
            assert set(shown) <= begins[lang], f"{lang}/{path.stem}"
            counts.add(len(shown))
        assert len(counts) == 1, path.stem


def test_every_page_has_a_markdown_copy_that_links_to_copies(site):
    for path in [*site.glob("en/*.html"), *site.glob("zh/*.html")]:
        text = path.read_text("utf8")
        if path.name == "search.html" or "http-equiv" in text:
            continue
        twin = path.with_suffix(".md").read_text("utf8")
        assert twin.startswith("# ") and len(twin) > 300, path
        assert not re.search(r"<(?:div|ul|li|span|form|script)\b", twin.partition("```")[0]), path
        for link in re.findall(r"\]\(([\w-]+\.(?:md|html|ipynb))", twin):
            assert (path.parent / link).is_file(), f"{path}: {link}"


def test_llms_txt_lists_every_page_of_the_contents(site):
    lines = (site / "llms.txt").read_text("utf8").splitlines()
    assert lines[0] == "# Executable PyTorch Notes" and lines[2].startswith("> ")
    assert "under PyTorch 2." in lines[4]
    linked = {m[1] for x in lines if (m := re.match(r"- \[.+?\]\(([^)]+)\): .", x))}
    families = [p.stem for p in site.glob("en/errors_*.html")]
    expected = {f"{lang}/{name}.md" for lang in LANGUAGES for name in (*NAMES, *families)}
    assert expected <= {urlsplit(x).path.lstrip("/") for x in linked}
    for link in linked:
        assert (site / link).is_file()


def test_pitfalls_json_matches_its_schema_and_links_to_proofs(site):
    schema = json.loads((site / "pitfalls.schema.json").read_text("utf8"))
    data = json.loads((site / "pitfalls.json").read_text("utf8"))
    Draft202012Validator.check_schema(schema)
    Draft202012Validator(schema).validate(data)
    assert not Draft202012Validator(schema).is_valid(data | {"pitfalls": [{"id": "x"}]})
    found = data["pitfalls"]
    assert len({one["id"] for one in found}) == len(found) > 300
    texts = {}
    for one in found:
        cells = texts.setdefault(one["chapter"], read(Book(ROOT).notebook("en", one["chapter"])))
        cell = next(c for c in cells.cells if c.id == one["proof"]["cell"])
        assert one["proof"]["output"] == output(cell)
        runs = VALIDATED.get(f"en/{one['chapter']}", {})
        assert one["proof"]["torch"] == sorted({run["torch"] for run in runs.values()}), one["id"]
        assert one["since"] or not runs
        for lang in LANGUAGES:
            assert (site / one["address"][lang]).is_file()
            page, _, anchor = one["section"][lang].partition("#")
            key = (lang, page)
            texts[key] = texts.get(key) or (site / page).read_text("utf8")
            assert f'id="{anchor}"' in texts[key], one["section"]


def test_validated_versions_appear_in_all_copies(published):
    about = (published / "en/detach.md").read_text("utf8").split("\n\n")[1]
    assert "under PyTorch 2.14.1 (CPU, 2026-01-02)" in about and "2.11.0" in about
    assert "under PyTorch" not in (published / "en/schedule.md").read_text("utf8")
    assert "by a run under PyTorch 2.14.1 and" in (published / "llms.txt").read_text("utf8")
    (one,) = json.loads((published / "pitfalls.json").read_text("utf8"))["pitfalls"]
    assert (one["since"], one["proof"]["torch"]) == ("2.11.0", ["2.14.1"])
    assert one["address"]["zh"] == f"{BASE}/zh/pitfalls/value.html"


# ---------------------------------------------------------------- entry pages


def test_every_message_and_pitfall_has_a_page(site):
    check_heads(site, "")
    gone = {old for old in redirects.moved.load(Book(ROOT)) if "#" not in old}
    for lang in LANGUAGES:
        for kind, pattern in (("errors", "errors_*.html"), ("pitfalls", "pitfalls.html")):
            listed = "".join(p.read_text("utf8") for p in (site / lang).glob(pattern))
            names = re.findall(rf'href="{kind}/([\w-]+)\.html"', listed)
            assert len(names) > 300
            there = {p.stem for p in (site / lang / kind).iterdir()}
            assert there - {n.name for n in map(Path, gone) if n.parent.name == kind} == set(names)


def test_entry_pages_are_small_and_their_links_exist(site):
    anchors: dict[str, set[str]] = {}
    for path in site.glob("*/*/*.html"):
        where = path.relative_to(site).as_posix()
        text = path.read_text("utf8")
        assert len(text) < 28_000, f"{where}: {len(text)} characters"
        for link in re.findall(r'(?:href|action)="([^"]+)"', text):
            address = urlsplit(urljoin(f"http://book/{where}", unescape(link)))
            target = address.path.lstrip("/")
            assert (site / target).is_file(), f"{where} -> {link}"
            if address.fragment and target not in anchors:
                page = (site / target).read_text("utf8")
                anchors[target] = set(re.findall(r'id="([^"]+)"', page))
            assert not address.fragment or address.fragment in anchors[target], f"{where} -> {link}"


AXE = Axe()


@pytest.mark.parametrize("lang", LANGUAGES)
@pytest.mark.parametrize("kind", ["errors", "pitfalls"])
def test_entry_page_is_accessible_on_a_phone_in_both_themes(phone, url, site, lang, kind):
    largest = max((site / lang / kind).iterdir(), key=lambda p: p.stat().st_size)
    for scheme in ("light", "dark"):
        phone.emulate_media(color_scheme=scheme)
        phone.goto(f"{url}/{lang}/{kind}/{largest.name}")
        phone.evaluate("document.querySelectorAll('details').forEach(e => e.open = true)")
        phone.evaluate(AXE.axe_script)
        found = phone.evaluate("axe.run().then(r => r.violations)")
        assert not [(v["id"], v["nodes"][0]["html"]) for v in found]
        for width in (320, 375):
            phone.set_viewport_size({"width": width, "height": 720})
            assert phone.evaluate("document.documentElement.scrollWidth") <= width


def test_page_404_is_accessible_in_both_themes(phone, url):
    for scheme in ("light", "dark"):
        phone.emulate_media(color_scheme=scheme)
        phone.goto(f"{url}/404.html")
        phone.evaluate(AXE.axe_script)
        found = phone.evaluate("axe.run().then(r => r.violations)")
        assert not [(v["id"], v["nodes"][0]["html"]) for v in found]


# ---------------------------------------------------------------- forks


def test_fork_links_point_to_existing_files_of_the_fork(published):
    """Check the launch, edit, issue and download links of every page."""
    root, seen = published.parents[1], set()
    for path in published.glob("*/*.html"):
        text = path.read_text("utf8")
        if "http-equiv" in text:
            continue
        lang, page = path.parent.name, path.stem
        notebook = f"book/{lang}/{page}.ipynb"
        for href in re.findall(r'<a href="([^"]+)"', text):
            link = unescape(href)
            where = f"{lang}/{page}: {link}"
            if "colab.research" in link:
                repository, _, file = link.partition("/blob/notebooks/")
                assert repository.endswith("/github/someone/notes") and file == notebook, where
            elif "mybinder" in link:
                assert "/gh/someone/notes/notebooks?" in link and link.endswith(notebook), where
            elif "kaggle.com" in link:
                assert link.endswith(f"usercontent.com/someone/notes/notebooks/{notebook}"), where
            elif "/edit/" in link:
                repository, _, file = link.partition("/edit/main/")
                assert repository == "https://github.com/someone/notes", where
                assert (root / file).is_file(), where
            elif "_sources/" in link:
                assert (path.parent / link).is_file(), where
            elif link.startswith("http"):
                assert link.startswith("https://github.com/someone/notes"), where
            else:
                continue
            seen.add((page, re.sub(r"someone.*|_sources.*", "", link)))
    kinds = {kind for page, kind in seen if page == "detach"}
    assert len(kinds) == 5 and "https://mybinder.org/v2/gh/" in kinds, kinds
    stamped = setup_cell.source("https://github.com/someone/notes", SHA)
    for lang in LANGUAGES:
        for folder in (published / lang / "_sources", root / "_build/notebooks" / lang):
            sources = [cell.source for cell in read(folder / "detach.ipynb").cells]
            assert stamped in sources and "git+https" in stamped and SHA in stamped


def test_edit_links_point_to_existing_files():
    app = SimpleNamespace(srcdir=ROOT / "book/en")
    app.env = SimpleNamespace(
        doc2path=lambda page: next((ROOT / "book/en").glob(f"{page}.*")).as_posix()
    )
    families = [path.stem for path in (ROOT / "book/en").glob("errors_*.md")]
    opened = {page: source(app, page) for page in ("index", *NAMES, *families)}
    assert opened["detach"] == "book/text/detach.md"
    assert not [page for page, file in opened.items() if file and not (ROOT / file).is_file()]


# ---------------------------------------------------------------- redirects


@pytest.fixture(scope="module")
def published_url(published):
    yield from serving(published)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("old.html", "detach.html"),
        ("old.html#two-ways-to-cut", "detach.html#two-ways-to-cut"),
        ("old.html#gone", "schedule.html#cosine-decay"),
        ("detach.html#left", "schedule.html#cosine-decay"),
        ("detach.html#two-ways-to-cut", "detach.html#two-ways-to-cut"),
        ("errors/old-id.html", "errors/no-grad-fn.html"),
    ],
)
def test_old_address_redirects_to_the_new_one(page, published_url, old, new):
    page.goto(f"{published_url}/zh/{old}")
    page.wait_for_url(f"{published_url}/zh/{new}")
    assert page.locator("h1").count() == 1


def test_old_page_without_scripts_redirects(published):
    for name, new in (("old", "detach.html"), ("errors/old-id", "../errors/no-grad-fn.html")):
        text = (published / f"en/{name}.html").read_text("utf8")
        assert f'content="0; url={new}"' in text and f'<a href="{new}">' in text
        assert f'rel="canonical" href="{new}"' in text
    assert "location.replace" not in (published / "en/schedule.html").read_text("utf8")
    assert "old" not in (published / "sitemap.xml").read_text()


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("detach: schedule", "detach is still there"),
        ("detach#two-ways-to-cut: schedule", "detach#two-ways-to-cut is still there"),
        ("old: nowhere", "nowhere is not there"),
        ("old: detach#nowhere", "detach#nowhere is not there"),
        ("old: older\nolder: old", "old: leads back to itself: old → older"),
        ("old#part: detach", "old was removed: add a line for the whole page"),
        ("old: [detach]", "expected lines such as"),
        ("old: https://elsewhere", "expected lines such as"),
    ],
)
def test_invalid_redirect_stops_the_build(toy_site, tmp_path, table, message):
    site = shutil.copytree(toy_site, tmp_path / "site")
    (tmp_path / "book").mkdir()
    (tmp_path / "book/moved.yml").write_text(table)
    with pytest.raises(BookError, match=re.escape(message)):
        redirects.write(Book(tmp_path), site)
