"""A tiny book in a temporary folder: two chapters in both languages, run and translated."""

from __future__ import annotations

import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from bookbuild.notebooks import Book, clean, read, write
from bookbuild.sync import sync

CONFIG = "title: Tiny\nrepository:\n  url: ''\n  branch: main\n"
TOC = """\
format: jb-book
root: index
parts:
  - caption: Part
    chapters:
      - file: adding
      - file: failing
"""
CLAIMS = """\
adding:
  - id: A-1
    note: 000, line 1
    verdict: holds
    says: {en: One and one make two., zh: 一加一等于二。}
    today: {en: They do., zh: 确实如此。}
"""


def code(cell_id, source, outputs=(), **metadata):
    return new_code_cell(source, id=cell_id, outputs=list(outputs), metadata=metadata)


def prose(cell_id, source):
    return new_markdown_cell(source, id=cell_id)


def result(text):
    return new_output("execute_result", {"text/plain": text}, execution_count=1)


def error(name, message):
    return new_output("error", ename=name, evalue=message, traceback=[f"{name}: {message}"])


ENGLISH = {
    "adding": lambda setup: [
        prose("adding-title", "# Add two numbers\n\nAddition needs $a + b$."),
        code("setup", setup, tags=["setup", "remove-cell"]),
        code("adding-numbers", "# add\na = 1 + 1\nassert a == 2\na", [result("2")], claims=["A-1"]),
        prose("adding-recap", "## Recap\n\nThe sum is printed."),
    ],
    "failing": lambda setup: [
        prose("failing-title", "# Divide by zero\n\nThis always fails."),
        code("setup", setup, tags=["setup", "remove-cell"]),
        code(
            "failing-error",
            "1 / 0",
            [error("ZeroDivisionError", "division by zero")],
            tags=["raises-exception"],
            cause="The divisor is zero.",
        ),
    ],
}
CHINESE = {
    "adding-title": "# 两数相加\n\n加法需要 $a + b$。",
    "adding-recap": "## 小结\n\n和会打印出来。",
    "failing-title": "# 除以零\n\n这总会失败。",
}


@pytest.fixture
def book(tmp_path, monkeypatch):
    monkeypatch.delenv("BOOK_REPOSITORY_URL", raising=False)
    (tmp_path / "book").mkdir()
    (tmp_path / "_config.yml").write_text(CONFIG)
    (tmp_path / "_toc.yml").write_text(TOC)
    (tmp_path / "book/claims.yml").write_text(CLAIMS, "utf8")
    book = Book(tmp_path)
    for name, cells in ENGLISH.items():
        nb = new_notebook(cells=cells(book.setup), metadata={"summary": f"About {name}."})
        write(clean(nb), book.path("en", name))
    sync(book, echo=lambda line: None)
    for name in ENGLISH:
        path = book.path("zh", name)
        nb = read(path)
        nb.metadata.summary = f"关于 {name}。"
        for cell in nb.cells:
            if cell.id in CHINESE:
                cell.source = CHINESE[cell.id]
            if "cause" in cell.metadata:
                cell.metadata.cause = "除数为零。"
        write(nb, path)
    assert sync(book, echo=lambda line: None) == []
    return book


@pytest.fixture
def edit(book):
    """Change a stored notebook: `edit("en", "adding", lambda nb: ...)`."""

    def change(lang, name, action):
        nb = read(book.path(lang, name))
        action(nb)
        write(nb, book.path(lang, name))

    return change
