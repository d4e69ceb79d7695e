"""Recording measurements: all that the chapters offer, each whole or not at all."""

from __future__ import annotations

import sys
import types

import pytest
import torch

from bookbuild.commands.record import record, recordings
from bookbuild.source.checkout import BookError
from helpers import recorded


@pytest.fixture
def gpu(book, monkeypatch, tmp_path):
    """Pretend that there is a GPU and that both chapters have something to measure on it."""
    for name, offers in {"adding": {"sum": lambda: 3}, "failing": {"bad": lambda: 1 / 0}}.items():
        module = types.ModuleType(f"helpers.measure.{name}")
        vars(module).update({f"record_{what}": measure for what, measure in offers.items()})
        monkeypatch.setitem(sys.modules, module.__name__, module)
        monkeypatch.setitem(recorded.RECORDINGS, name, tuple(offers))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "A pretended GPU")
    folder = tmp_path / "recorded"
    folder.mkdir()
    monkeypatch.setattr(recorded.record, "__defaults__", (folder,))
    return folder


def test_what_is_measured_is_written_and_what_fails_is_named(book, gpu):
    said = []
    with pytest.raises(BookError, match="1 of 2 recordings failed"):
        record(book, echo=said.append)
    assert "bad: ZeroDivisionError: division by zero" in said[1]
    assert [p.name for p in gpu.iterdir()] == ["sum.json"]
    assert recorded.load("sum", gpu).values == 3


def test_only_the_chapters_asked_for(book, gpu):
    record(book, ["adding"], echo=lambda line: None)
    assert [p.name for p in gpu.iterdir()] == ["sum.json"]


def test_a_chapter_without_recordings_measures_nothing(book):
    assert recordings(book) == {}


def test_without_a_gpu_nothing_is_recorded(book, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(BookError, match="no CUDA device"):
        record(book)
