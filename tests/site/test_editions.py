"""Test the zip, PDF and EPUB editions, and their links on the home pages."""

from __future__ import annotations

import email
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from xml.etree import ElementTree

import nbformat
import pytest
from book_pages import ROOT
from bs4 import BeautifulSoup

from bookbuild.cli import main
from bookbuild.commands.build import offer
from bookbuild.editions import edition, epub, pdf
from bookbuild.editions.edition import Edition
from bookbuild.site import helpers_wheel
from bookbuild.site.sphinx_build import build
from bookbuild.source.checkout import LANGUAGES, Book, BookError

pytestmark = pytest.mark.rest

XHTML = "{http://www.w3.org/1999/xhtml}"
EPUBCHECK = Path("/usr/share/java/epubcheck.jar")
PREDICT = """
<div class="predict" role="group" data-cell="value">
<p><strong>Predict.</strong> What comes of it?</p>
<details class="no"><summary>Nothing</summary><p><strong>✗ No.</strong> Two.</p></details>
<details class="yes"><summary><code>2.0</code></summary><p><strong>✓ Yes.</strong> Once two.</p>
</details></div>"""


@pytest.fixture(scope="module")
def book(toy, tmp_path_factory) -> Book:
    """Return the built toy book with a question and the files from which its wheel is made."""
    root = toy.write(tmp_path_factory.mktemp("along") / "book")
    for lang in LANGUAGES:
        path = root / f"book/{lang}/detach.ipynb"
        notebook = nbformat.read(path, 4)
        place = [cell.id for cell in notebook.cells].index("value")
        notebook.cells.insert(place, nbformat.v4.new_markdown_cell(PREDICT, id="asked"))
        nbformat.write(notebook, path)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, root)
    shutil.copytree(ROOT / "src", root / "src", ignore=shutil.ignore_patterns("__pycache__"))
    build(root, quiet=True)
    return Book(root)


@pytest.fixture
def built(book, tmp_path) -> Path:
    return Path(shutil.copytree(book.root / "_build/site", tmp_path / "site"))


# ---------------------------------------------------------------- static pages


@pytest.mark.parametrize("base", ["", "https://someone.example/notes"])
def test_still_page_contains_no_interactive_elements(book, built, base):
    (page,) = (p for p in Edition(book, built, "en", base).pages(still=True) if p.name == "detach")
    text = page.html()
    soup = BeautifulSoup(text, "html.parser")
    assert not soup.select("details, summary, script, button, .headerlink, toy-explorer")
    assert [li.get_text() for li in soup.select(".predict li")][:2] == ["Nothing", "2.0"]
    key = soup.find_all("section")[-1]
    assert key["class"] == ["key"] and key.h2.get_text() == "Answers"
    first, _, third = key.select(".solved")
    assert [p.get_text() for p in first("p")] == ["1. B ✓ Yes. Once two.", "A ✗ No. Two."]
    # the key contains the whole answer: assertions, output, explanation
    texts = [part.get_text().strip() for part in third.find_all(True, recursive=False)]
    assert texts[0].startswith("3. B ✓ Yes.") and texts[-1].startswith("A ✗ No.")
    assert texts[1:3] == ["assert x.mean() == 2", "tensor([2.])"]
    assert texts[3].startswith("The mean adds both and divides.")
    assert not soup.find(id="mean").select(".hll, .cell_output")
    asked = soup.select(".predict")[2]
    assert (asked.a["href"], third.a["href"]) == ("detach.html#answer-3", "detach.html#question-3")
    assert (asked["id"], third["id"]) == ("question-3", "answer-3")
    (solution,) = soup.select(".tag_solution .unfolded")
    assert solution.get_text() == "Solution" and "return x.detach()" in soup.get_text()
    (moves,) = soup.select(".moves")
    assert moves.get_text().startswith("A counter that needs scripts.")
    assert [a["href"] for a in moves.select("a")] == (
        [f"{base}/en/detach.html#explorer"] if base else []
    )
    assert soup.find("a", href="detach.html#two-ways-to-cut-2")


# ---------------------------------------------------------------- EPUB


@pytest.fixture(scope="module")
def epubs(book, tmp_path_factory) -> dict[str, Path]:
    copy = tmp_path_factory.mktemp("epub") / "site"
    shutil.copytree(book.root / "_build/site", copy)
    result = edition.make(book, copy, "https://someone.example/notes", "epub")
    return dict(zip(LANGUAGES, result, strict=True))


@pytest.mark.parametrize(("lang", "code"), [("en", "en"), ("zh", "zh-CN")])
def test_epub_contains_every_page_and_valid_links(epubs, lang, code):
    with zipfile.ZipFile(epubs[lang]) as archive:
        first, *_ = archive.infolist()
        assert (first.filename, first.compress_type) == ("mimetype", zipfile.ZIP_STORED)
        files = {name: archive.read(name) for name in archive.namelist()}
    pages = {n: ElementTree.fromstring(t) for n, t in files.items() if n.endswith(".xhtml")}
    ids = {name: {e.get("id") for e in page.iter()} for name, page in pages.items()}
    assert {"book/cover.xhtml", "book/contents.xhtml", "book/detach.xhtml"} <= set(pages)
    for name, page in pages.items():
        assert page.get("lang") == code
        for link in page.iter(f"{XHTML}a"):
            if not (href := link.get("href", "")).startswith("https://someone.example/"):
                target, _, anchor = href.partition("#")
                assert not anchor or anchor in ids[f"book/{target}"], f"{name}: {href}"
                assert f"book/{target}" in files, f"{name}: {href}"
    package = ElementTree.fromstring(files["book/book.opf"])
    (language,) = package.iter("{http://purl.org/dc/elements/1.1/}language")
    assert language.text == code
    listed = {e.get("href"): e.get("properties") for e in package.iter() if e.get("href")}
    assert {f"book/{href}" for href in listed} == set(files) - {
        "mimetype", "META-INF/container.xml", "book/book.opf"
    }  # fmt: skip
    assert listed["detach.xhtml"] == "mathml", "formulas are MathML"


@pytest.mark.skipif(not EPUBCHECK.exists() or not shutil.which("java"), reason="no epubcheck")
@pytest.mark.parametrize("lang", LANGUAGES)
def test_epubcheck_reports_no_errors(epubs, lang):
    done = subprocess.run(
        ["java", "-jar", EPUBCHECK, "-q", epubs[lang]], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_epub_figure_is_valid_xml_in_one_language():
    svg = '<svg viewBox="0 0 1 1"><text lang="en">step</text><text lang="zh">步</text>'
    html = f'{svg}<use href="#a" style="fill:var(--fig-teal)"/></svg>'
    drawing = BeautifulSoup(html, "html.parser").svg
    edition.restore_svg_names(drawing)
    epub._draw(drawing, "zh")
    result = epub._coloured(str(drawing), {"fig-teal": "#0a6b7d"})
    assert "步" in result and "step" not in result and 'xlink:href="#a"' in result
    assert "fill:#0a6b7d" in result and "viewBox" in result
    ElementTree.fromstring(result)


def test_mixed_case_svg_names_are_restored(site):
    names = set()
    for path in site.glob("*/*.html"):
        for drawing in re.findall("<svg .*?</svg>", path.read_text("utf8"), re.S):
            names |= set(re.findall(r"</?(\w*[A-Z]\w*)|\s(\w*[A-Z]\w*)=\"", drawing))
    assert {element or attribute for element, attribute in names} == set(edition.SVG_NAMES.values())


# ---------------------------------------------------------------- PDF


def test_pdf_chapters_have_running_heads_and_unique_anchors(book, built):
    text = pdf.document(Edition(book, built, "zh", ""))
    soup = BeautifulSoup(text, "html.parser")
    ids = [e["id"] for e in soup.select("[id]")]
    assert len(ids) == len(set(ids))
    assert '@page detach { @top-left { content: "用 detach 切断计算图" } }' in text
    for link in soup.select("a[href]"):
        assert link["href"][0] == "#" and link["href"][1:] in ids
    assert [e.get_text() for e in soup.select(".all-pages h2")] == ["自动微分", "参考"]


def test_chromium_prints_both_languages(book, built, chromium):
    for path in edition.make(book, built, "", "pdf"):
        result = path.read_bytes()
        assert (
            result.startswith(b"%PDF-") and b"/StructTreeRoot" in result and b"/Outlines" in result
        )
        assert len(re.findall(rb"/Type\s*/Page\b", result)) >= 5  # cover, contents, three pages


def test_missing_chromium_error_names_the_fix(book, built, monkeypatch, tmp_path):
    monkeypatch.delenv("CHROMIUM", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BookError, match="none of chromium-headless-shell, .* set CHROMIUM"):
        pdf.make(Edition(book, built, "en", ""), tmp_path / "x.pdf")


# ---------------------------------------------------------------- zip


@pytest.fixture(scope="module")
def unzipped(book, tmp_path_factory) -> Path:
    """Return the unpacked zip of a site with a real chapter."""
    folder = tmp_path_factory.mktemp("zip")
    copy = Path(shutil.copytree(book.root / "_build/site", folder / "site"))
    shutil.copy(ROOT / "book/en/detach.ipynb", copy / "en/_sources")
    (path,) = edition.make(book, copy, "", "zip")
    with zipfile.ZipFile(path) as archive:
        archive.extractall(folder)
    return folder / edition.NAME


def test_zip_contains_site_notebooks_and_wheel(book, unzipped):
    site = book.root / "_build/site"
    files = {p.relative_to(unzipped).as_posix() for p in unzipped.rglob("*") if p.is_file()}
    assert {p.relative_to(site).as_posix() for p in site.rglob("*") if p.is_file()} <= files
    assert {f"notebooks/{lang}/detach.ipynb" for lang in LANGUAGES} <= files
    (wheel,) = (unzipped / "wheels").iterdir()
    message = (unzipped / "README.txt").read_text("utf8")
    assert message.count(f"--no-index --no-deps wheels/{wheel.name}") == 2


@pytest.mark.parametrize("lang", LANGUAGES)
def test_the_unzipped_site_opens_from_disk(unzipped, browser, lang):
    page = browser.new_page(locale={"en": "en-US", "zh": "zh-CN"}[lang])
    wrong = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    entry = (unzipped / "index.html").as_uri()

    def failed(request):
        # The entry page redirects at once, which may abort its own load.
        if (request.url, request.failure) != (entry, "net::ERR_ABORTED"):
            wrong.append(request.url)

    page.on("requestfailed", failed)
    page.goto(entry, wait_until="commit")
    page.wait_for_url(f"**/{lang}/index.html")
    assert page.locator("#take-along").is_hidden()
    page.locator('article a[href="detach.html"]').first.click()
    page.locator("toy-explorer button").click()
    assert page.locator("toy-explorer span").inner_text() == "1"
    assert wrong == []
    page.close()


def test_zip_notebook_runs_offline_with_its_wheel(unzipped, tmp_path):
    (wheel,) = (unzipped / "wheels").iterdir()
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps"]
    subprocess.run([*pip, "--target", tmp_path / "env", wheel], check=True)
    code = (
        "import sys, nbformat; from nbclient import NotebookClient;"
        "nb = nbformat.read('detach.ipynb', 4);"
        "nb.cells.append(nbformat.v4.new_code_cell('import helpers; print(helpers.__file__)'));"
        "NotebookClient(nb, timeout=120).execute(); print(nb.cells[-1].outputs[0].text)"
    )
    nowhere = dict.fromkeys(("http_proxy", "https_proxy"), "http://127.0.0.1:9")
    environment = os.environ | nowhere | {"PYTHONPATH": str(tmp_path / "env"), "BOOK_CUDA": "0"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=unzipped / "notebooks/en",
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert Path(done.stdout.strip()).is_relative_to(tmp_path / "env")


def test_wheel_metadata_matches_the_project(book, unzipped):
    """Check the metadata: no build backend writes it, and pip reads it."""
    (wheel,) = (unzipped / "wheels").iterdir()
    assert wheel.name == helpers_wheel.name(book)
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf8"))["project"]
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        about = email.message_from_bytes(archive.read(next(n for n in names if "METADATA" in n)))
    assert (about["Name"], about["Version"]) == (settings["name"], settings["version"])
    needed = about.get_all("Requires-Dist")
    assert [n for n in needed if "extra" not in n] == settings["dependencies"]
    assert about["Requires-Python"] == settings["requires-python"]
    files = {p for p in (ROOT / "src").rglob("*") if p.is_file() and p.suffix != ".pyc"}
    expected = {p.relative_to(ROOT / "src").as_posix() for p in files}
    assert {n for n in names if ".dist-info" not in n} == expected


def test_downloaded_notebook_runs_alone(unzipped, tmp_path):
    """Install the wheel from the same folder, or report the file that is missing."""
    cells = json.loads((unzipped / "zh/_sources/detach.ipynb").read_text("utf8"))["cells"]
    setup = next("".join(c["source"]) for c in cells if c["id"] == "setup")
    assert "wheels/" in setup
    (wheel,) = (unzipped / "wheels").iterdir()
    python = tmp_path / "env/bin/python"
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "env"], check=True)

    def run(folder):
        code = setup.replace('"-q", source', '"-q", "--no-deps", "--no-index", source')
        assert code != setup
        code += "\nimport helpers; print(helpers.__file__)"
        return subprocess.run([python, "-c", code], cwd=folder, capture_output=True, text=True)

    (tmp_path / "downloads").mkdir()
    alone = run(tmp_path / "downloads")
    assert alone.returncode and f"download wheels/{wheel.name} of the site" in alone.stderr
    shutil.copy(wheel, tmp_path / "downloads")
    beside = run(tmp_path / "downloads")
    assert beside.returncode == 0, beside.stderr
    assert Path(beside.stdout.strip()).is_relative_to(tmp_path / "env")


# ---------------------------------------------------------------- links


def test_home_page_links_existing_editions_until_the_next_build(book, monkeypatch):
    from click.testing import CliRunner

    monkeypatch.chdir(book.root)
    monkeypatch.setattr("bookbuild.pages.write", lambda book: [])  # keep the toy book's pages
    home = book.root / "_build/site/zh/index.html"
    done = CliRunner().invoke(main, ["build", "--epub"])
    assert done.exit_code == 0 and f"{edition.NAME}.zh.epub: 0." in done.stdout
    links = BeautifulSoup(home.read_text("utf8"), "html.parser").select("#take-along a[download]")
    assert [(a["href"], a.get_text()) for a in links] == [(f"../{edition.NAME}.zh.epub", "EPUB")]
    assert (home.parent / links[0]["href"]).is_file()
    assert offer(book, []) == []
    build(book.root, quiet=True)
    assert '<p id="take-along" hidden></p>' in home.read_text("utf8")
    assert not list(book.root.glob("_build/site/*.epub"))


def test_offer_without_a_site_raises(tmp_path):
    with pytest.raises(BookError, match="run `book build` first"):
        offer(Book(tmp_path), ["zip"])


# ---------------------------------------------------------------- printing


@pytest.mark.parametrize(("name", "most"), [("detach", 10), ("backward", 20)])
@pytest.mark.parametrize("lang", LANGUAGES)
def test_a_chapter_prints_on_few_pages_without_navigation(browser, url, lang, name, most):
    page = browser.new_page()
    page.goto(f"{url}/{lang}/{name}.html")
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    moves = "nav, .prev-next-area, .controls, button:not([data-point])"  # points are in drawings
    assert [e for e in page.locator(moves).all() if e.is_visible()] == []
    size = "e => parseFloat(getComputedStyle(e).fontSize)"
    prose, code = ("article section > p", ".cell_input pre")
    first = {what: page.locator(what).first.evaluate(size) for what in (prose, code)}
    assert first[prose] > first[code]
    printed = page.pdf(prefer_css_page_size=True)
    assert len(re.findall(rb"/Type\s*/Page\b", printed)) <= most
    page.close()
