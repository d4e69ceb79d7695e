"""Test the helpers of `export` against PyTorch, and its checkers with wrong answers."""

from __future__ import annotations

import io
import json
import logging
import shutil
import sys
import threading
import time
import warnings
import zipfile
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.export import Dim
from verdicts import expect

from helpers import export
from helpers.exercises import export as exercises


class Two(nn.Module):
    """Take two inputs, one of them int64, and return two outputs."""

    def forward(self, x, ids):
        return x * 2, ids + 1


class Scores(nn.Module):
    def __init__(self, width=3, classes=4):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(width, 8), nn.BatchNorm1d(8), nn.Dropout(), nn.Linear(8, classes)
        )

    def forward(self, x):
        return self.layers(x)


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    path = tmp_path_factory.mktemp("two") / "two.onnx"
    rows = {0: Dim("rows")}
    with export.quiet():
        torch.onnx.export(
            Two().eval(),
            (torch.ones(3, 2), torch.ones(3, dtype=torch.int64)),
            path,
            dynamo=True,
            dynamic_shapes={"x": rows, "ids": rows},
            input_names=["x", "ids"],
            output_names=["double", "next"],
        )
    return path


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    torch.manual_seed(0)
    model = nn.Linear(64, 64).eval()
    path = tmp_path_factory.mktemp("large") / "large.onnx"
    with export.quiet():
        torch.onnx.export(
            model,
            (torch.ones(3, 64),),
            path,
            dynamo=True,
            dynamic_shapes={"input": {0: Dim("rows")}},
            opset_version=99,
        )
    return model, path


# ---------------------------------------------------------------- ONNX


def test_onnx_model_is_called_like_the_module(two):
    model = export.OnnxModel(two)
    assert model.inputs == {"x": (("rows", 2), torch.float32), "ids": (("rows",), torch.int64)}
    assert model.outputs == ["double", "next"]
    for n in (1, 5):
        x, ids = torch.randn(n, 2, requires_grad=True), torch.arange(n)
        for got in (model(x, ids), model(x, ids=ids), model(ids=ids, x=x)):
            assert torch.equal(got[0], 2 * x) and torch.equal(got[1], ids + 1)
    for x in (torch.ones(2, 3).t()[:, :2], torch.ones(1, 2).expand(3, 2), torch._neg_view(X)):
        assert torch.equal(model(x, IDS)[0], 2 * x)
    assert model(X[:0], IDS[:0])[0].shape == (0, 2)


X, IDS = torch.ones(3, 2), torch.ones(3, dtype=torch.int64)


@pytest.mark.parametrize(
    ("args", "kwargs", "error", "says"),
    [
        ((X,), {}, TypeError, "expected the inputs x, ids, got x"),
        ((X, IDS, X), {}, TypeError, "at most 2 inputs \\(x, ids\\), got 3"),
        ((X, IDS), {"x": X}, TypeError, "each input once, got x twice"),
        ((X,), {"id": IDS}, TypeError, "expected the inputs x, ids, got x, id"),
        ((X.double(), IDS), {}, TypeError, "x must be torch.float32, got torch.float64"),
        ((X.numpy(), IDS), {}, TypeError, "x must be a tensor, got ndarray"),
        ((X[0], IDS), {}, ValueError, r"x must have the shape \('rows', 2\), got \(2,\)"),
        ((torch.ones(3, 4), IDS), {}, ValueError, "x must have the shape"),
        ((X[:2], IDS), {}, ValueError, "rows is 2 in x and 3 in ids"),
        ((X[:1], IDS), {}, ValueError, "rows is 1 in x and 3 in ids"),
        ((), {}, TypeError, "expected the inputs x, ids, got none"),
        ((X.to_sparse(), IDS), {}, TypeError, "x must be a dense tensor"),
        ((X.to("meta"), IDS), {}, TypeError, "got a meta tensor"),
    ],
)
def test_onnx_model_rejects_wrong_inputs(two, args, kwargs, error, says):
    with pytest.raises(error, match=says):
        export.OnnxModel(two)(*args, **kwargs)


def test_onnx_files_lists_all_required_files(two, large, tmp_path):
    import onnx

    model, path = large
    files = export.onnx_files(path)
    assert [file.name for file in files] == ["large.onnx", "large.onnx.data"]
    assert files[1].stat().st_size >= model.weight.nbytes > files[0].stat().st_size
    shutil.copy(path, tmp_path / "other.onnx")
    with pytest.raises(Exception, match="External data path does not exist"):
        export.OnnxModel(tmp_path / "other.onnx")
    shutil.copy(files[1], tmp_path)  # the model file may be renamed, its data file may not
    x = torch.randn(2, 64)
    torch.testing.assert_close(export.OnnxModel(tmp_path / "other.onnx")(x), model(x).detach())
    onnx.save(onnx.load(path), tmp_path / "single.onnx")
    assert export.onnx_files(tmp_path / "single.onnx") == [tmp_path / "single.onnx"]
    (tmp_path / "empty.onnx").touch()
    with pytest.raises(ValueError, match=r"a file without a graph: empty\.onnx"):
        export.onnx_files(tmp_path / "empty.onnx")


def test_unsupported_opset_version_is_replaced(large):
    import onnx

    assert 1 < onnx.load(large[1]).opset_import[0].version < 99


def test_largest_difference_returns_the_largest_deviation(large):
    model, path = large
    batches = [torch.randn(n, 64) for n in (1, 4)]
    assert export.largest_difference(model, export.OnnxModel(path), batches) < 1e-4
    other = lambda x: model(x) + (x[:, :1] > 0) * 0.5  # noqa: E731
    assert export.largest_difference(model, other, [torch.ones(1, 64), batches[1]]) == (
        pytest.approx(0.5, abs=1e-5)
    )


@pytest.mark.parametrize(
    ("other", "sizes", "says"),
    [
        (lambda x: x, (3, 3), "at least two sizes"),
        (lambda x: x, (), "at least two sizes"),
        (lambda x: x[:1], (3, 2), "outputs of one shape, got"),
        (lambda x: x * torch.nan, (3, 2), "expected finite outputs, got nan or inf"),
        (nn.Dropout(), (3, 2), "expected a model in evaluation mode"),
    ],
)
def test_largest_difference_rejects_inconclusive_comparisons(other, sizes, says):
    with pytest.raises(ValueError, match=says):
        export.largest_difference(nn.Identity().eval(), other, [torch.ones(n, 2) for n in sizes])


class Drops(nn.Module):
    def forward(self, x):
        return nn.functional.dropout(x, training=self.training)


def partly():
    model = nn.Sequential(nn.Dropout()).eval()
    model[0].train()
    return model


@pytest.mark.parametrize("model", [Drops(), partly(), nn.Linear(2, 2)])
def test_modules_in_training_mode_are_rejected(model):
    batches = [torch.ones(n, 2) for n in (1, 2)]
    with pytest.raises(ValueError, match="call eval"):
        export.largest_difference(model, lambda x: x, batches)
    with pytest.raises(ValueError, match="call eval"):
        export.accuracy(model, batches[1], torch.zeros(2, dtype=torch.int64))


def test_exported_program_is_compared_in_any_mode():
    layer, rows = nn.Linear(2, 2).eval(), ({0: Dim.DYNAMIC},)
    program = torch.export.export(layer, (torch.ones(3, 2),), dynamic_shapes=rows).module()
    assert program.training
    batches = (torch.randn(n, 2) for n in (1, 4))
    assert export.largest_difference(layer, program, batches) < 1e-6
    wrapped = nn.Sequential(program)
    wrapped.training = False
    assert export.accuracy(wrapped, torch.ones(2, 2), torch.tensor([0, 1])) == 0.5


def test_largest_difference_detects_a_model_that_changes_its_batch():
    def doubles(x):
        return x.mul_(2)

    batches = [torch.ones(n, 2) for n in (1, 2)]
    for models in ((doubles, lambda x: x), (lambda x: x, doubles)):
        assert export.largest_difference(*models, batches) == 1
    assert all((x == 1).all() for x in batches)
    assert export.largest_difference(lambda x: 1j * x, lambda x: x, batches) == pytest.approx(
        2**0.5
    )


@pytest.mark.parametrize(
    ("model", "batches", "says"),
    [
        (
            lambda x: (x, x),
            torch.ones(2, 2).split(1),
            "one tensor as the model's output, got tuple",
        ),
        (
            lambda x: x.numpy(),
            torch.ones(2, 2).split(1),
            "one tensor as the model's output, got ndarray",
        ),
        (lambda x: x, [torch.tensor(1.0)], "got a single number"),
        (lambda x: x, [(torch.ones(2), 1)], "got tuple"),
        (lambda x: x, [np.ones(2)], "got ndarray"),
        (lambda x: x, 5, "batches must be an iterable of tensors, got int"),
        (lambda x: x, torch.ones(2, 2), "batches must be an iterable of tensors, got Tensor"),
        ("model.onnx", [], "a model that can be called with a batch, got str"),
        (nn.Identity, [], "a model that can be called with a batch, got Identity"),
        (lambda x: x.to_sparse(), torch.ones(2, 2).split(1), "a dense output with values"),
        (lambda x: x.to("meta"), torch.ones(2, 2).split(1), "got a meta tensor"),
    ],
)
def test_largest_difference_rejects_other_outputs_and_models(model, batches, says):
    with pytest.raises(TypeError, match=says):
        export.largest_difference(model, model, batches)


EYE, Y = torch.eye(4), torch.arange(4)


@pytest.mark.parametrize(
    ("model", "inputs", "labels", "error", "says"),
    [
        (nn.Identity().eval(), EYE, Y[:, None], ValueError, r"got \(4, 4\) and \(4, 1\)"),
        (nn.Identity().eval(), EYE, Y[:1], ValueError, r"and \(1,\)"),
        (nn.Identity().eval(), EYE[:0], Y[:0], ValueError, "at least one sample, got none"),
        (lambda x: x[:, 0], EYE, Y, ValueError, "logits of shape"),
        (lambda x: x[:, :1], EYE, Y, ValueError, r"got \(4, 1\)"),
        (lambda x: x * torch.nan, EYE, Y, ValueError, "nan"),
        (lambda x: (x,), EYE, Y, TypeError, "got tuple"),
        (nn.Identity().eval(), EYE, EYE, TypeError, "tensor of integers, got torch.float32"),
        (nn.Identity().eval(), EYE, Y.tolist(), TypeError, "got list"),
        (nn.Identity().eval(), EYE, Y + 1, ValueError, "labels must be from 0 to 3, got 4"),
        (nn.Identity().eval(), EYE, Y - 100, ValueError, "labels must be from 0 to 3, got -100"),
        (lambda x: x > 0, EYE, Y, TypeError, "real numbers as logits, got torch.bool"),
        (EYE, EYE, Y, TypeError, "a model that can be called with a batch, got Tensor"),
    ],
)
def test_accuracy_rejects_invalid_arguments(model, inputs, labels, error, says):
    with pytest.raises(error, match=says):
        export.accuracy(model, inputs, labels)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.int64])
def test_accuracy_counts_correct_predictions(dtype):
    flipped = Y.flip(0).to(dtype)
    assert export.accuracy(lambda x: x, EYE, Y.to(dtype)) == 1
    assert export.accuracy(lambda x: x.half(), EYE, flipped) == 0


@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint32, torch.int16])
def test_onnx_model_accepts_integers_of_every_dtype(tmp_path, dtype):
    x = torch.ones(2, 3).to(dtype)
    with export.quiet():
        torch.onnx.export(nn.Flatten(0), (x,), tmp_path / "m.onnx", dynamo=True, verbose=False)
    assert torch.equal(export.OnnxModel(tmp_path / "m.onnx")(x), x.flatten())


# ---------------------------------------------------------------- claims about torch.export


def test_only_the_onnx_exporter_warns_about_training_mode(tmp_path):
    model, x = nn.Dropout(), torch.ones(2, 2)
    with warnings.catch_warnings(record=True, action="always") as caught:
        torch.export.export(model, (x,))
    assert not [w for w in caught if "training mode" in str(w.message)]
    with warnings.catch_warnings(record=True, action="always") as caught:
        torch.onnx.export(model, (x,), tmp_path / "m.onnx", dynamo=True, verbose=False)
    assert [w for w in caught if "training mode" in str(w.message)]


class Rows(nn.Module):
    def forward(self, x):
        return x * len(x)


class Plus(nn.Module):
    def forward(self, x):
        return x + 1


class Turns(nn.Module):
    def forward(self, x):
        return 2 * x if x.shape[0] > 3 else -x


def test_exported_program_checks_sizes_but_not_dtype_and_rank():
    x = torch.ones(3, 2)
    program = torch.export.export(Plus(), (x,)).module()
    for other in (torch.ones(2, 2), torch.ones(3, 5)):
        with pytest.raises(AssertionError, match="Guard failed"):
            program(other)
    assert program(x.double()).dtype == torch.float64
    assert program(x[:, :, None]).shape == (3, 2, 1)

    rows = ({0: Dim.DYNAMIC},)
    turns = torch.export.export(Turns(), (x,), dynamic_shapes=rows).module()
    assert torch.equal(turns(x[:2]), -x[:2])
    with pytest.raises(AssertionError, match="Guard failed"):
        turns(torch.ones(5, 2))


def test_onnx_file_for_uint8_rejects_floats(tmp_path):
    class Divides(nn.Module):
        def forward(self, pixels):
            return pixels / 16

    pixels = torch.ones(3, 2, dtype=torch.uint8)
    with export.quiet():
        torch.onnx.export(Divides().eval(), (pixels,), tmp_path / "m.onnx", dynamo=True)
    model = export.OnnxModel(tmp_path / "m.onnx")
    assert torch.equal(model(pixels), pixels / 16)
    with pytest.raises(Exception, match="Unexpected input data type"):
        model.session.run(None, {"pixels": np.ones((3, 2), np.float32)})


@pytest.mark.filterwarnings("ignore")
def test_dynamic_quantization_converts_only_some_layers():
    kinds = {nn.Linear, nn.Conv2d}
    model = nn.Sequential(nn.Conv2d(1, 1, 1), nn.Linear(3, 3))
    small = torch.ao.quantization.quantize_dynamic(model, kinds)
    assert type(small[0]) is nn.Conv2d and type(small[1]) is not nn.Linear

    known = [nn.Linear, nn.LSTM, nn.GRU, nn.LSTMCell, nn.GRUCell, nn.RNNCell]
    left = [nn.RNN, nn.Bilinear, nn.Embedding, nn.EmbeddingBag, nn.ConvTranspose2d]
    makes, three = [*known, *left], (nn.Bilinear, nn.ConvTranspose2d)
    net = nn.ModuleList([kind(*(3, 3, 3)[: 3 if kind in three else 2]) for kind in makes])
    small = torch.ao.quantization.quantize_dynamic(net)
    assert [kind for kind, one in zip(makes, small, strict=True) if type(one) is kind] == left


def test_rejected_export_marks_its_example():
    x = torch.ones(3, 2)
    with export.quiet(), pytest.raises(Exception, match="Constraints violated"):
        torch.export.export(Rows(), (x,), dynamic_shapes=({0: Dim.DYNAMIC},))
    assert getattr(x, "_dynamo_dynamic_indices", None) or hasattr(x, "_dynamo_dynamic_range")


def test_why_not_returns_the_reason_and_keeps_the_example():
    x, rows = torch.ones(3, 2), ({0: Dim.DYNAMIC},)
    before = set(vars(x))
    assert export.why_not(Plus(), x) is None
    assert export.why_not(Plus(), x, dynamic_shapes=rows) is None
    assert export.why_not(Rows(), x) is None
    refused = export.why_not(Rows(), x, dynamic_shapes=rows)
    assert refused == "UserError: Constraints violated (L['x'].size()[0])"
    assert "specialized due to hint of 1" in export.why_not(Plus(), x[:1], dynamic_shapes=rows)
    assert set(vars(x)) == before


class Pair(nn.Module):
    def forward(self, pair, by):
        return pair["a"] * by + pair["b"][0]


def test_why_not_accepts_containers_and_numbers():
    x = torch.ones(3, 2)
    assert export.why_not(Pair(), {"a": x, "b": (x, [x])}, 2.0) is None
    assert export.why_not(Plus(), None).startswith("TypeError")
    named = export.why_not(Plus(), x, dynamic_shapes={"y": {0: Dim.DYNAMIC}})
    assert "they are ['y']" in named and "For more" not in named


def test_quiet_in_two_threads_restores_the_state(capsys):
    inside, first_left = threading.Event(), threading.Event()
    before = logging.root.manager.disable, sys.stdout, warnings.filters[:]

    def second():
        with export.quiet():
            inside.set()
            assert first_left.wait(10)
            print("lost")

    with ThreadPoolExecutor(1) as pool:
        with export.quiet():
            later = pool.submit(second)
            assert inside.wait(10)
            with export.quiet():
                print("lost")
        first_left.set()
        later.result()
    assert (logging.root.manager.disable, sys.stdout, warnings.filters[:]) == before
    print("kept")
    assert capsys.readouterr().out == "kept\n"


def test_quiet_propagates_errors_and_restores_the_output(capsys):
    with pytest.raises(KeyError), export.quiet():
        print("lost")
        warnings.warn("lost", stacklevel=1)
        raise KeyError("kept")
    print("kept")
    assert capsys.readouterr().out == "kept\n"


@pytest.mark.filterwarnings("ignore")
def test_torchscript_warns_at_each_step(tmp_path):
    layer, x = nn.Linear(2, 2).eval(), torch.ones(1, 2)
    path = str(tmp_path / "t.pt")
    result = {}
    steps = {
        "trace": lambda: result.setdefault("t", torch.jit.trace(layer, x)),
        "script": lambda: torch.jit.script(layer),
        "save": lambda: torch.jit.save(result["t"], path),
        "load": lambda: torch.jit.load(path),
    }
    for name, step in steps.items():
        for _ in range(2):
            with warnings.catch_warnings(record=True, action="always") as caught:
                step()
            assert [w for w in caught if f"torch.jit.{name}` is deprecated" in str(w.message)]


# ---------------------------------------------------------------- a release

CONFIG = {"width": 3, "classes": 4}


def save(folder, model=None, classes=("a", "b", "c", "d"), example=None, **how):
    torch.manual_seed(0)
    model = Scores() if model is None else model
    example = torch.randn(5, 3) if example is None else example
    how = {"config": CONFIG, "preprocessing": {"mean": [0.5]}, "classes": classes} | how
    export.save_release(folder, model, example, **how)
    return model


def test_release_round_trips(tmp_path):
    model = save(tmp_path / "one")
    assert all(m.training for m in model.modules())  # saving keeps the mode
    release = export.load_release(tmp_path / "one", Scores)
    x = torch.randn(7, 3)
    torch.testing.assert_close(release.model(x), model.eval()(x).detach())
    assert not any(m.training for m in release.model.modules())
    assert not any(p.requires_grad for p in release.model.parameters())
    assert release.classes == list("abcd") and release.preprocessing == {"mean": [0.5]}
    assert release.versions["torch"] == torch.__version__
    assert not list(tmp_path.glob("*.tmp"))
    with pytest.raises(TypeError, match="the model's class or a function as build, got a model"):
        export.load_release(tmp_path / "one", release.model)
    program = torch.export.export(model.eval(), (x,)).module()
    with pytest.raises(TypeError, match="got an exported or traced program"):
        save(tmp_path / "two", program)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False)
        self.b.weight = self.a.weight

    def forward(self, x):
        return self.b(self.a(x))


def test_release_keeps_tied_weights(tmp_path):
    save(tmp_path / "one", Tied(), [*"abc"], config={})
    model = export.load_release(tmp_path / "one", Tied).model
    assert model.b.weight is model.a.weight


def test_failed_save_release_leaves_no_files(tmp_path):
    save(tmp_path / "one")
    with pytest.raises(FileExistsError, match="never overwritten"):
        save(tmp_path / "one")
    with pytest.raises(ValueError, match=r"expected logits for 3 classes, got \(5, 4\)"):
        save(tmp_path / "two", classes=[*"abc"])
    with pytest.raises(TypeError):
        save(tmp_path / "two", preprocessing={"mean": torch.ones(1)})
    cases = [
        ({"classes": [0, 1, 2, 3]}, TypeError, "expected strings as names of classes, got 0"),
        ({"classes": "abcd"}, TypeError, "expected a list of strings as classes, got str"),
        ({"classes": {*"abcd"}}, TypeError, "list of strings as classes, got set"),
        ({"classes": {"a": 1, "b": 0, "c": 2, "d": 3}}, TypeError, "strings as classes, got dict"),
        ({"model": Scores}, TypeError, "expected a module as model, got Scores"),
        ({"config": [1]}, TypeError, "expected a dict as config, got list"),
        (
            {"preprocessing": {"a": [{1: 2}]}},
            TypeError,
            "strings as keys of preprocessing, got 1",
        ),
        ({"preprocessing": {"mean": torch.nan}}, TypeError, "value that JSON cannot represent"),
        ({"example": X.numpy()}, TypeError, "one tensor as the example, got ndarray"),
        ({"example": torch.ones(0, 3)}, ValueError, "a batch of one or more"),
        ({"model": Spoilt(lambda x: x / 0)}, ValueError, "expected finite logits for the example"),
        ({"model": Spoilt(lambda x: x + torch.rand_like(x))}, ValueError, "a second run"),
        ({"model": Spoilt(lambda x: (x, x))}, TypeError, "model's output, got tuple"),
        (
            {"model": Sparse(), "classes": [*"abc"]},
            RuntimeError,
            "unsupported memory format option",
        ),
    ]
    for how, error, says in cases:
        with pytest.raises(error, match=says):
            save(tmp_path / "two", **how)
    assert [p.name for p in tmp_path.iterdir()] == ["one"]


class Spoilt(Scores):
    def __init__(self, change):
        super().__init__()
        self.change = change

    def forward(self, x):
        return self.change(super().forward(x))


class Sparse(nn.Module):
    """Register a sparse buffer, which `save_release` cannot write."""

    def __init__(self):
        super().__init__()
        self.register_buffer("eye", torch.eye(3).to_sparse())

    def forward(self, x):
        return (self.eye @ x.t()).t()


class InPlace(Scores):
    def forward(self, x):
        x -= 1
        return super().forward(x)


def test_release_is_independent_of_model_mode_and_folders(tmp_path):
    """Cover in-place models, classes from a generator, a neighbouring folder and any load mode."""
    (tmp_path / "one.tmp").mkdir()
    (tmp_path / "one.tmp" / "mine").write_text("x")
    save(tmp_path / "one", InPlace(), classes=(c for c in "abcd"))
    assert (tmp_path / "one.tmp" / "mine").exists()
    with torch.inference_mode(), torch.device("meta"):
        weight = export.load_release(tmp_path / "one", InPlace).model.layers[0].weight
    assert weight.device.type == "cpu" and not weight.is_inference()


def test_load_release_reports_damaged_files(tmp_path):
    from safetensors.torch import load_file, save_file

    save(tmp_path / "one")
    for name in ("release.json", "weights.safetensors", "example.safetensors"):
        for content in (b"", b"\x80\x04cposix\nsystem\n"):
            shutil.copytree(tmp_path / "one", tmp_path / "bad")
            (tmp_path / "bad" / name).write_bytes(content)
            with pytest.raises(export.ReleaseError, match=f"{name} is damaged"):
                export.load_release(tmp_path / "bad", Scores)
            shutil.rmtree(tmp_path / "bad")

    card = tmp_path / "one" / "release.json"
    good = json.loads(card.read_text("utf8"))
    changed = (
        ({"config": None}, "lacks config"),
        ({"classes": ["a"]}, "1 classes for 4 logits"),
        ({"config": {"depth": 3}}, "does not build the model: TypeError"),
    )
    for change, says in changed:
        card.write_text(json.dumps(good | change), "utf8")
        with pytest.raises(export.ReleaseError, match=says):
            export.load_release(tmp_path / "one", Scores)
    card.write_text(json.dumps(good), "utf8")

    example = tmp_path / "one" / "example.safetensors"
    pair = load_file(example)
    changed = (
        ({"input": pair["input"]}, "lacks output"),
        (pair | {"input": torch.ones(2, 5)}, "cannot be run: RuntimeError"),
        (pair | {"output": pair["output"].double()}, "of torch.float64, now"),
        (pair | {"output": pair["output"] * torch.nan}, "other logits"),
    )
    for change, says in changed:
        save_file(change, example)
        with pytest.raises(export.ReleaseError, match=says):
            export.load_release(tmp_path / "one", Scores)
    with pytest.raises(export.ReleaseError, match="expected a module from build, got NoneType"):
        export.load_release(tmp_path / "one", lambda **config: None)


class Runs:
    """Call `ran` when unpickled."""

    def __reduce__(self):
        return ran, ()


RAN = []


def ran():
    RAN.append(True)


def test_loading_a_pt2_file_can_run_code(tmp_path):
    torch.export.save(torch.export.export(Plus(), (torch.ones(2),)), tmp_path / "good.pt2")
    payload = io.BytesIO()
    torch.save(Runs(), payload)
    with (
        zipfile.ZipFile(tmp_path / "good.pt2") as good,
        zipfile.ZipFile(tmp_path / "bad.pt2", "w") as bad,
    ):
        for name in good.namelist():
            swap = "sample_inputs" in name and name.endswith(".pt")
            bad.writestr(name, payload.getvalue() if swap else good.read(name))
    with export.quiet(), pytest.raises(AssertionError):
        torch.export.load(tmp_path / "bad.pt2")
    assert RAN


class Other(Scores):
    def forward(self, x):
        return super().forward(x) * 1.1


class Wider(Scores):
    def forward(self, x):
        return torch.cat([super().forward(x)] * 2, 1)


def test_load_release_rejects_another_model(tmp_path):
    save(tmp_path / "one")
    for build, says in (
        (Other, "other logits than when it was saved"),
        (Wider, r"gave \(5, 4\), now \(5, 8\)"),
        (lambda width, classes: Scores(width, classes + 1), "the weights do not match Scores"),
    ):
        with pytest.raises(export.ReleaseError, match=says):
            export.load_release(tmp_path / "one", build)
    (tmp_path / "one" / "example.safetensors").unlink()
    with pytest.raises(export.ReleaseError, match="one lacks example.safetensors"):
        export.load_release(tmp_path / "one", Scores)


def test_release_card_is_plain_json(tmp_path):
    save(tmp_path / "one", classes=["猫", "b", "c", "d"])
    card = json.loads((tmp_path / "one" / "release.json").read_text("utf8"))
    assert card["classes"][0] == "猫" and card["config"] == CONFIG


# ---------------------------------------------------------------- threads


def test_autocast_and_inference_mode_are_thread_local():
    with torch.inference_mode(), torch.autocast("cpu"), ThreadPoolExecutor(1) as pool:
        found = pool.submit(
            lambda: (torch.is_inference_mode_enabled(), torch.is_autocast_enabled("cpu"))
        ).result()
    assert found == (False, False)


# ---------------------------------------------------------------- exercises


@torch.inference_mode()
def answers(model, requests):
    if not requests:
        return []
    return model(torch.stack(requests)).argmax(1).tolist()


@torch.no_grad()
def answers_another_way(model, requests):
    if len(requests) == 0:
        return []
    scores = model(torch.cat([x[None] for x in requests]))
    return [int(row.argmax()) for row in scores]


def without_graph(f):
    return torch.no_grad()(f)


def squeezed(model, requests):
    if not requests:
        return []
    return model(torch.stack(requests)).squeeze().argmax(-1).tolist()


def one_by_one(model, requests):
    return [model(x[None]).argmax().item() for x in requests]


def own_mode(model, requests):
    model.eval()
    return answers(model, requests)


def trained(model, requests):
    before = model.training
    model.train()
    found = answers(model, requests)
    model.train(before)
    return found


def with_graph(model, requests):
    return model(torch.stack(requests)).argmax(1).tolist() if requests else []


def switched_off(model, requests):
    torch.set_grad_enabled(False)
    return answers(model, requests)


def empty_breaks(model, requests):
    return without_graph(lambda: model(torch.stack(requests)).argmax(1).tolist())()


def tensors(model, requests):
    return list(without_graph(lambda: model(torch.stack(requests)).argmax(1))())


def wrong_axis(model, requests):
    return without_graph(lambda: model(torch.stack(requests)).argmax(0).tolist())()


def changes(model, requests):
    for x in requests:
        x.mul_(2)
    return answers(model, requests)


def pops(model, requests):
    found = answers(model, requests)
    requests.clear()
    return found


def frozen(model, requests):
    model.requires_grad_(False)
    found = answers(model, requests)
    model.requires_grad_(True)
    return found


def mode_of_the_layers(model, requests):
    for layer in model.layers:
        layer.training = True
    for layer in model.layers:
        layer.training = False
    return answers(model, requests)


def switched_on(model, requests):
    torch.set_grad_enabled(False)
    found = answers(model, requests)
    torch.set_grad_enabled(True)
    return found


def kept_in_the_model(model, requests):
    model.requests = requests
    return answers(model, model.requests)


LAST = {}


def weights_changed(model, requests):
    found = answers(model, requests)
    with torch.no_grad():
        model.layers[0].weight.mul_(2)
    return found


def statistics_changed(model, requests):
    found = answers(model, requests)
    model.layers[1].running_mean.zero_()
    return found


def hook_left(model, requests):
    model.register_forward_hook(lambda *arguments: None)
    return answers(model, requests)


def kept_for_all(model, requests):
    if not requests:
        return []
    with torch.inference_mode():
        LAST["scores"] = model(torch.stack(requests))
    time.sleep(0.02)
    return LAST["scores"].argmax(1).tolist()


def the_first_sixteen(model, requests):
    return answers(model, requests[:16])


LOCK = threading.Lock()


def one_at_a_time(model, requests):
    with LOCK:
        return answers(model, requests)


def in_its_own_thread(model, requests):
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(answers, model, requests).result()


def stack_of_rows(model, requests):
    if not len(requests):
        return []
    with torch.no_grad():
        return model.forward(torch.vstack(requests)).topk(1).indices[:, 0].cpu().numpy().tolist()


def main_thread_only(model, requests):
    """Build no graph in the main thread, but one in every other thread."""
    if threading.current_thread() is threading.main_thread():
        return answers(model, requests)
    return with_graph(model, requests)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (answers, None),
        (answers_another_way, None),
        (one_at_a_time, None),
        (in_its_own_thread, None),
        (stack_of_rows, None),
        (frozen, "do not change its parameters"),
        (mode_of_the_layers, "do not change its mode"),
        (switched_on, "switched on for the caller"),
        (kept_in_the_model, "an attribute is left on the model"),
        (weights_changed, "layers.0.weight of the model was changed"),
        (statistics_changed, "layers.1.running_mean of the model was changed"),
        (hook_left, "a hook is left on the model"),
        (kept_for_all, "got the result of the other"),
        (the_first_sixteen, "wrong for several requests"),
        (without_graph(squeezed), "return a list, got int"),
        (without_graph(one_by_one), "put all requests into one batch"),
        (own_mode, None),  # it is in eval mode already
        (trained, "change its mode"),
        (with_graph, "graphs were recorded"),
        (switched_off, "gradients stay switched off"),
        (empty_breaks, "RuntimeError"),
        (tensors, "must be int"),
        (wrong_axis, "wrong for several requests"),
        (changes, "requests[0] was changed"),
        (pops, "requests was changed: entries were"),
        (main_thread_only, "graphs were recorded"),
        (lambda model, requests: None, "return a list"),
    ],
)
def test_check_answers_accepts_right_and_rejects_wrong_answers(answer, says):
    for seed in range(3):
        torch.manual_seed(seed)
        expect(exercises.check_answers(answer), says)
    assert torch.is_grad_enabled()


def module(function):
    class Clip(nn.Module):
        def forward(self, x):
            return function(x)

    return Clip


def cond(x):
    return torch.cond(
        x.norm() > 1, lambda x: x / x.norm() * x.shape[0], lambda x: x * x.shape[0], (x,)
    )


def branch(x):
    return (x / x.norm() if x.norm() > 1 else x) * x.shape[0]


def in_place(x):
    x /= x.norm().clamp(min=1)
    return x * x.shape[0]


class ClipInTraining(nn.Module):
    def forward(self, x):
        return x / x.norm().clamp(min=1) * x.shape[0] if self.training else x * x.shape[0]


class ClipWithBuffer(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("one", torch.ones(()))

    def forward(self, x):
        return x / torch.maximum(x.norm(), self.one) * x.shape[0]


class ClipUpToSeven(nn.Module):
    def forward(self, x):
        if torch.compiler.is_compiling():
            torch._check(x.shape[0] <= 7)
        return x / x.norm().clamp(min=1) * x.shape[0]


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (module(lambda x: x / x.norm().clamp(min=1) * x.shape[0]), None),
        (module(lambda x: x / torch.where(x.norm() > 1, x.norm(), 1) * x.shape[0]), None),
        (
            module(lambda x: torch.where(x.norm() > 1, x / x.norm(), x) * x.shape[0]),
            "the gradient is nan, wrong for zeros",
        ),
        (
            module(lambda x: x / torch.where(x.norm() > 1.5, x.norm(), 1) * x.shape[0]),
            "just above 1",
        ),
        (module(lambda x: x / x.view(-1).norm().clamp(min=1) * x.shape[0]), "not yet"),
        (module(lambda x: x * x.shape[0] / torch.clamp_min(x.norm(), 1)), None),
        (module(cond), None),
        (module(branch), "torch.export raises: GuardOnDataDependent"),
        (
            module(lambda x: x / x.norm().clamp(min=1) * len(x)),
            "torch.export raises: UserError: Constr",
        ),
        (module(lambda x: x / x.norm().clamp(min=1) * 4), "wrong"),
        (module(lambda x: x / x.norm() * x.shape[0]), "below 1"),
        (module(lambda x: x / x.norm(dim=1, keepdim=True).clamp(min=1) * x.shape[0]), "above 1"),
        (module(lambda x: x / max(x.norm().item(), 1) * x.shape[0]), "torch.export raises"),
        (module(lambda x: x * x.shape[0]), "above 1"),
        (module(in_place), "the input was changed"),
        (module(lambda x: x.sum()), "expected shape"),
        (module(lambda x: x.div(torch.linalg.norm(x).clamp_min(1)) * x.size(0)), None),
        (module(lambda x: x * x.shape[0] / torch.where(x.norm() > 1, x.norm(), 1)), None),
        (module(lambda x: x / x.norm().clamp(min=1) * (x.numel() // 3)), "wrong"),
        (
            module(lambda x: x.float() / x.float().norm().clamp(min=1) * x.shape[0]),
            "expected torch.float64",
        ),
        (module(lambda x: x / x.norm().clamp(min=1) * min(x.shape[0], 7)), "batch of forty"),
        (module(lambda x: x / x.norm().clamp(1, 6) * x.shape[0]), "far above 1"),
        (module(lambda x: (x.reshape(-1, 3) / x.norm().clamp(min=1)) * x.shape[0]), "not yet"),
        (ClipInTraining, "in evaluation mode wrong where"),
        (ClipWithBuffer, None),
        (ClipUpToSeven, "raises for 40 rows"),
        (lambda: None, "expected a subclass of nn.Module"),
    ],
)
def test_check_clip_accepts_right_and_rejects_wrong_answers(answer, says):
    torch.manual_seed(0)
    expect(exercises.check_clip(answer), says)


@torch.no_grad()
def quantize(weight):
    weight = weight.float()
    scale = weight.abs().amax(1, keepdim=True) / 127
    steps = torch.where(scale > 0, weight / scale, 0)
    return steps.round().to(torch.int8), scale[:, 0]


def quantize_with_floor(weight):
    weight = weight.detach().double()
    scale = (weight.abs().max(dim=1).values / 127).clamp(min=1e-12)
    return (weight / scale[:, None]).round().clamp(-127, 127).char(), scale


def column_of_scales(weight):
    q, scale = quantize(weight)
    return q, scale[:, None]


def for_all(weight):
    scale = weight.detach().abs().max() / 127
    return (weight.detach() / scale).round().char(), scale.expand(len(weight))


def cut_off(weight):
    _q, scale = quantize_with_floor(weight)
    return (weight.detach() / scale[:, None]).char(), scale


def by_columns(weight):
    scale = weight.detach().abs().amax(0) / 127
    return (weight.detach() / scale).round().char(), scale


def zero_over_zero(weight):
    scale = weight.detach().abs().amax(1) / 127
    return (weight.detach() / scale[:, None]).round().char(), 1 / (1 / scale) / (scale / scale)


def by_128(weight):
    scale = (weight.detach().abs().amax(1) / 128).clamp(min=1e-12)
    return (weight.detach() / scale[:, None]).round().clamp(-128, 127).char(), scale


def by_largest(weight):
    scale = (weight.detach().amax(1) / 127).clamp(min=1e-12)
    return (weight.detach() / scale[:, None]).round().clamp(-127, 127).char(), scale


def row_by_row(weight):
    rows = [quantize(row[None]) for row in weight]
    return [torch.cat(parts) for parts in zip(*rows, strict=True)]


def in_the_dtype_of_the_weight(weight):
    scale = weight.detach().abs().amax(1, keepdim=True) / 127
    return torch.where(scale > 0, weight.detach() / scale, 0).round().char(), scale


def nan_to_num(weight):
    weight = weight.detach().float()
    scale = weight.abs().amax(1) / 127
    return torch.nan_to_num(weight / scale[:, None]).round().char(), scale


def at_least(weight, least=1e-5):
    weight = weight.detach()
    scale = weight.abs().amax(1).clamp(min=least) / 127
    return (weight / scale[:, None]).round().char(), scale


def plus_a_little(weight):
    weight = weight.detach()
    scale = weight.abs().amax(1) / 127 + 1e-8
    return (weight / scale[:, None]).round().char(), scale


def weight_frozen(weight):
    return quantize(weight.requires_grad_(False))


def gradients_off(weight):
    torch.set_grad_enabled(False)
    return quantize(weight)


def not_all_zeros(weight):
    assert weight.any()
    return quantize(weight)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (row_by_row, None),
        (nan_to_num, None),
        (in_the_dtype_of_the_weight, "wrong for a weight in torch."),
        (at_least, "wrong where rows differ in size"),
        (plus_a_little, "the scale of a row"),
        (lambda w: (quantize(w)[0], quantize(w)[1].half()), "more than half a step"),
        (weight_frozen, "requires_grad of the weight was changed"),
        (gradients_off, "stay switched off"),
        (not_all_zeros, "not yet"),
        (quantize, None),
        (quantize_with_floor, None),
        (column_of_scales, None),
        (for_all, "the scale of a row"),
        (cut_off, "more than half a step"),
        (by_columns, "one for each row"),
        (zero_over_zero, "not finite"),
        (by_128, "the scale of a row"),
        (lambda w: (quantize(w)[0], quantize(w)[1] * 0.9992), "the scale of a row"),
        (by_largest, "the scale of a row"),
        (lambda w: torch.manual_seed(0) and quantize(w), "the random state of torch was changed"),
        (lambda w: quantize(w)[0], "return a tuple"),
        (lambda w: (quantize(w)[0].float(), quantize(w)[1]), "must be int8"),
        (lambda w: (quantize(w)[0], w.abs().amax(1).clamp(min=1e-9) / 127), "has a graph"),
        (lambda w: (quantize(w)[0], quantize(w.data.mul_(1))[1].double() * 1.01), "the scale"),
    ],
)
def test_check_quantize_accepts_right_and_rejects_wrong_answers(answer, says):
    torch.manual_seed(0)
    expect(exercises.check_quantize(answer), says)


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 6), st.integers(1, 6), st.integers(0, 99))
def test_quantization_error_is_at_most_half_a_step(rows, columns, seed):
    torch.manual_seed(seed)
    weight = torch.randn(rows, columns) * 10 ** torch.randint(-3, 4, (rows, 1))
    q, scale = quantize(weight)
    assert ((q * scale[:, None] - weight).abs() <= 0.501 * scale[:, None]).all()
    assert np.abs(q.numpy().astype(int)).max() <= 127


def test_save_release_rejects_extra_state(tmp_path):
    class Extra(Scores):
        def get_extra_state(self):
            return {"vocabulary": 3}

        def set_extra_state(self, state):
            pass

    with pytest.raises(TypeError, match="tensors only, _extra_state is dict"):
        save(tmp_path / "release", Extra())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_release_keeps_the_dtype_of_the_model(tmp_path, dtype):
    example = torch.randn(2, 3, dtype=dtype)
    save(tmp_path / "release", Scores().to(dtype), example=example)
    assert next(export.load_release(tmp_path / "release", Scores).model.parameters()).dtype == dtype


@pytest.mark.parametrize(
    ("wrap", "advice"),
    [
        (lambda m: torch.compile(m, backend="eager"), "OptimizedModule around it: use model._orig"),
        (nn.DataParallel, "DataParallel around it: use model.module"),
        (lambda m: nn.Sequential(nn.DataParallel(m)), "DataParallel around it: use model.0.module"),
    ],
)
def test_save_release_rejects_a_wrapped_model(tmp_path, wrap, advice):
    with pytest.raises(TypeError, match=advice):
        save(tmp_path / "release", wrap(Scores()))
    assert not (tmp_path / "release").exists()


@pytest.mark.parametrize("dtype", [torch.uint8, torch.uint16, torch.uint32, torch.uint64])
def test_accuracy_accepts_unsigned_labels(dtype):
    logits = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    assert export.accuracy(lambda x: x, logits, torch.tensor([0, 0]).to(dtype)) == 0.5


def test_bool_labels_and_sparse_or_meta_examples_raise(tmp_path):
    with pytest.raises(TypeError, match="tensor of integers, got torch.bool"):
        export.accuracy(lambda x: x, torch.eye(2), torch.tensor([True, False]))
    known = {"config": {}, "preprocessing": {}, "classes": ["a", "b"]}
    for example in (torch.eye(3).to_sparse(), torch.zeros(2, 3, device="meta")):
        with pytest.raises(TypeError, match="expected a dense example with values"):
            export.save_release(tmp_path / "release", nn.Linear(3, 2), example, **known)
