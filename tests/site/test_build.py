"""Test the build: warnings fail, a failed build keeps the old site, links use the repository."""

from __future__ import annotations

import json
import os
import pickle
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from html import unescape
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from urllib.request import urlopen

import pytest
import tinycss2
import yaml
from book_pages import ROOT
from bs4 import BeautifulSoup
from pygments.styles import get_style_by_name
from pygments.token import STANDARD_TYPES
from sphinx.errors import ExtensionError

from bookbuild.notebooks import setup_cell
from bookbuild.notebooks.cells import code_cells
from bookbuild.notebooks.files import read
from bookbuild.site import sphinx_build as building
from bookbuild.site.extensions.bundles import MEASURES_ALL, SCRIPT, THEME_SCRIPT, purge
from bookbuild.site.extensions.bundles import write as write_bundles
from bookbuild.site.extensions.code_blocks import PLAIN, assertions
from bookbuild.site.extensions.languages import joined, titles
from bookbuild.site.extensions.reference import short
from bookbuild.site.extensions.sphinx_internals import (
    folded_cell,
    link_targets,
)
from bookbuild.site.server import server
from bookbuild.site.sphinx_build import BuildFailed, build
from bookbuild.source.words import table
from helpers.verdicts import SENTENCES

pytestmark = pytest.mark.rest


def hrefs(path) -> list[str]:
    found = []

    class Links(HTMLParser):
        def handle_starttag(self, tag, attrs):
            found.extend(value for name, value in attrs if name == "href" and value)

    Links().feed(path.read_text("utf8"))
    return found


def edit(path, old: str, new: str) -> None:
    text = path.read_text("utf8")
    assert old in text, f"{path} has no {old!r}"
    path.write_text(text.replace(old, new), "utf8")


@pytest.fixture
def book(toy, tmp_path):
    return toy.write(tmp_path / "book")


@pytest.fixture
def built(toy_root, toy_site, tmp_path):
    """Yield the toy book after its first build; restore it after the test."""
    shutil.copytree(toy_root, tmp_path / "kept")
    yield toy_root
    shutil.rmtree(toy_root)
    shutil.copytree(tmp_path / "kept", toy_root)


# ---------------------------------------------------------------- errors that stop the build


def test_warning_stops_the_build_names_its_page_and_keeps_old_site(book):
    site = book / "_build/site"
    site.mkdir(parents=True)
    (site / "index.html").write_text("the site of yesterday")
    zh = book / "book/zh"
    edit(zh / "detach.ipynb", "$y = x^2$", "$y = \\\\frac{x$")
    edit(zh / "schedule.ipynb", "## 余弦衰减", "余弦衰减")
    edit(zh / "errors.md", "# 报错", "# 报错\n\n[无处](nowhere.md)")
    edit(
        book / "book/en/index.md",
        "```{chapters}",
        "```{cell} detach#no-such-cell\n```\n```{chapters}",
    )
    for _ in range(2):  # a second build repeats the messages
        with pytest.raises(BuildFailed) as failure:
            build(book, quiet=True)
        message = str(failure.value)
        assert "book/zh/detach.ipynb::ways: " in message and "cannot render the formula" in message
        assert "schedule" in message and "1 headings here, 2 in the English" in message
        assert "book/zh/errors.md:3" in message and "nowhere.md" in message
        assert "book/en/index.md:5" in message and "no-such-cell" in message
        assert str(book) not in message
    assert (site / "index.html").read_text() == "the site of yesterday"
    assert {p.name for p in (book / "_build").iterdir()} == {"site", "cache"}, "files were left"


def test_invalid_configuration_value_stops_the_build(book):
    edit(book / "_config.yml", "home_page_in_navbar: false", "home_page_in_navbar: perhaps")
    with pytest.raises(BuildFailed, match="_config.yml: .*html/home_page_in_navbar") as failure:
        build(book, quiet=True)
    assert "Traceback" not in str(failure.value)


def test_a_part_without_a_chinese_name_stops_the_build(book):
    edit(book / "_toc.yml", "Autograd", "Astrology")
    with pytest.raises(BuildFailed, match="no zh name for the part 'Astrology'"):
        build(book, quiet=True)


# ---------------------------------------------------------------- incremental builds


def files(site) -> dict[str, bytes]:
    return {str(p.relative_to(site)): p.read_bytes() for p in site.rglob("*") if p.is_file()}


def from_clean(book) -> dict[str, bytes]:
    shutil.rmtree(book / "_build")
    return files(build(book, quiet=True))


def test_incremental_build_equals_a_clean_build(built, monkeypatch):
    """Remove prose and a figure, change a title that all pages show, then edit only the English."""
    book, folder = built, built / "book/en"
    drawn = json.loads((folder / "schedule.ipynb").read_text("utf8"))
    drawn["cells"] += [
        {"cell_type": "markdown", "id": "word", "metadata": {}, "source": "zugzwang"}
    ]
    drawn["cells"] += [figure()]
    (folder / "schedule.ipynb").write_text(json.dumps(drawn))
    before = build(book, quiet=True)
    assert list(before.glob("en/_images/*.png"))
    assert b"zugzwang" in files(before)["en/search-index.js"]
    untouched = book / "_build/cache/en/html/errors.html"
    written = untouched.stat().st_mtime_ns
    edit(folder / "detach.ipynb", "shares the storage", "borrows the storage")
    drawn["cells"][-2]["source"], drawn["cells"][-1]["outputs"] = "nothing", []
    (folder / "schedule.ipynb").write_text(json.dumps(drawn))
    edit(book / "book/zh/schedule.ipynb", "调度学习率", "安排学习率")
    again = files(build(book, quiet=True))
    assert "borrows" in again["en/detach.html"].decode()
    assert "安排学习率" in again["zh/detach.html"].decode(), "the navigation has the old title"
    assert untouched.stat().st_mtime_ns == written, "an unchanged page was written"
    languages, language = [], building._language
    with monkeypatch.context() as patch:
        patch.setattr(building, "_language", lambda *a: languages.append(a[-1]) or language(*a))
        edit(folder / "detach.ipynb", "borrows the storage", "uses the storage")
        again = files(build(book, quiet=True))
    assert languages == ["en"] and "uses the storage" in again["en/detach.html"].decode()
    clean = from_clean(book)
    assert [name for name in clean if clean[name] != again.get(name)] == []
    assert set(again) == set(clean)


def figure() -> dict:
    pixel = (
        "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5"
    )
    output = {"output_type": "display_data", "metadata": {}}
    output["data"] = {"image/png": f"{pixel}ErkJggg=="}
    about = {"mystnb": {"image": {"alt": "a dot"}}}
    cell = {"cell_type": "code", "id": "figure", "metadata": about, "source": "draw()"}
    return cell | {"execution_count": 1, "outputs": [output]}


def test_changed_footer_rebuilds_every_page(built):
    edit(built / "book/_templates/book-footer.html", "</", "NEWFOOT</")
    site = build(built, quiet=True)
    pages = [p.read_text("utf8") for p in site.glob("*/*.html")]
    assert len(pages) == 12 and all("NEWFOOT" in page for page in pages)


def test_unchanged_site_is_restored_without_a_build(built, toy_site, monkeypatch):
    result = files(toy_site)
    (toy_site / "en/detach.html").unlink()
    monkeypatch.setattr(building.subprocess, "run", lambda *args, **kwargs: pytest.fail("ran"))
    assert files(build(built, quiet=True)) == result


def test_killed_build_keeps_the_old_site_and_no_lock(built, toy_site):
    book, site = built, toy_site
    result = files(site)
    edit(book / "book/en/detach.ipynb", "shares the storage", "borrows the storage")
    code = (
        "import bookbuild.site.sphinx_build as s, pathlib, sys; s.build(pathlib.Path(sys.argv[1]))"
    )
    job = subprocess.Popen([sys.executable, "-c", code, book], start_new_session=True)
    while (book / "_build/cache/state.json").exists() and job.poll() is None:
        time.sleep(0.05)
    os.killpg(job.pid, signal.SIGKILL)
    job.wait()
    assert files(site) == result
    assert "borrows" in (build(book, quiet=True) / "en/detach.html").read_text("utf8")


def test_site_is_locked_during_a_build_where_supported(tmp_path, monkeypatch):
    with building._locked(tmp_path) as kept, (tmp_path / "lock").open() as file:
        assert len(kept) == 1
        with pytest.raises(BlockingIOError):
            building.fcntl.flock(file, building.fcntl.LOCK_EX | building.fcntl.LOCK_NB)
    monkeypatch.setattr(building, "fcntl", None)
    with building._locked(tmp_path) as kept:
        assert kept == []


def test_unknown_theme_script_raises(tmp_path):
    static = tmp_path / "_static"
    (static / THEME_SCRIPT).parent.mkdir(parents=True)
    (static / THEME_SCRIPT).write_text("measureLater()")
    config = SimpleNamespace(html_css_files=[], html_js_files=[])
    builder = SimpleNamespace(format="html")
    app = SimpleNamespace(outdir=tmp_path, doctreedir=tmp_path, config=config, builder=builder)
    app.book_bundles = {}
    with pytest.raises(ExtensionError, match="expected one place that measures .* found 0"):
        write_bundles(app, None)


def test_private_apis_of_other_packages_still_exist(toy_root, toy_site):
    """Check each API used in `bookbuild.site.extensions.sphinx_internals`: fix a failure there."""
    page = (toy_site / "en/detach.html").read_text("utf8")
    static = "theme/pydata_sphinx_theme/static"
    theme = Path(find_spec("pydata_sphinx_theme").origin).parent / static / THEME_SCRIPT
    assert len(MEASURES_ALL.findall(theme.read_text("utf8"))) == 1
    script = (toy_site / "en/_static" / SCRIPT).read_text("utf8")
    assert not MEASURES_ALL.search(script)
    scrolled = 'if(!document.querySelector(".bd-docs-nav"))return'  # returns before any measurement
    assert scrolled in script and "bd-docs-nav" not in page
    assert folded_cell().__name__ and '<details class="hide' in page
    with (toy_root / "_build/cache/en/doctrees/environment.pickle").open("rb") as file:
        env = pickle.load(file)
    targets = dict(link_targets(env, "detach"))
    assert targets["value"] == "value", "a cell is not a link target"
    assert targets["two-ways-to-cut-2"] == "Two ways to cut"
    assert 'class="n"' not in page, "the default formatter is used"
    assert 'class="why' in page, "no part has the number of its cell"


def test_reference_of_the_helpers_requires_no_pytorch():
    """Describe the packages of `helpers` where neither PyTorch nor NumPy can be imported."""
    code = """
import sys
from types import SimpleNamespace as Some
from bookbuild.site.extensions.reference import HelpersApi
sys.modules.update(torch=None, numpy=None)
HelpersApi.section = lambda self, module: module
config = Some(external_site_map=[], autodoc_mock_imports=[])
env = Some(config=config, note_dependency=lambda path: None)
directive = HelpersApi.__new__(HelpersApi)
directive.state = Some(document=Some(settings=Some(env=env)))
print(directive.run()[0].astext())
"""
    job = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert job.returncode == 0, job.stderr
    assert "helpers.exercises: Check answers to the exercises" in job.stdout


# ---------------------------------------------------------------- external links


def test_site_without_a_repository_has_no_outside_links(toy_site):
    for page in toy_site.glob("*/*.html"):
        outside = [h for h in hrefs(page) if h.startswith(("http", "//"))]
        assert not outside, f"{page.name} links to {outside}"
        assert "launch-buttons" not in page.read_text("utf8")
    assert "_sources/detach.ipynb" in hrefs(toy_site / "zh/detach.html")
    assert (toy_site / "zh/_sources/detach.ipynb").is_file()


REPOSITORY = "https://github.com/someone/notes"
SHA = "0123456789abcdef" * 2 + "01234567"


@pytest.fixture(scope="module")
def published(toy, tmp_path_factory):
    """Return a toy book with the site for a repository; two headings are error messages."""
    book = toy.write(tmp_path_factory.mktemp("published"))
    edit(
        book / "book/en/index.md",
        "```{chapters}",
        "```{only} repository\nFROM COLAB\n```\n```{chapters}",
    )
    for lang, title, section in (
        ("en", ("# Cut the graph", "# It's the graph"), "## Two ways to cut"),
        ("zh", ("# 用 detach", "# 就用 detach"), "## 两种切断方法"),
    ):
        page = book / f"book/{lang}/detach.ipynb"
        edit(page, *title)
        edit(page, section, "## Can't get attribute 'Net'")
        edit(page, "#two-ways-to-cut-2", "#can-t-get-attribute-net-2")
    edit(book / "book/en/detach.ipynb", "shares the storage", "shares 'its' storage")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BOOK_REPOSITORY_URL", f"{REPOSITORY}/")
        patch.setenv("BOOK_BASE_URL", "https://someone.example/notes/")
        patch.setenv("GITHUB_SHA", SHA)
        return book, build(book, quiet=True)


def test_repository_and_base_url_add_links_in_each_language(published):
    book, site = published
    for lang in ("en", "zh"):
        found = hrefs(site / lang / "detach.html")
        path = f"book/{lang}/detach.ipynb"
        colab = "https://colab.research.google.com/github/someone/notes/blob/notebooks"
        assert f"{colab}/{path}" in found
        binder = "https://mybinder.org/v2/gh/someone/notes/notebooks?urlpath=lab/tree"
        assert f"{binder}/{path}" in found
        raw = "https://raw.githubusercontent.com/someone/notes/notebooks"
        assert f"https://kaggle.com/kernels/welcome?src={raw}/{path}" in found
        assert f"{REPOSITORY}/edit/main/book/text/detach.md" in found
        assert f"{REPOSITORY}/edit/main/book/{lang}/index.md" in hrefs(site / lang / "index.html")
        result = hrefs(site / lang / "errors.html")
        assert REPOSITORY in result and not [h for h in result if "/edit/" in h], (
            "errors: edit link"
        )
        cell = setup_cell.source(REPOSITORY, SHA)
        for notebook in (site / lang / "_sources", book / "_build/notebooks" / lang):
            cells = json.loads((notebook / "detach.ipynb").read_text("utf8"))["cells"]
            assert cell in [c["source"] for c in cells]
        assert f"https://github.com/someone/notes/issues/new?title={lang}/detach%3A%20" in found
        page = (site / lang / "detach.html").read_text("utf8")
        for code, to in (("en", "en"), ("zh-CN", "zh"), ("x-default", "en")):
            address = f"https://someone.example/notes/{to}/detach.html"
            assert f'<link rel="alternate" hreflang="{code}" href="{address}">' in page
        canonical = f'<link rel="canonical" href="https://someone.example/notes/{lang}/detach.html"'
        assert canonical in page
    assert "FROM COLAB" in (site / "en/index.html").read_text("utf8")


# ---------------------------------------------------------------- content of a page


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_prose_cell_after_a_question_is_joined_with_its_output(toy, toy_site, lang):
    """Join the whole cell and nothing after it; join nothing if no prose follows the question."""
    soup = BeautifulSoup((toy_site / lang / "detach.html").read_text("utf8"), "html.parser")
    words = toy.WORDS[lang]
    (why,) = soup.select(".why")
    assert why.find_previous_sibling()["id"] == "mean"
    assert [part.name for part in why.find_all(True, recursive=False)] == [
        *("p", "blockquote", "ul", "div")
    ]
    assert why.get_text().count(words["explains"]) == 2 and words["lead"][-8:] in why.get_text()
    assert why.find_next_sibling().get_text() == words["next"]


def test_script_contains_no_source_comments(toy_site):
    script = (toy_site / "en/_static" / SCRIPT).read_text("utf8")
    own = "\n".join(path.read_text("utf8") for path in (ROOT / "book/_static").glob("*.js"))
    comments = re.findall(r"^\s*(// .+)", own, re.M)
    assert len(comments) > 20 and [line for line in comments if line in script] == []


def test_script_contains_the_texts_of_its_language(toy_site):
    for lang in ("en", "zh"):
        script = (toy_site / lang / "_static" / SCRIPT).read_text("utf8")
        own = {key: texts[lang] for key, texts in table()["script_questions"].items()}
        assert f'"questions":{json.dumps(own, ensure_ascii=False, separators=(",", ":"))}' in script
        assert "bookWords" not in (toy_site / lang / "detach.html").read_text("utf8")


def test_page_renders_the_content_of_its_notebook(toy_site):
    page = (toy_site / "zh/detach.html").read_text("utf8")
    assert '<html lang="zh-CN"' in page
    assert '<meta name="description" content="detach 切断什么，共享什么。">' in page
    assert 'class="katex"' in page and "katex.min.css" in page
    assert "<toy-explorer>" in page and "customElements.define" in page
    assert "查看参考答案" in page and "显示代码" in page
    for kind, number in (("learn", 1), ("need", 1), ("then-and-now", 2)):
        assert page.count(f'class="callout callout-{kind}"') == number
    assert '<p class="keywords"><em>复制、requires_grad</em></p>' in page
    records = json.loads(
        (toy_site / "zh/search-index.js").read_text("utf8").split("=", 1)[1].rstrip().rstrip(";")
    )
    chapter = next(
        row for row in zip(*records["columns"], strict=True) if row[2] == "用 detach 切断计算图"
    )
    assert "复制" in chapter[5].split() and "requires_grad" in chapter[3]
    assert 'id="two-ways-to-cut"' in page and 'id="two-ways-to-cut-2"' in page
    assert 'id="value"' in page, "cells have anchors"
    assert "katex.min.css" not in (toy_site / "zh/schedule.html").read_text("utf8")
    home = (toy_site / "zh/index.html").read_text("utf8")
    for text in ("自动微分", "参考", "用 detach 切断计算图", "detach 切断什么，共享什么。", "报错"):
        assert text in home


def test_verdicts_use_the_language_of_the_page(toy_root, toy_site):
    shown = {
        "en": ["✗ not yet: expected a tensor, got None", "✓ correct: 3 checks passed"],
        "zh": ["✗ 还不对：应为张量，得到 None", "✓ 正确：3 项检查全部通过"],
    }
    for lang, verdicts in shown.items():
        soup = BeautifulSoup((toy_site / lang / "detach.html").read_text("utf8"), "html.parser")
        outputs = [pre.get_text().strip() for pre in soup.select(".output.text_plain pre")]
        assert outputs == ["tensor([2.])", "tensor([2.])", *verdicts]
        twin = (toy_site / lang / "detach.md").read_text("utf8")
        assert all(f"```text\n{verdict}\n```" in twin for verdict in verdicts)
        notebook = (toy_site / lang / "_sources/detach.ipynb").read_text("utf8")
        assert "✓ correct: 3 checks passed" in notebook and "还不对" not in notebook
        with (toy_root / f"_build/cache/{lang}/doctrees/environment.pickle").open("rb") as file:
            depends = map(str, pickle.load(file).dependencies["detach"])
        assert any(path.endswith(SENTENCES.name) for path in depends) == (lang == "zh")


def test_only_assertion_lines_below_questions_are_highlighted(toy_site):
    source = 'x = 1\nassert f("""a\n  b""",\n    c\n) == 1, x\nassertion = 2\nif x:\n    assert x'
    assert assertions(source) == [2, 3, 4, 5, 8]
    assert assertions("%load_ext explain\nassert x") == []
    soup = BeautifulSoup((toy_site / "en/detach.html").read_text("utf8"), "html.parser")
    marked = [
        (line.find_parent(class_="cell")["id"], line.get_text()) for line in soup(class_="hll")
    ]
    assert marked == [("sum", "assert x.sum() == 1\n"), ("mean", "assert x.mean() == 2\n")]


def test_code_block_sets_its_number_of_lines(toy_site):
    soup = BeautifulSoup((toy_site / "en/detach.html").read_text("utf8"), "html.parser")
    block = soup.find(id="starter").find(class_="highlight")
    assert block["style"] == "--lines:2"


def test_both_languages_have_the_same_anchors(toy_site):
    ids = [
        re.findall(
            r'<section[^>]* id="([^"]+)"', (toy_site / lang / "detach.html").read_text("utf8")
        )
        for lang in ("en", "zh")
    ]
    assert ids[0] == ids[1] and len(ids[0]) == 3


def test_error_message_in_a_heading_keeps_straight_quotes(published):
    """Keep curly quotes in English prose and in headings that are not error messages."""
    _, site = published
    for lang in ("en", "zh"):
        page = unescape((site / lang / "detach.html").read_text("utf8"))
        assert "<h2>Can't get attribute 'Net'<" in page and "Can’t" not in page
    english = (site / "en/detach.html").read_text("utf8")
    assert "<h1>It’s the graph" in english and "shares ‘its’ storage" in english


def test_titles_returns_only_markdown_headings(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "---\ntitle: no\n---\n# One `code` and *two*\n```\n# a comment\n```\n"
        ":::{note}\n# inside\n:::\nThree\n-----\n"
    )
    assert titles(page) == ["One code and two", "Three"]
    notebook = tmp_path / "page.ipynb"
    cells = [
        {"cell_type": "markdown", "source": ["# One\n", "text"]},
        {"cell_type": "code", "source": ["# not me"]},
        {"cell_type": "markdown", "source": ["## Two"]},
    ]
    notebook.write_text(json.dumps({"cells": cells}))
    assert titles(notebook) == ["One", "Two"]


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("。", "于", True),
        ("图", "的", True),
        ("图", "d", False),
        ("，", "d", True),
        ("d", "图", False),
    ],
)
def test_joined_follows_chinese_line_breaking(before, after, expected):
    assert joined(before, after) is expected


def test_only_tokens_in_the_text_colour_lose_their_element(toy_root, toy_site):
    config = yaml.safe_load((ROOT / "_config.yml").read_text("utf8"))["sphinx"]["config"]
    kinds = {short: kind for kind, short in STANDARD_TYPES.items()}
    for theme in ("light", "dark"):
        style = get_style_by_name(config["html_theme_options"][f"pygments_{theme}_style"])
        text = style.style_for_token(kinds[""])["color"]
        assert {style.style_for_token(kind)["color"] for kind in PLAIN} == {text}
        assert style.style_for_token(kinds["k"])["color"] != text
    page = (toy_site / "en/detach.html").read_text("utf8")
    blocks = re.findall("<pre>(.*?)</pre>", page, re.S)
    assert not re.search('class="(n|nn|p|w)"', "".join(blocks))
    shown = [unescape(re.sub("<.*?>", "", block)).strip() for block in blocks]
    cells = code_cells(read(toy_root / "book/en/detach.ipynb"))
    kept = [cell for cell in cells if cell.source.strip() in shown]
    assert len(kept) >= 2 and any('class="k' in block for block in blocks)


def test_purge_drops_only_unused_css_rules():
    css = (
        ".a{x:1}.b,.a{x:2}.a .b{x:3}p{x:4}.a:not(.b){x:5}@media print{.b{x:6}.a{x:7}}"
        "@font-face{src:url(x)}@keyframes k{from{x:8}}"
    )
    left = purge(tinycss2.parse_stylesheet(css), {"a"})
    assert [n for n in range(1, 9) if f"x:{n}" in left] == [1, 2, 4, 5, 7, 8]
    assert ".b,.a" not in left and "font-face" not in left


@pytest.mark.parametrize(
    ("signature", "expected"),
    [
        ("(x: torch.Tensor, y: str)", "(x: ~torch.Tensor, y: str)"),
        ("(x: dict[str, torch.nn.Module])", "(x: dict[str, ~torch.nn.Module])"),
        (
            "(x: torch.dtype = torch.float32, y: torch.Size = torch.Size([1, 2]))",
            "(x: ~torch.dtype = torch.float32, y: ~torch.Size = torch.Size([1, 2]))",
        ),
        ("(a: float = 0.1, x: torch.Tensor | None = None)", None),
        ("(my_torch.x: int, nottorch.y: str)", "(my_torch.x: int, nottorch.y: str)"),
    ],
)
def test_types_of_mocked_packages_are_shortened(signature, expected):
    app = SimpleNamespace(config=SimpleNamespace(autodoc_mock_imports=["torch"]))
    expected = expected or signature.replace("torch.Tensor", "~torch.Tensor")
    got = short(app, "function", "f", None, None, signature, "torch.Tensor")
    assert got == (expected, "~torch.Tensor")
    assert short(app, "module", "m", None, None, None, None) == (None, None)


# ---------------------------------------------------------------- server


def test_server_uses_a_free_port_if_its_own_is_taken(toy_site):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with server(toy_site, port) as http:
            assert http.server_address[0] == "127.0.0.1"
            assert http.server_port != port


def test_serve_prints_its_address_and_stops_on_interrupt(toy_site):
    code = "import bookbuild.site.server as s, pathlib, sys; s.serve(pathlib.Path(sys.argv[1]), 0)"
    job = subprocess.Popen(
        [sys.executable, "-c", code, toy_site],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )
    address = job.stdout.readline().split()[2]
    assert "`make live`" in job.stdout.readline()
    with urlopen(address) as answer:
        assert b"Executable PyTorch Notes" in answer.read()
    job.send_signal(signal.SIGINT)
    rest, errors = job.communicate(timeout=20)
    assert (job.returncode, rest.strip(), errors) == (0, "stopped", "")


def test_site_root_contains_the_expected_files(toy_site):
    own = {p.name for p in (ROOT / "book/_root").iterdir()}
    result = {".nojekyll", "robots.txt", "llms.txt", "pitfalls.json", "en", "zh"}
    assert {p.name for p in toy_site.iterdir()} == own | result
