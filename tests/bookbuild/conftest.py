"""Provide a small book in a temporary folder: two chapters, executed and translated."""

from __future__ import annotations

import ast
import contextlib
import io
import shutil

import pytest
from click.testing import CliRunner
from nbformat.v4 import new_output

from bookbuild.cli import main
from bookbuild.commands.update import update
from bookbuild.notebooks import execution
from bookbuild.notebooks.cells import code_cells, tags
from bookbuild.notebooks.comparison import stamp
from bookbuild.notebooks.files import read, write
from bookbuild.source.checkout import Book, BookError

CONFIG = """\
title: Tiny
author: A
repository:
  url: ''
  branch: main
languages:
  en: {name: English, config: {language: en, html_title: Tiny}}
  zh: {name: 中文, config: {language: zh_CN, html_title: 小书}}
"""
TOC = """\
format: jb-book
root: index
parts:
  - caption: Part
    chapters:
      - file: adding
      - file: failing
  - caption: Reference
    chapters:
      - file: errors
"""
CLAIMS = """\
adding:
  - id: A-1
    note: 000, line 1
    verdict: holds
    says: {en: One and one make two., zh: 一加一等于二。}
    today: {en: They do., zh: 确实如此。}
"""
EXERCISE = """\
%%% code {0}-exercise tags=exercise
```python
check_{0} = "✗ not yet"
print(check_{0})
```

%%% code {0}-solution tags=solution,hide-cell
```python
print("✓ correct")
```
"""
TEXTS = {
    "adding": """\
%%% summary
About adding.
%%% zh
关于加法。

%%% md adding-title
# Add two numbers

Addition needs $a + b$.
%%% zh
# 两数相加

加法需要 $a + b$。

%%% code setup tags=setup,remove-cell

%%% code adding-numbers claims=A-1
```python
# add both numbers
a = 1 + 1
assert a == 2
a
```
%%% zh
把两个数相加

"""
    + EXERCISE.format("adding")
    + """
%%% md adding-recap
## Recap

The sum is printed.
%%% zh
## 小结

和会打印出来。
""",
    "failing": """\
%%% summary
About failing.
%%% zh
关于失败。

%%% md failing-title
# Divide by zero

This always fails.
%%% zh
# 除以零

这总会失败。

%%% code setup tags=setup,remove-cell

%%% code failing-error tags=raises-exception
```python
1 / 0
```
%%% cause
The divisor is zero.
%%% zh
除数为零。

"""
    + EXERCISE.format("failing")
    + """
%%% md failing-recap
## Recap
%%% zh
## 小结
""",
}
TESTS = "def test_it():\n    assert not check_{}('wrong').passed\n"


@pytest.fixture(scope="session")
def template(tmp_path_factory):
    """Return the root of the small book, updated once; each test gets a copy."""
    root = tmp_path_factory.mktemp("template")
    for folder in ("book/text", "src/helpers", "tests/helpers"):
        (root / folder).mkdir(parents=True)
    (root / "_config.yml").write_text(CONFIG, "utf8")
    (root / "_toc.yml").write_text(TOC)
    (root / "book/claims.yml").write_text(CLAIMS, "utf8")
    for name, text in TEXTS.items():
        (root / f"book/text/{name}.md").write_text(text, "utf8")
        (root / f"src/helpers/{name}.py").write_text('"""Nothing."""\n')
        (root / f"tests/helpers/test_{name}.py").write_text(TESTS.format(name))
    assert update(Book(root), echo=lambda line: None) == {}
    return root


@pytest.fixture
def book(template, tmp_path, monkeypatch):
    monkeypatch.delenv("BOOK_REPOSITORY_URL", raising=False)
    shutil.copytree(template, tmp_path, dirs_exist_ok=True)
    return Book(tmp_path)


@pytest.fixture
def call(book, monkeypatch):
    """Return a function that runs the `book` command in a folder of the book."""
    monkeypatch.chdir(book.root / "book/en")
    return lambda *args: CliRunner().invoke(main, args)


@pytest.fixture
def mend(book):
    """Return a function that edits a text: `mend("adding", "two", "three")`."""

    def change(name, old, new):
        path = book.text(name)
        text = path.read_text("utf8")
        assert text.count(old) == 1, f"{old!r} occurs {text.count(old)} times"
        path.write_text(text.replace(old, new), "utf8")

    return change


@pytest.fixture
def edit(book):
    """Return a function that edits a stored notebook: `edit("en", "adding", lambda nb: ...)`."""

    def change(lang, name, action):
        nb = read(book.notebook(lang, name))
        action(nb)
        write(nb, book.notebook(lang, name))

    return change


@pytest.fixture
def forge(edit):
    """Return a function that edits both notebooks and updates their stamps, as a run would."""

    def change(name, action):
        def act(nb):
            action(nb)
            stamp(nb, nb.metadata.made["helpers"])

        for lang in ("en", "zh"):
            edit(lang, name, act)

    return change


@pytest.fixture(scope="session")
def in_process():
    """Return a function that replaces kernels by this process and returns the executed texts."""
    return _in_process


@pytest.fixture
def quick(monkeypatch):
    """Run cells in this process instead of a kernel; return the executed texts."""
    return _in_process(monkeypatch)


def _in_process(monkeypatch):
    ran = []

    def execute(nb, folder, where):
        ran.append(where)
        names = {}
        for number, cell in enumerate(code_cells(nb), 1):
            cell.execution_count, printed = number, io.StringIO()
            if cell.id == "setup":
                continue
            try:
                *body, last = ast.parse(cell.source).body or [ast.Pass()]
            except SyntaxError as error:
                raise BookError(f"{where}::{cell.id}: {error}") from None
            value = ast.Expression(last.value) if isinstance(last, ast.Expr) else None
            module = ast.Module(body if value else [*body, last], [])
            try:
                with contextlib.redirect_stdout(printed):
                    exec(compile(module, "<cell>", "exec"), names)
                    value = value and eval(compile(value, "<cell>", "eval"), names)
            except Exception as error:
                if "raises-exception" not in tags(cell):
                    raise BookError(
                        f"{where}::{cell.id}: {type(error).__name__}: {error}"
                    ) from None
                kind, text = type(error).__name__, str(error)
                cell.outputs = [new_output("error", ename=kind, evalue=text, traceback=[text])]
                continue
            if printed.getvalue():
                cell.outputs += [new_output("stream", name="stdout", text=printed.getvalue())]
            if value is not None:
                data = {"text/plain": repr(value)}
                cell.outputs += [new_output("execute_result", data, execution_count=number)]
        return nb

    monkeypatch.setattr(execution, "execute", execute)
    monkeypatch.setattr(execution, "prepare_kernels", lambda: False)
    return ran


@pytest.fixture
def cell():
    """Return a function that selects the cell of a notebook by its id."""
    return lambda nb, name: next(c for c in nb.cells if c.id == name)
