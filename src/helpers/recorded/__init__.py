"""Numbers that only a GPU can give: measured here when there is one, else read from a recording.

A recording is `recorded/<name>.json`, written by `book record` on a machine with a GPU. It keeps
the device, the versions and the date beside the values: a page can say where they come from.
"""

from __future__ import annotations

import datetime
import json
import platform
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
MISSING = "not measured on a GPU yet"


@dataclass(frozen=True)
class Recording:
    """A measurement with its provenance."""

    name: str
    device: str
    torch: str
    cuda: str
    python: str
    date: str
    values: Any
    live: bool = False

    @property
    def provenance(self) -> str:
        """Where the values come from, in one line for the reader."""
        how = "measured now" if self.live else f"recorded on {self.date}"
        return f"{how}: {self.device}, PyTorch {self.torch}, CUDA {self.cuda}"


def gpu(name: str, measure: Callable[[], Any]) -> Recording | None:
    """Measure now if there is a CUDA device, else load `name`; None if nobody has measured it yet.

    Args:
        name: the recording's name, the file's name without `.json`.
        measure: called without arguments on a machine with CUDA; returns what `json` can write.

    Raises:
        ValueError: the recorded file is damaged or incomplete.
    """
    import torch

    if torch.cuda.is_available():
        return _measure(name, measure)
    return load(name)


def load(name: str, folder: Path = FOLDER) -> Recording | None:
    """Read a recording; None if the file does not exist.

    Raises:
        ValueError: the file is not JSON or lacks a field.
    """
    path = folder / f"{name}.json"
    if not path.exists():
        return None
    try:
        return Recording(**json.loads(path.read_text("utf8")))
    except (ValueError, TypeError) as error:
        raise ValueError(f"recording {path.name} is damaged: {error}") from None


def record(name: str, measure: Callable[[], Any], folder: Path = FOLDER) -> Path:
    """Measure on this machine's GPU and write `<name>.json`, whole or not at all.

    Raises:
        RuntimeError: there is no CUDA device; the file is left as it was.
    """
    import torch

    if not torch.cuda.is_available():
        raise RuntimeError(f"cannot record {name!r}: this machine has no CUDA device")
    fields = asdict(_measure(name, measure))
    del fields["live"]
    path = folder / f"{name}.json"
    partial = path.with_suffix(".json.part")
    partial.write_text(json.dumps(fields, indent=1) + "\n", "utf8")
    partial.replace(path)
    return path


def _measure(name: str, measure: Callable[[], Any]) -> Recording:
    import torch

    return Recording(
        name=name,
        device=torch.cuda.get_device_name(),
        torch=torch.__version__,
        cuda=str(torch.version.cuda),
        python=platform.python_version(),
        date=datetime.date.today().isoformat(),
        values=json.loads(json.dumps(measure())),
        live=True,
    )
