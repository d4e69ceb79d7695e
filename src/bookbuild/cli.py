"""The `book` command."""

from __future__ import annotations

import sys
from pathlib import Path

# jsonschema, which nbformat imports, would compile a grammar for addresses: seconds, for nothing.
sys.modules.setdefault("rfc3987_syntax", None)

import click  # noqa: E402

from bookbuild.notebooks import Book, BookError  # noqa: E402

NAMES = click.argument("names", metavar="[CHAPTER]...", nargs=-1)


class Commands(click.Group):
    """Shows a `BookError` as one message instead of a traceback."""

    def invoke(self, ctx: click.Context):
        """Run the command."""
        try:
            return super().invoke(ctx)
        except BookError as error:
            click.echo(f"book: {error}", err=True)
            ctx.exit(1)


@click.group(cls=Commands)
def main() -> None:
    """Write, prove and build the book that the current directory is in."""


@main.command()
@NAMES
def run(names: tuple[str, ...]) -> None:
    """Execute the English notebooks and store their outputs."""
    from bookbuild.run import run

    run(Book.find(), names, echo=click.echo)


@main.command()
@NAMES
@click.option("--keep", multiple=True, metavar="CHAPTER::CELL", help="Its Chinese still holds.")
def sync(names: tuple[str, ...], keep: tuple[str, ...]) -> None:
    """Carry code and outputs to the Chinese notebooks; exit 1 if a cell needs translating."""
    from bookbuild.sync import sync

    sys.exit(1 if sync(Book.find(), names, keep, echo=click.echo) else 0)


@main.command()
@NAMES
def check(names: tuple[str, ...]) -> None:
    """Prove what needs no kernel; a line for each problem, exit 1 if there is one."""
    from bookbuild.check import check

    problems = check(Book.find(), names)
    for problem in problems:
        click.echo(problem)
    click.echo(f"{len(problems)} problem{'s' * (len(problems) != 1)}", err=True)
    sys.exit(1 if problems else 0)


@main.command()
@NAMES
def unpack(names: tuple[str, ...]) -> None:
    """Write chapters, both languages side by side, as text files to edit."""
    from bookbuild.notebooks import write_text
    from bookbuild.text import text_file, unpack

    book = Book.find()
    for name in book.choose(names):
        write_text(text_file(book, name), unpack(book, name))
        click.echo(text_file(book, name).relative_to(book.root))


@main.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False))
def pack(files: tuple[str, ...]) -> None:
    """Write the notebooks of both languages from text files made by `book unpack`."""
    from bookbuild.text import pack

    for file in files:
        name = pack(Book.find(), Path(file).read_text("utf8"))
        click.echo(f"{name}: written; now `book run {name}` and `book sync {name}`")


@main.command()
@click.option("--zip", "zipped", is_flag=True, help="Also pack the site for reading offline.")
def build(zipped: bool) -> None:
    """Build both languages into _build/site, warnings as errors; executes nothing."""
    from bookbuild import pages, site

    book = Book.find()
    pages.write_status(book)
    built = site.build(book.root)
    if zipped:
        click.echo(site.zip_site(built))


@main.command()
@click.option("--port", default=8000, show_default=True, help="A free one is taken if it is not.")
def serve(port: int) -> None:
    """Serve the built site on 127.0.0.1."""
    from bookbuild import site

    book = Book.find()
    built = book.root / "_build/site"
    if not built.is_dir():
        raise BookError("there is no site yet: run `book build`")
    site.serve(built, port)


@main.command()
@NAMES
def record(names: tuple[str, ...]) -> None:
    """Measure on this machine's GPU what the chapters ask for, into src/helpers/recorded."""
    from bookbuild.record import record

    record(Book.find(), names, echo=click.echo)


@main.command()
def pages() -> None:
    """Make cheat sheet, errors, then and now and status from the chapters; exit 1 on a problem."""
    from bookbuild import pages

    book = Book.find()
    for path in pages.generate(book):
        click.echo(path.relative_to(book.root))
    problems = pages.stale(book)
    for problem in problems:
        click.echo(problem)
    sys.exit(1 if problems else 0)


@main.command()
def status() -> None:
    """Show when each chapter was last proved, on what, and how its translation stands."""
    from bookbuild import pages

    click.echo(pages.status_table(Book.find()))
