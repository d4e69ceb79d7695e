"""Parse the source of a chapter, `book/text/<chapter>.md`, with both languages and one code.

    %%% summary                     a line for search engines and lists of chapters
    What the chapter shows.
    %%% zh                          the Chinese of the block above
    这一章讲什么。

    %%% md detach-why               a prose cell and its id
    English
    %%% zh
    中文

    %%% queries                     queries that the section answers, a line each
    stop gradient flow
    截断梯度

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

    %%% pitfall                     for the page of pitfalls: wrong code, then right code
    y = x
    y = x.detach()

    %%% predict                     question before the cell: see questions.py
    Does `y` share its memory with `x`?
    + Yes
      `detach` cuts the graph and copies nothing.
      = assert y.data_ptr() == x.data_ptr()
    ...

    %%% code setup tags=setup,remove-cell

The setup cell has no body, because all chapters share it. In prose, `{{ oldest_pytorch }}` is the
oldest version of PyTorch that the chapter ran under, and an empty link such as
`[](detach.ipynb#anchor)` gets the title of the section it leads to.

Jupytext's MyST format is not used: it drops cell ids and stores one language per file, so that
a translator and a reviewer would look at two diffs instead of one.
"""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from itertools import pairwise
from typing import NamedTuple

from bookbuild.source import questions
from bookbuild.source.basics import nearest
from bookbuild.source.checkout import Book, BookError, read_text
from bookbuild.source.headings import headings

_MARK = re.compile(r"^%%%(?: (.*))?$", re.M)
_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_FENCE = re.compile(r"```python\n(.*\n)?```", re.S)
_BESIDE = ("alt", "cause", "predict")  # translated fields besides a cell's prose or comments
SETUP = "setup"
OLDEST = "{{ oldest_pytorch }}"
TAGS = {
    "wrong": "code that readers should not write; marked on the page",
    "right": "code to write instead; marked on the page",
    "raises-exception": "the cell raises, and its `%%% cause` gives the reason",
    "exercise": "a starter, whose output contains ✗",
    "solution": "a solution, whose output contains ✓",
    "hide-cell": "folded on the page",
    "remove-cell": "not on the page",
    "setup": "the first cell, the same in every chapter",
}
_CONTRARY = ({"wrong", "right"}, {"exercise", "solution"})
_MAX_LINE = 5_000  # limit of a line, in characters
_LONGEST_QUERY = 60  # characters
_CONFLICT = re.compile(r"(?:<{7}|>{7}|\|{7})(?: |$)|={7}$")
_PLACEHOLDER = re.compile(r"\{\{ [^{}\n]*\}\}|\{\{\w{4,}\}\}")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ufeff]")


@dataclass
class Words:
    """A piece of text in both languages; `zh` is None if it is not translated."""

    en: str
    line: int
    zh: str | None = None
    zh_line: int = 0

    def in_language(self, lang: str) -> str:
        """Return the text in `lang`, in English without a translation."""
        return (self.zh or self.en) if lang == "zh" else self.en


@dataclass
class Cell:
    """A cell of a chapter: prose, or code with alt text, cause, pitfall and question.

    `words` is the text of a prose cell, or the comments of a code cell, one per line.
    """

    id: str
    type: str  # "markdown" or "code", as in a notebook
    line: int
    words: Words
    source: str = ""  # code with English comments; empty for prose
    metadata: dict[str, list[str]] = field(default_factory=dict)  # tags, claims
    alt: Words | None = None
    cause: Words | None = None
    pitfall: list[str] = field(default_factory=list)  # wrong code, and right code if there is any
    predict: Words | None = None  # question before the cell, without proofs
    proofs: list[str] = field(default_factory=list)  # proof of each choice of the question
    queries: list[str] = field(default_factory=list)  # search queries, for prose with a heading


@dataclass
class Text:
    """A parsed chapter: name, summary and cells."""

    name: str
    summary: Words
    cells: list[Cell]
    book: Book | None = None  # needed to fill in placeholders and empty links

    def pieces(self) -> Iterator[tuple[str, Words]]:
        """Yield (name, words) of each translated piece in order; names are `detach-cuts/cause`."""
        yield "summary", self.summary
        for cell in self.cells:
            kind = "" if cell.type == "markdown" else "/comments"
            yield f"{cell.id}{kind}", cell.words
            for key in _BESIDE:
                if words := getattr(cell, key):
                    yield f"{cell.id}/{key}", words


def load(book: Book, name: str) -> Text:
    """Return the text of a chapter from a cache; callers must not modify its cells.

    Raises:
        BookError: the file is missing or malformed; the message gives file and line.
    """
    where = book.relative(book.text(name))
    return replace(_parsed(name, read_text(book.text(name), where), where), book=book)


@lru_cache(maxsize=64)
def _parsed(name: str, text: str, where: str) -> Text:
    return parse(name, text, where)


def parse(name: str, text: str, where: str = "text") -> Text:
    """Parse the text of a chapter; error messages call the file `where`.

    Raises:
        BookError: the text is malformed; the message gives the line.
    """
    try:
        _check_lines(text)
        return _Parser().parse(name, text)
    except _FormError as error:
        raise BookError(f"{where}:{error.line}: {error}") from None


class _FormError(Exception):
    """Raised for a malformed line of a text."""

    def __init__(self, line: int, problem: str) -> None:
        super().__init__(problem)
        self.line = line


def _check_lines(text: str) -> None:
    """Raise for a BOM, control characters, overlong lines, merge conflicts and misspelt marks."""
    if text.startswith("\ufeff"):
        raise _FormError(1, "begins with a byte order mark; save the file as UTF-8 without BOM")
    for number, line in enumerate(text.split("\n"), 1):
        if len(line) > _MAX_LINE:
            raise _FormError(number, f"line of {len(line)} characters, at most {_MAX_LINE}")
        if character := _CONTROL.search(line):
            raise _FormError(number, f"control character U+{ord(character[0]):04X}")
        if _CONFLICT.match(line):
            raise _FormError(number, f"a mark of a merge conflict: {line[:40]!r}")
        if _LIKE_MARK.match(line) and not _MARK.fullmatch(line):
            raise _FormError(number, f"expected a mark such as `%%% zh`, got {line[:40]!r}")


class _Block(NamedTuple):
    """A block of a text: line number, kind, rest of the mark line, and body."""

    line: int
    kind: str
    rest: str
    body: str

    def error(self, problem: str) -> _FormError:
        return _FormError(self.line, problem)


class _Parser:
    """Parser that collects the summary and the cells from the blocks of a text."""

    def __init__(self) -> None:
        self.summary: Words | None = None
        self.cells: dict[str, Cell] = {}
        self.words: Words | None = None  # the words that the next `%%% zh` translates

    def parse(self, name: str, text: str) -> Text:
        """Return the chapter."""
        for block in _blocks(text):
            if block.kind not in self.BLOCKS:
                hint = nearest(block.kind, self.BLOCKS, f"expected {', '.join(self.BLOCKS)}")
                raise block.error(f"unknown block `%%% {block.kind}`: {hint}")
            if block.rest and block.kind not in ("md", "code"):
                raise block.error(f"`%%% {block.kind}` takes no words, got {block.rest!r}")
            self.BLOCKS[block.kind](self, block)
        if self.summary is None:
            raise _FormError(1, "no `%%% summary`")
        if not self.cells:
            raise _FormError(1, "no cells")
        result = Text(name, self.summary, [*self.cells.values()])
        for cell in result.cells:
            if cell.predict and cell.predict.zh is not None:
                _check_same_question(cell)
        _check_placeholders(result)
        return result

    def take_summary(self, block: _Block) -> None:
        if self.summary:
            raise block.error("a second summary")
        self.summary = self.words = Words(block.body, block.line)

    def take_cell(self, block: _Block) -> None:
        cell = _code(block) if block.kind == "code" else _prose(block)
        if cell.id in self.cells or cell.id == "summary":
            raise block.error(f"the id {cell.id} is taken")
        self.cells[cell.id] = cell
        self.words = cell.words

    def take_chinese(self, block: _Block) -> None:
        if self.words is None:
            raise block.error("`%%% zh` follows nothing that could be translated")
        if self.words.zh is not None:
            raise block.error("a second `%%% zh` for the same block")
        self.words.zh, self.words.zh_line = block.body, block.line

    def take_queries(self, block: _Block) -> None:
        cell, lines = next(reversed(self.cells.values()), None), block.body.split("\n")
        if cell is None or cell.type != "markdown" or not headings(cell.words.en):
            raise block.error("`%%% queries` belongs to a prose cell with a heading")
        if cell.queries:
            raise block.error(f"a second `%%% queries` for {cell.id}")
        if not all(line.strip() and len(line) <= _LONGEST_QUERY for line in lines):
            raise block.error(f"a query is a line of 1-{_LONGEST_QUERY} characters")
        cell.queries, self.words = lines, None

    def take_beside(self, block: _Block) -> None:
        cell, words = self._code_cell(block), Words(block.body, block.line)
        if not block.body:
            raise block.error(f"`%%% {block.kind}` is empty")
        if block.kind == "predict":
            _take_proofs(cell, words)
        setattr(cell, block.kind, words)
        self.words = words

    def take_pitfall(self, block: _Block) -> None:
        cell, lines = self._code_cell(block), block.body.split("\n")
        if not all(lines) or len(lines) > 2:
            raise block.error("`%%% pitfall` has one or two lines: wrong code, right code")
        cell.pitfall, self.words = lines, None

    def _code_cell(self, block: _Block) -> Cell:
        """Return the code cell that a block belongs to."""
        cell = next(reversed(self.cells.values()), None)
        if cell is None or cell.type != "code":
            raise block.error(f"`%%% {block.kind}` belongs to a code cell")
        if getattr(cell, block.kind):
            raise block.error(f"a second `%%% {block.kind}` for {cell.id}")
        return cell

    BLOCKS: dict[str, Callable[[_Parser, _Block], None]] = {
        "summary": take_summary,
        "md": take_cell,
        "code": take_cell,
        "zh": take_chinese,
        "queries": take_queries,
        "alt": take_beside,
        "cause": take_beside,
        "predict": take_beside,
        "pitfall": take_pitfall,
    }


# A misspelt mark: percent signs and a block kind with wrong spacing, count or width.
_LIKE_MARK = re.compile(rf"\s*(?:[%％]{{3,}}|[%％]{{2}}\s*(?:{'|'.join(_Parser.BLOCKS)})\b)")


def _blocks(text: str) -> Iterator[_Block]:
    marks = list(_MARK.finditer(text))
    if text[: marks[0].start() if marks else None].strip():
        raise _FormError(1, "expected `%%% summary`, got text before the first block")
    line, end = 1, 0
    for mark, following in pairwise([*marks, None]):
        body = text[mark.end() : following.start() if following else None].strip("\n")
        line, end = line + text.count("\n", end, mark.start()), mark.start()
        kind, _, rest = (mark[1] or "").strip().partition(" ")
        yield _Block(line, kind, rest, body)


def _prose(block: _Block) -> Cell:
    if not _ID.fullmatch(block.rest):
        raise block.error(f"an id has 1-64 letters, digits, - or _, got {block.rest!r}")
    if not block.body:
        raise block.error(f"{block.rest} is empty")
    return Cell(block.rest, "markdown", block.line, Words(block.body, block.line))


def _code(block: _Block) -> Cell:
    name, *options = block.rest.split() or [""]
    if not _ID.fullmatch(name):
        raise block.error(f"an id has 1-64 letters, digits, - or _, got {name!r}")
    metadata: dict[str, list[str]] = {}
    for option in options:
        key, _, value = option.partition("=")
        if key not in ("tags", "claims") or key in metadata or not all(value.split(",")):
            raise block.error(f"expected tags=a,b or claims=a,b, got {option!r}")
        metadata[key] = value.split(",")
    if problem := tag_problem(metadata.get("tags", [])):
        raise block.error(f"{name}: {problem}")
    source = ""
    if name == SETUP:
        if block.body:
            raise block.error("the setup cell has no body, it is the same in every chapter")
    else:
        fenced = _FENCE.fullmatch(block.body)
        source = (fenced[1] or "").strip("\n") if fenced else ""
        if not source:
            raise block.error(f"the code of {name} must be between ```python and ```")
    try:
        words = Words(comment_words(source), block.line)
    except BookError as error:
        raise block.error(f"{name}: {error}") from None
    return Cell(name, "code", block.line, words, source, metadata)


def tag_problem(tags: list[str]) -> str:
    """Return the first problem of a cell's tags, "" if there is none."""
    for tag in tags:
        if tag not in TAGS:
            hint = nearest(tag, TAGS, f"expected {', '.join(TAGS)}")
            return f"unknown tag {tag!r}: {hint}"
        if tags.count(tag) > 1:
            return f"the tag {tag} is given twice"
    for pair in _CONTRARY:
        if pair <= {*tags}:
            return f"the tags {' and '.join(sorted(pair))} contradict each other"
    return ""


def _take_proofs(cell: Cell, words: Words) -> None:
    """Move the proofs of a question into `cell.proofs`, and raise if it is malformed."""
    if len(cell.id + questions.SUFFIX) > 64:
        raise _FormError(words.line, f"{cell.id} is too long for {cell.id}{questions.SUFFIX}")
    try:
        words.en, cell.proofs = questions.split(words.en)
        questions.parse(words.en)
    except ValueError as error:
        raise _FormError(words.line, f"`%%% predict` of {cell.id}: {error}") from None


def _check_same_question(cell: Cell) -> None:
    """Raise if the choices of a question differ between the languages."""
    line = cell.predict.zh_line
    try:
        zh, en = (questions.parse(words) for words in (cell.predict.zh, cell.predict.en))
    except ValueError as error:
        raise _FormError(line, f"`%%% predict` of {cell.id}: {error}") from None
    if [c.right for c in zh.choices] != [c.right for c in en.choices]:
        raise _FormError(line, f"`%%% predict` of {cell.id}: other choices than in English")


def _check_placeholders(text: Text) -> None:
    """Raise if words contain an unknown placeholder."""
    prose = {cell.id for cell in text.cells if cell.type == "markdown"}
    for piece, words in text.pieces():
        known = (OLDEST,) if piece in prose else ()
        for line, body in ((words.line, words.en), (words.zh_line, words.zh or "")):
            for match in _PLACEHOLDER.finditer(body):
                if match[0] not in known:
                    row = line + 1 + body.count("\n", 0, match.start())
                    expected = f"expected {OLDEST}" if known else "only prose cells have any"
                    raise _FormError(row, f"unknown placeholder {match[0]}: {expected}")


@cache
def comments(source: str) -> list[tuple[int, int, str]]:
    """Return (row, column, text) of each comment in code; rows start at 0.

    Raises:
        BookError: Python cannot tokenize the code.
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


def with_comments(source: str, new: list[str]) -> str:
    """Return code with its comments replaced by `new`; unchanged if their number differs."""
    old = comments(source)
    if len(old) != len(new):
        return source
    lines = source.split("\n")
    for (row, column, text), words in zip(old, new, strict=True):
        lines[row] = lines[row][:column] + (f"# {words}" if words else text)
    return "\n".join(lines)


def comment_words(source: str) -> str:
    """Return the comments of code, one per line, without `#`."""
    return "\n".join(text.lstrip("# ") for *_, text in comments(source))


def segments(text: str, parsed: Text) -> list[str]:
    """Split a file's text into the parts that belong to its cells."""
    lines = list(io.StringIO(text))
    starts = [*(cell.line - 1 for cell in parsed.cells), len(lines)]
    return ["".join(lines[a:b]) for a, b in zip(starts, starts[1:], strict=False)]


def dump(cell: Cell) -> str:
    """Return the source text of a cell, the inverse of parsing."""
    kind = "md" if cell.type == "markdown" else cell.type
    options = (f"{key}={','.join(values)}" for key, values in cell.metadata.items())
    blocks = [(" ".join((kind, cell.id, *options)), cell.words.en), ("zh", cell.words.zh)]
    blocks += [("queries", "\n".join(cell.queries))] if cell.queries else []
    if cell.source:
        blocks[0] = (blocks[0][0], f"```python\n{cell.source}\n```")
    for key, words in (("alt", cell.alt), ("cause", cell.cause)):
        if words:
            blocks += [(key, words.en), ("zh", words.zh)]
    blocks += [("pitfall", "\n".join(cell.pitfall))] if cell.pitfall else []
    if cell.predict:
        question = questions.join(cell.predict.en, cell.proofs)
        blocks += [("predict", question), ("zh", cell.predict.zh)]
    shown = (f"%%% {mark}\n{body}".rstrip("\n") for mark, body in blocks if body is not None)
    return "\n".join(shown)
