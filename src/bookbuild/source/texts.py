"""The source of a chapter: `book/text/<chapter>.md`, English and Chinese side by side, code once.

    %%% summary                     a line for search engines and lists of chapters
    What the chapter shows.
    %%% zh                          the Chinese of the block above
    这一章讲什么。

    %%% md detach-why               a prose cell and its id
    English
    %%% zh
    中文

    %%% code detach-cuts tags=right claims=S0-05
    ```python
    y = x.detach()  # shares storage
    ```
    %%% zh                          its comments in Chinese, one per line, in order
    与 x 共享存储
    %%% alt                         what the cell's figure shows
    A line from x to y.
    %%% zh
    从 x 到 y 的一条线。
    %%% cause                       why the cell raises, in a line
    y has no graph.
    %%% zh
    y 没有计算图。

    %%% pitfall                     for the page of all pitfalls: the wrong code, and the right
    y = x
    y = x.detach()

    %%% predict                     what the reader is asked before the cell: see predict.py
    Does `y` share its memory with `x`?
    + Yes
      `detach` cuts the graph and copies nothing.
      = assert y.data_ptr() == x.data_ptr()
    ...

    %%% code setup tags=setup,remove-cell

The setup cell has no body: every chapter has the same. In prose, `{{ oldest_pytorch }}` becomes the
oldest version of PyTorch that the chapter ran under, and an empty link such as
`[](detach.ipynb#anchor)` gets the title of the section it leads to.

Jupytext's MyST format was tried: it drops the cells' ids and holds one language per file, so that
a translator and a reviewer would look at two diffs instead of one.
"""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from itertools import pairwise

from bookbuild.source import questions
from bookbuild.source.checkout import Book, BookError, read_text

_MARK = re.compile(r"^%%%(?: (.*))?$", re.M)
_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_FENCE = re.compile(r"```python\n(.*\n)?```", re.S)
_BESIDE = ("alt", "cause", "predict")  # what is translated beside a cell's own words
SETUP = "setup"
OLDEST = "{{ oldest_pytorch }}"


@dataclass
class Words:
    """A piece of text in both languages; `zh` is None while nobody has translated it."""

    en: str
    line: int
    zh: str | None = None
    zh_line: int = 0


@dataclass
class Cell:
    """A cell of a chapter: prose, or code with what belongs to it.

    `words` are the prose of a prose cell and the comments of a code cell, one per line.
    """

    id: str
    type: str  # markdown or code, as in a notebook
    line: int
    words: Words
    source: str = ""  # of code, with English comments
    metadata: dict[str, list[str]] = field(default_factory=dict)  # tags, claims
    alt: Words | None = None
    cause: Words | None = None
    pitfall: list[str] = field(default_factory=list)  # the wrong code, and the right if it is code
    predict: Words | None = None  # what is asked before the cell, without the proofs
    proofs: list[str] = field(default_factory=list)  # of its choices


@dataclass
class Text:
    """A chapter."""

    name: str
    summary: Words
    cells: list[Cell]
    book: Book | None = None  # whose facts stand in its place-holders and empty links

    def pieces(self) -> Iterator[tuple[str, Words]]:
        """All that is translated, in order, each with its name such as `detach-cuts/cause`."""
        yield "summary", self.summary
        for cell in self.cells:
            kind = "" if cell.type == "markdown" else "/comments"
            yield f"{cell.id}{kind}", cell.words
            for key in _BESIDE:
                if words := getattr(cell, key):
                    yield f"{cell.id}/{key}", words


def load(book: Book, name: str) -> Text:
    """The text of a chapter; its cells are shared by all who load it.

    Raises:
        BookError: the file is missing or has another form; the message names file and line.
    """
    where = book.relative(book.text(name))
    return replace(_parsed(name, read_text(book.text(name), where), where), book=book)


@lru_cache(maxsize=64)
def _parsed(name: str, text: str, where: str) -> Text:
    return parse(name, text, where)


def parse(name: str, text: str, where: str = "text") -> Text:
    """A chapter from its text; `where` is the file's name in messages.

    Raises:
        BookError: the text has another form; the message names the line.
    """
    summary: Words | None = None
    cells: list[Cell] = []
    last: Words | None = None  # what a %%% zh belongs to

    def wrong(line: int, what: str) -> BookError:
        return BookError(f"{where}:{line}: {what}")

    for line, mark, body in _blocks(text, where):
        kind, _, rest = mark.partition(" ")
        words = Words(body, line)
        if kind == "summary":
            if summary:
                raise wrong(line, "a second summary")
            summary = last = words
        elif kind in ("md", "code"):
            cell = _code(rest, body, line, wrong) if kind == "code" else _prose(rest, words, wrong)
            if cell.id in (c.id for c in cells) or cell.id == "summary":
                raise wrong(line, f"the id {cell.id} is taken")
            cells.append(cell)
            last = cell.words
        elif kind == "zh":
            if last is None:
                raise wrong(line, "`%%% zh` follows nothing that could be translated")
            if last.zh is not None:
                raise wrong(line, "a second `%%% zh` for the same block")
            last.zh, last.zh_line = body, line
        elif kind in _BESIDE:
            if not cells or cells[-1].type != "code":
                raise wrong(line, f"`%%% {kind}` belongs to a code cell")
            if getattr(cells[-1], kind):
                raise wrong(line, f"a second `%%% {kind}` for {cells[-1].id}")
            if not body:
                raise wrong(line, f"`%%% {kind}` is empty")
            if kind == "predict":
                _ask(cells[-1], words, wrong)
            setattr(cells[-1], kind, words)
            last = words
        elif kind == "pitfall":
            if not cells or cells[-1].type != "code":
                raise wrong(line, "`%%% pitfall` belongs to a code cell")
            if cells[-1].pitfall:
                raise wrong(line, f"a second `%%% pitfall` for {cells[-1].id}")
            cells[-1].pitfall = body.split("\n")
            if not all(cells[-1].pitfall) or len(cells[-1].pitfall) > 2:
                raise wrong(line, "`%%% pitfall` has one or two lines: wrong code, right code")
            last = None
        else:
            raise wrong(line, f"unknown block `%%% {mark}`")
        if rest and kind not in ("md", "code"):
            raise wrong(line, f"`%%% {kind}` takes no words, got {rest!r}")
    if summary is None:
        raise wrong(1, "no `%%% summary`")
    if not cells:
        raise wrong(1, "no cells")
    for cell in cells:
        if cell.predict and cell.predict.zh is not None:
            _same_question(cell, wrong)
    return Text(name, summary, cells)


def _blocks(text: str, where: str) -> Iterator[tuple[int, str, str]]:
    """Line, mark and body of each block."""
    marks = list(_MARK.finditer(text))
    if text[: marks[0].start() if marks else None].strip():
        raise BookError(f"{where}:1: expected `%%% summary`, got text before the first block")
    for mark, following in pairwise([*marks, None]):
        body = text[mark.end() : following.start() if following else None].strip("\n")
        yield text.count("\n", 0, mark.start()) + 1, (mark[1] or "").strip(), body


def _prose(rest: str, words: Words, wrong) -> Cell:
    if not _ID.fullmatch(rest):
        raise wrong(words.line, f"an id has 1-64 letters, digits, - or _, got {rest!r}")
    if not words.en:
        raise wrong(words.line, f"{rest} is empty")
    return Cell(rest, "markdown", words.line, words)


def _code(rest: str, body: str, line: int, wrong) -> Cell:
    name, *options = rest.split() or [""]
    if not _ID.fullmatch(name):
        raise wrong(line, f"an id has 1-64 letters, digits, - or _, got {name!r}")
    metadata: dict[str, list[str]] = {}
    for option in options:
        key, _, value = option.partition("=")
        if key not in ("tags", "claims") or key in metadata or not all(value.split(",")):
            raise wrong(line, f"expected tags=a,b or claims=a,b, got {option!r}")
        metadata[key] = value.split(",")
    source = ""
    if name == SETUP:
        if body:
            raise wrong(line, "the setup cell has no body, it is the same in every chapter")
    else:
        fenced = _FENCE.fullmatch(body)
        source = (fenced[1] or "").strip("\n") if fenced else ""
        if not source:
            raise wrong(line, f"the code of {name} stands between ```python and ```")
    try:
        words = Words(said(source), line)
    except BookError as error:
        raise wrong(line, f"{name}: {error}") from None
    return Cell(name, "code", line, words, source, metadata)


def _ask(cell: Cell, words: Words, wrong) -> None:
    """Take the proofs out of a question, and look at its form."""
    if len(cell.id + questions.SUFFIX) > 64:
        raise wrong(words.line, f"{cell.id} is too long for {cell.id}{questions.SUFFIX}")
    try:
        words.en, cell.proofs = questions.split(words.en)
        questions.parse(words.en)
    except ValueError as error:
        raise wrong(words.line, f"`%%% predict` of {cell.id}: {error}") from None


def _same_question(cell: Cell, wrong) -> None:
    """The Chinese of a question has the same choices."""
    try:
        zh, en = (questions.parse(words) for words in (cell.predict.zh, cell.predict.en))
    except ValueError as error:
        raise wrong(cell.predict.zh_line, f"`%%% predict` of {cell.id}: {error}") from None
    if [c.right for c in zh.choices] != [c.right for c in en.choices]:
        raise wrong(
            cell.predict.zh_line, f"`%%% predict` of {cell.id}: other choices than in English"
        )


@cache
def comments(source: str) -> list[tuple[int, int, str]]:
    """Row (from 0), column and text of each comment of a piece of code.

    Raises:
        BookError: Python cannot read it.
    """
    if "#" not in source:
        return []
    try:
        return [
            (token.start[0] - 1, token.start[1], token.string)
            for token in tokenize.generate_tokens(io.StringIO(source).readline)
            if token.type == tokenize.COMMENT
        ]
    except (tokenize.TokenError, SyntaxError) as error:
        raise BookError(f"Python cannot read the code: {error.args[0]}") from None


def with_comments(source: str, said: list[str]) -> str:
    """The code with its comments replaced, one by one; an unequal number leaves it as it is."""
    old = comments(source)
    if len(old) != len(said):
        return source
    lines = source.split("\n")
    for (row, column, text), new in zip(old, said, strict=True):
        lines[row] = lines[row][:column] + (f"# {new}" if new else text)
    return "\n".join(lines)


def said(source: str) -> str:
    """The comments of a piece of code, one per line, without their signs."""
    return "\n".join(text.lstrip("# ") for *_, text in comments(source))


def segments(text: str, parsed: Text) -> list[str]:
    """The part of a file that belongs to each of its cells."""
    lines = list(io.StringIO(text))
    starts = [*(cell.line - 1 for cell in parsed.cells), len(lines)]
    return ["".join(lines[a:b]) for a, b in zip(starts, starts[1:], strict=False)]


def dump(cell: Cell) -> str:
    """A cell as it stands in a file."""
    kind = "md" if cell.type == "markdown" else cell.type
    options = (f"{key}={','.join(values)}" for key, values in cell.metadata.items())
    blocks = [(" ".join((kind, cell.id, *options)), cell.words.en), ("zh", cell.words.zh)]
    if cell.source:
        blocks[0] = (blocks[0][0], f"```python\n{cell.source}\n```")
    for key, words in (("alt", cell.alt), ("cause", cell.cause)):
        if words:
            blocks += [(key, words.en), ("zh", words.zh)]
    blocks += [("pitfall", "\n".join(cell.pitfall))] if cell.pitfall else []
    if cell.predict:
        asked = questions.join(cell.predict.en, cell.proofs)
        blocks += [("predict", asked), ("zh", cell.predict.zh)]
    shown = (f"%%% {mark}\n{body}".rstrip("\n") for mark, body in blocks if body is not None)
    return "\n".join(shown)
