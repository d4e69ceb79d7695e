"""Test notebooks in JupyterLab: questions unfold, solutions are folded, explorers work."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest
from book_pages import ROOT

from bookbuild.source.checkout import Book
from bookbuild.source.texts import load

pytestmark = pytest.mark.rest

SETTINGS = ("--ServerApp.token=", "--ServerApp.password=", "--ServerApp.port=0", "--no-browser")
CHAPTER = "views_and_copies"  # contains each kind of element


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """Start JupyterLab on a copy of one trusted chapter; yield its address."""
    folder = tmp_path_factory.mktemp("lab")
    shutil.copy(ROOT / f"book/en/{CHAPTER}.ipynb", folder)
    home = {
        name: str(folder / "home")
        for name in ("HOME", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR")
    }
    env = os.environ | home
    jupyter = [sys.executable, "-m", "jupyter"]
    subprocess.run([*jupyter, "trust", f"{CHAPTER}.ipynb"], cwd=folder, env=env, check=True)
    message = folder / "told"
    root = ["--allow-root"] * (os.name == "posix" and os.geteuid() == 0)
    with message.open("w") as out:
        server = subprocess.Popen(
            [*jupyter, "lab", *SETTINGS, *root], cwd=folder, env=env, stdout=out, stderr=out
        )
    try:
        address = None
        for _ in range(240):
            if found := re.search(
                r"http://(?:localhost|127\.0\.0\.1):(\d+)/lab", message.read_text()
            ):
                address = f"http://127.0.0.1:{found[1]}"
                break
            assert server.poll() is None, message.read_text()
            time.sleep(0.25)
        assert address, message.read_text()
        answers(f"{address}/api/status")
        yield address
    finally:
        server.terminate()
        server.wait(20)


def answers(address):
    """Wait until the server accepts requests: it prints its address before that."""
    for _ in range(240):
        try:
            urllib.request.urlopen(address, timeout=30).close()
            return
        except urllib.error.URLError:
            time.sleep(0.25)
    raise AssertionError(f"no response from {address}")


@pytest.fixture(scope="module")
def notebook(lab, browser):
    """Open the chapter in JupyterLab, and wait until its cells are in the document."""
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto(f"{lab}/lab/tree/{CHAPTER}.ipynb?reset")
    page.locator(".jp-Notebook .jp-Cell").first.wait_for(timeout=180_000)
    page.locator(".jp-NotebookPanel .jp-MarkdownCell .predict").first.wait_for(
        state="attached", timeout=180_000
    )
    yield page
    page.close()


def scrolled_to(page, locator):
    """Scroll until `locator` is rendered, because JupyterLab renders only cells near the view."""
    scroller = page.locator(".jp-NotebookPanel .jp-WindowedPanel-outer").first
    for _ in range(200):
        if locator.count():
            locator.first.scroll_into_view_if_needed()
            locator.first.get_by_text(re.compile(r"\S")).filter(visible=True).first.wait_for()
            return locator.first
        scroller.evaluate("e => e.scrollBy(0, e.clientHeight / 2)")
        page.wait_for_timeout(50)
    raise AssertionError("not found")


def test_question_unfolds_and_its_output_is_hidden(notebook):
    asked = next(c for c in load(Book(ROOT), CHAPTER).cells if c.predict)
    card = scrolled_to(notebook, notebook.locator(".jp-MarkdownCell .predict"))
    assert "Predict." in card.inner_text()
    choice = card.locator("details").first
    assert not choice.locator("p").is_visible()
    choice.locator("summary").click()
    choice.locator("p").wait_for(state="visible")
    code = asked.source.split("\n")[0][:30]
    cell = notebook.locator(".jp-CodeCell", has_text=code).first
    cell.locator(".jp-OutputPlaceholder").first.wait_for(state="attached")


def test_explorer_responds_to_a_selection(notebook):
    explorer = scrolled_to(notebook, notebook.locator("stride-explorer"))
    before = explorer.evaluate("e => e.shadowRoot.textContent")
    explorer.locator("select").first.select_option(index=2)
    assert explorer.evaluate("e => e.shadowRoot.textContent") != before


def test_a_solution_is_folded_and_labelled(notebook):
    labels = notebook.locator(".jp-RenderedMarkdown", has_text="A solution is folded below")
    scrolled_to(notebook, labels)
    cell = notebook.locator(".jp-CodeCell:has(.jp-InputPlaceholder)").first.element_handle()
    assert cell.query_selector(".jp-OutputPlaceholder")
    cell.query_selector(".jp-InputPlaceholder").click()
    notebook.wait_for_function("cell => !cell.querySelector('.jp-InputPlaceholder')", arg=cell)
