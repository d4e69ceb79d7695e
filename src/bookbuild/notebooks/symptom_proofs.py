"""Verify symptoms: run the code of `tell` with the bug and without it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from bookbuild.notebooks.message_proofs import printed
from bookbuild.source.symptoms import Symptoms


def unproved(symptoms: Symptoms) -> Iterator[str]:
    """Yield one line for each symptom whose `tell` does not distinguish bug and correct program.

    `tell` runs in two separate processes, after the code of `broken` and after the code of `sound`.
    """
    chosen = [one for one in symptoms.symptoms if not one.found]
    codes = [
        (f"{one.id} {name}", "\n".join((symptoms.stand_in, change, "print('---')", one.tell)))
        for one in chosen
        for name, change in (("broken", one.broken), ("sound", one.sound))
    ]
    printed_by = printed(codes)
    for one in chosen:
        outputs = {
            name: printed_by.get(f"{one.id} {name}", "").partition("---\n")
            for name in ("broken", "sound")
        }
        for name, (before, mark, output) in outputs.items():
            if not mark or "Traceback" in output:
                text = (output or before).strip()[-200:]
                yield f"{one.where}: {name}: `tell` does not run: {text!r}"
                break
            if bool(re.search(one.bad, output.strip(), re.M)) != (name == "broken"):
                verb = "has not" if name == "broken" else "has"
                yield f"{one.where}: {name}: the output {verb} {one.bad!r}: {output.strip()!r}"
