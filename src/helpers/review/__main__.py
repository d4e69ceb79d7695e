"""Run the command line `python -m helpers.review`."""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
from collections.abc import Collection

from helpers.figures import language
from helpers.review.reading import Source, Unread, sources
from helpers.review.registry import RULES
from helpers.review.report import WORDS, record, shown, total
from helpers.review.review import Finding, review, words


def main(arguments: list[str] | None = None) -> int:
    """Review files, folders and notebooks, and print the findings.

    Returns:
        Exit code: 0 without findings, 1 with findings, 2 if no file could be read, 130 on Ctrl+C.
    """
    parser = _parser()
    chosen = parser.parse_args(arguments)
    lang = chosen.lang or language()
    for name in (*(chosen.only or ()), *chosen.skip):
        if name not in RULES:
            parser.error(f"no rule {name!r}; --list prints all")
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")
    try:
        if chosen.list:
            print("\n".join(_listed(lang)))
            return 0
        if not chosen.paths:
            parser.error("no file: name files or folders, or - for the standard input")
        return _run(chosen, lang)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader closed the pipe, as `| head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m helpers.review",
        description="Find the pitfalls of the book in training code. "
        "The code is not executed. `# noqa: <id>` at the end of a line disables a rule there.",
    )

    def ids(text: str) -> list[str]:
        return [name for name in text.replace(",", " ").split() if name]

    parser.add_argument("paths", nargs="*", help="files, folders, notebooks; -: standard input")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--lang", choices=sorted(WORDS), help="default: from the locale")
    parser.add_argument("--list", action="store_true", help="print all rules and exit")
    parser.add_argument("--only", type=ids, metavar="IDS", help="apply only these rules")
    parser.add_argument("--skip", type=ids, metavar="IDS", default=[], help="skip these rules")
    return parser


def _listed(lang: str) -> list[str]:
    w = WORDS[lang]
    return [
        f"{name} ({w[rule.severity]}){w['colon']}{words()[name]['effect'][lang]}"
        for name, rule in sorted(RULES.items())
    ]


def _run(chosen: argparse.Namespace, lang: str) -> int:
    rules = {name for name in chosen.only or RULES if name not in chosen.skip}
    records, unread, files = [], [], 0
    gc.set_threshold(200_000)  # the trees of a file are garbage together, when it is reviewed
    for source in sources(chosen.paths):
        if isinstance(source, Source):
            source, findings = _reviewed(source, rules)
        if isinstance(source, Unread):
            unread.append(source)
            line = WORDS[lang]["unread"].format(path=source.path, reason=source.reason)
            print(line, file=sys.stderr)
            continue
        files += 1
        records += [record(source, finding, lang) for finding in findings]
        if not chosen.json:
            for finding in findings:
                print(shown(source, finding, lang), end="\n\n")
    if chosen.json:
        report = {
            "findings": records,
            "unread": [vars(problem) for problem in unread],
            "files": files,
        }
        print(json.dumps(report | {"rules": sorted(rules)}, ensure_ascii=False, indent=1))
    else:
        print(total(len(records), files, lang))
    return 1 if records else 2 if unread and not files else 0


def _reviewed(source: Source, rules: Collection[str]) -> tuple[Source | Unread, list[Finding]]:
    try:
        return source, review(source.text, rules)
    except RecursionError:
        return Unread(source.path, "an expression is nested too deeply"), []


if __name__ == "__main__":
    sys.exit(main())
