"""The `book` command."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from bookbuild.source.checkout import Book, BookError, fingerprint, program, write_text

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
@click.version_option(package_name="executable-pytorch-notes")
def main() -> None:
    """Write, prove and build the book that the current directory is in."""


@main.command()
@NAMES
@click.option(
    "--accept",
    multiple=True,
    metavar="CHAPTER[::CELL]",
    help="Its Chinese holds for today's English.",
)
@click.option("--again", is_flag=True, help="Run the chapters even if nothing changed.")
def update(names: tuple[str, ...], accept: tuple[str, ...], again: bool) -> None:
    """Make notebooks, pages and stamps from the texts; run what changed; check it."""
    from bookbuild.commands.check import check, waiting
    from bookbuild.commands.update import update

    book = Book.find()
    names = names or tuple(dict.fromkeys(a.partition("::")[0] for a in accept))
    failed = update(book, names, accept, again, echo=click.echo)
    late = waiting(book)
    for piece in late:
        click.echo(f"waits: {piece}")
    if late:
        click.echo(
            f"{len(late)} translation{'s wait' if len(late) != 1 else ' waits'}; "
            f"one that still holds: book update --accept {late[0].chapter}::{late[0].cell}"
        )
    _tell(failed + check(book, names))


@main.command()
@click.argument("name", metavar="CHAPTER")
def adopt(name: str) -> None:
    """Take what was edited in a chapter's notebooks into its text, and update."""
    from bookbuild.commands.adopt import adopt
    from bookbuild.commands.check import check
    from bookbuild.commands.update import update

    book = Book.find()
    for cell in adopt(book, name):
        click.echo(f"book/text/{name}.md: took {cell}")
    _tell(update(book, [name], over=True, echo=click.echo) + check(book, [name]))


@main.command()
@NAMES
@click.option("--release", is_flag=True, help="A translation that waits is a problem, too.")
def check(names: tuple[str, ...], release: bool) -> None:
    """Prove what needs no kernel; a line for each problem, exit 1 if there is one.

    What had no problem has none while all contents stay: then nothing is proved anew.
    """
    book = Book.find()
    proved, now = book.root / "_build/proved", _contents(book, names, release)
    if proved.is_file() and proved.read_bytes() == now.encode():
        return _tell([])
    import gc

    from bookbuild.commands.check import check

    gc.disable()  # it would take a quarter of the time, and the process ends soon
    problems = check(book, names, release)
    if not problems and now == _contents(book, names, release):
        write_text(proved, now)
    _tell(problems)


def _contents(book: Book, names: tuple[str, ...], release: bool) -> str:
    """What a check depends on."""
    folders = ("book", "src/helpers", "tests/helpers")
    files = [path for folder in folders for path in (book.root / folder).rglob("*")]
    files += [book.root / name for name in ("_config.yml", "_toc.yml", "requirements.txt")]
    files += Path(__file__).parents[1].glob("helpers/*.py")  # those that work here
    return "\n".join([fingerprint(files), str(release), *names, *program()])


def _tell(problems: list[str]) -> None:
    """Print problems, a line each, and exit 1 if there is one."""
    for problem in problems:
        click.echo(problem)
    click.echo(f"{len(problems)} problem{'s' * (len(problems) != 1)}", err=True)
    sys.exit(1 if problems else 0)


@main.command()
@click.argument("names", metavar="[ID]...", nargs=-1)
def messages(names: tuple[str, ...]) -> None:
    """Prove the wordings of book/messages: run their code, look into the installed PyTorch."""
    from importlib.util import find_spec

    from bookbuild.notebooks import message_proofs
    from bookbuild.source import messages

    book = Book.find()
    entries = messages.load(book)
    installed = [find_spec(name) for name in ("torch", "torchvision")]
    folders = [Path(spec.origin).parent for spec in installed if spec]
    chosen = [e for e in entries if not names or e.id in names]
    _tell([*messages.problems(book, entries), *message_proofs.unproved(book, chosen, folders)])


@main.command()
@click.option("--pdf", is_flag=True, help="Also print each language; Chromium does it.")
@click.option("--epub", is_flag=True, help="Also make a book for readers of each language.")
@click.option("--zip", is_flag=True, help="Also pack all of it for reading and running offline.")
def build(**kinds: bool) -> None:
    """Build both languages into _build/site, warnings as errors; executes nothing.

    What is made beside the pages lies at the root of the site, and its home pages offer it.
    """
    from bookbuild.commands.build import build

    for path in build(Book.find(), [kind for kind, wanted in kinds.items() if wanted]):
        click.echo(f"{path}: {path.stat().st_size / 1e6:.1f} MB")


@main.command()
@click.option("--port", default=8000, show_default=True, help="A free one is taken if it is not.")
def serve(port: int) -> None:
    """Serve the built site on 127.0.0.1."""
    from bookbuild.site import server

    book = Book.find()
    built = book.root / "_build/site"
    if not built.is_dir():
        raise BookError("there is no site yet: run `book build`")
    server.serve(built, port)


@main.command()
def status() -> None:
    """Show when each chapter was last proved, on what, and how its translation stands."""
    from bookbuild import pages

    click.echo(pages.status_table(Book.find()))
