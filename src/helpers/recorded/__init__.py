"""Numbers that only a GPU can give: measured here when there is one, else read from a recording.

A recording is `recorded/<name>.json`, written by `book record` on a machine with a GPU. It keeps
the device, the versions and the date beside the values: a page can say where they come from.
"""

from __future__ import annotations

import datetime
import json
import platform
import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
# `record_<name>` in `helpers.measure.<chapter>` measures what `<name>.json` keeps.
RECORDINGS: dict[str, tuple[str, ...]] = {
    "cuda_semantics": ("device_messages", "device_clock", "device_copies"),
    "memory_caching": ("allocator_trace", "device_memory"),
    "training_loop": ("device_mixed_precision",),
    "data_parallel": ("device_data_parallel",),
    "reproducibility": ("device_streams", "device_repeats", "device_tf32"),
}
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


def repeated(measure: Callable[[], dict[str, Any]], times: int = 5) -> dict[str, Any]:
    """Measure several times over: the numbers of all runs, and what was the same in each of them.

    Args:
        measure: returns the same keys each time.
        times: how often to call it.

    Returns:
        For each key a list of its values in order; a value that is not a number, such as a message
        or a bool, stands alone where all runs agree.

    Raises:
        ValueError: `times` is less than 1.
    """
    if times < 1:
        raise ValueError(f"times must be at least 1, got {times}")
    runs = [measure() for _ in range(times)]
    values = {key: [run[key] for run in runs] for key in runs[0]}
    return {
        key: each[0] if not _is_number(each[0]) and each.count(each[0]) == times else each
        for key, each in values.items()
    }


def error_line(action: Callable[[], object]) -> str:
    """The first line of the error that `action` raises, or "no error"."""
    try:
        action()
    except Exception as error:
        return f"{type(error).__name__}: {error}".splitlines()[0]
    return "no error"


def report(recording: Recording | None) -> None:
    """Print a recording whose values are a dict, a line each, and where it was measured.

    Numbers of repeated runs are shown as their median and range.
    """
    if recording is None:
        print(MISSING)
        return
    for key, value in recording.values.items():
        print(f"{key}: {_readable(value)}")
    print(f"device: {recording.provenance}")


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _readable(value: Any) -> str:
    if isinstance(value, list) and value and all(map(_is_number, value)):
        low, middle, high = min(value), statistics.median(value), max(value)
        return f"{middle:.3g} ({low:.3g} to {high:.3g} in {len(value)} runs)"
    return f"{value:.3g}" if isinstance(value, float) else str(value)


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
