"""A chapter in both languages as one text file, for writing and translating in an editor.

    %%% md detach-why               a prose cell and its id
    English
    %%% zh                          the same cell in Chinese
    中文
    %%% code detach-cuts tags=cheat claims=S0-05
    y = x.detach()
    %%% zh                          optional: the same code with Chinese comments
    %%% alt | alt-zh                optional: what the cell's figure shows
    %%% cause | cause-zh            optional: why the cell raises, in a line

The first block is `%%% chapter NAME` with `summary` and `summary-zh`, a line each; the setup
cell has no body, it is stamped.
"""

from __future__ import annotations

import re
from pathlib import Path

from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from bookbuild.notebooks import Book, BookError, alt, read, set_alt, tags, tokens, write

_MARK = re.compile(r"^%%% (.+)$", re.M)


def unpack(book: Book, name: str) -> str:
    """A chapter's two notebooks as one text."""
    en, zh = (read(book.path(lang, name)) for lang in ("en", "zh"))
    chinese = {c.id: c for c in zh.cells}
    out = [
        f"%%% chapter {name}",
        f"summary: {en.metadata.get('summary', '')}",
        f"summary-zh: {zh.metadata.get('summary', '')}",
    ]
    for cell in en.cells:
        other = chinese.get(cell.id, cell)
        if cell.cell_type == "markdown":
            out += [f"%%% md {cell.id}", cell.source, "%%% zh", other.source]
            continue
        words = [f"%%% code {cell.id}"]
        if tags(cell):
            words.append("tags=" + ",".join(tags(cell)))
        if cell.metadata.get("claims"):
            words.append("claims=" + ",".join(cell.metadata["claims"]))
        out += [" ".join(words), *([cell.source] if cell.id != "setup" else [])]
        if other.source != cell.source:
            out += ["%%% zh", other.source]
        for key, get in (("alt", alt), ("cause", lambda c: c.metadata.get("cause", ""))):
            if get(cell):
                out += [f"%%% {key}", get(cell), f"%%% {key}-zh", get(other)]
    return "\n".join(out) + "\n"


def pack(book: Book, text: str) -> str:
    """Write a chapter's two notebooks from a text; returns the chapter's name.

    Outputs stay with the cells whose code did not change; `book run` makes the others.

    Raises:
        BookError: the text has another form; the line is named and nothing is written.
    """
    blocks = _blocks(text)
    if not blocks or not blocks[0][1].startswith("chapter "):
        raise BookError("the text must begin with `%%% chapter NAME`")
    name = blocks[0][1].split()[1]
    head = dict(line.split(": ", 1) for line in blocks[0][2].splitlines() if ": " in line)
    notebooks = {}
    for lang in ("en", "zh"):
        path = book.path(lang, name)
        notebooks[lang] = read(path) if path.exists() else new_notebook()
    old = {lang: {c.id: c for c in nb.cells} for lang, nb in notebooks.items()}
    cells: dict[str, list[NotebookNode]] = {"en": [], "zh": []}
    for line, mark, body in blocks[1:]:
        kind, _, rest = mark.partition(" ")
        if kind in ("md", "code"):
            for lang in ("en", "zh"):
                source = book.setup if rest.split()[:1] == ["setup"] else body
                cells[lang].append(_cell(kind, rest, source, old[lang], line))
        elif not cells["en"]:
            raise BookError(f"line {line}: `%%% {mark}` belongs to no cell")
        else:
            _add(kind, body, cells["en"][-1], cells["zh"][-1], line)
    ids = [c.id for c in cells["en"]]
    if twice := {i for i in ids if ids.count(i) > 1}:
        raise BookError(f"two cells are called {', '.join(sorted(twice))}")
    for lang, key in (("en", "summary"), ("zh", "summary-zh")):
        notebooks[lang].cells = cells[lang]
        notebooks[lang].metadata["summary"] = head.get(key, "")
        notebooks[lang].nbformat_minor = 5
    for lang, nb in notebooks.items():
        write(nb, book.path(lang, name))
    return name


def _blocks(text: str) -> list[tuple[int, str, str]]:
    marks = list(_MARK.finditer(text))
    ends = [m.start() for m in marks[1:]] + [len(text)] * bool(marks)
    return [
        (text.count("\n", 0, m.start()) + 1, m[1].strip(), text[m.end() : end].strip("\n"))
        for m, end in zip(marks, ends, strict=True)
    ]


def _cell(kind: str, rest: str, body: str, old: dict, line: int) -> NotebookNode:
    name, *words = rest.split() or [""]
    if not re.fullmatch(r"[a-zA-Z0-9-_]{1,64}", name):
        raise BookError(f"line {line}: a cell's id has 1-64 letters, digits, - or _, got {name!r}")
    before = old.get(name)
    if kind == "md":
        cell = new_markdown_cell(body, id=name)
    else:
        cell = new_code_cell(body, id=name)
        same_type = before is not None and before.cell_type == "code"
        if same_type and tokens(before.source) == tokens(body):
            cell.outputs, cell.execution_count = before.outputs, before.execution_count
        for word in words:
            key, _, value = word.partition("=")
            if key not in ("tags", "claims") or not value:
                raise BookError(f"line {line}: expected tags=… or claims=…, got {word!r}")
            cell.metadata[key] = value.split(",")
    if before is not None and "translation" in before.metadata:
        cell.metadata["translation"] = before.metadata["translation"]
    return cell


def _add(kind: str, body: str, en: NotebookNode, zh: NotebookNode, line: int) -> None:
    if kind == "zh":
        if zh.cell_type == "code" and tokens(body) != tokens(en.source):
            raise BookError(
                f"line {line}: the Chinese code of {en.id} differs in more than comments"
            )
        zh.source = body
    elif kind in ("alt", "alt-zh"):
        for cell in (en, zh) if kind == "alt" else (zh,):
            set_alt(cell, body)
    elif kind in ("cause", "cause-zh"):
        for cell in (en, zh) if kind == "cause" else (zh,):
            cell.metadata["cause"] = body
    else:
        raise BookError(f"line {line}: unknown block `%%% {kind}`")


def text_file(book: Book, name: str) -> Path:
    """Where `book unpack` writes a chapter's text."""
    return book.root / "_build" / "text" / f"{name}.md"
