"""The views-and-copies chapter's helpers and exercises: solutions pass, starters and traps fail."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers import views_and_copies as vc
from helpers.demos import views_and_copies as demos
from helpers.exercises import Verdict
from helpers.exercises import views_and_copies as exercises


def test_same_storage():
    x = torch.arange(6.0)
    assert vc.same_storage(x, x) and vc.same_storage(x[:2], x[4:])
    assert vc.same_storage(x, x.detach()) and vc.same_storage(x.view(2, 3).t(), x)
    assert not vc.same_storage(x, x.clone()) and not vc.same_storage(x, torch.arange(6.0))
    empty = torch.empty(0)
    assert not vc.same_storage(empty, torch.empty(0)) and not vc.same_storage(empty, empty)
    assert vc.same_storage(x[:0], x)  # no elements, but over a storage that has some


@pytest.mark.parametrize("code", demos.TABLE)
def test_the_table_runs_the_code_it_names(code):
    for t in (torch.arange(12.0).reshape(3, 4), torch.arange(12.0).reshape(3, 4).t()):
        y = eval(code, {"t": t, "torch": torch})
        z = demos.TABLE[code](t)
        assert y.dtype == z.dtype and y.stride() == z.stride() and torch.equal(y, z)
        before = t.clone()
        y.fill_(-1)
        kind = vc.view_or_copy(demos.TABLE[code], before)
        assert (y is t) == (kind == "itself")
        assert torch.equal(t, before) == (kind == "copy")  # a write through it tells the same


def test_the_table_wants_small_float_matrices():
    assert list(demos.copy_table(torch.ones(2, 2))) == list(demos.TABLE)
    for wrong in (torch.ones(3), torch.ones(1, 4), torch.ones(3, 4, dtype=torch.int64)):
        with pytest.raises(ValueError, match=r"expected floating point tensors of at least 2 by 2"):
            demos.copy_table(wrong)


@st.composite
def strided(draw):
    sizes = draw(st.lists(st.integers(1, 5), min_size=0, max_size=4))
    t = torch.arange(torch.Size(sizes).numel()).reshape(sizes)
    if sizes:
        t = t.permute(draw(st.permutations(range(len(sizes)))))
        for d in range(t.ndim):
            start, step = draw(st.integers(0, t.shape[d] - 1)), draw(st.integers(1, 3))
            t = t[(slice(None),) * d + (slice(start, None, step),)]
    return t


@settings(deadline=None, max_examples=50)
@given(strided())
def test_storage_cells_of_any_strides(t):
    assert torch.equal(vc.storage_cells(t), t)  # the storage holds 0, 1, 2, …


def test_storage_cells_of_odd_tensors():
    assert vc.storage_cells(torch.ones(2, 1).expand(2, 3)).tolist() == [[0, 0, 0], [1, 1, 1]]
    assert vc.storage_cells(torch.tensor(3.0)).shape == ()
    assert vc.storage_cells(torch.empty(0, 3)).shape == (0, 3)
    assert vc.storage_cells(torch.ones(4, dtype=torch.float16)[2:]).tolist() == [2, 3]


def test_draw_storage_labels_the_cells_in_memory_order():
    import matplotlib.pyplot as plt

    nchw = torch.rand(1, 3, 1, 2)
    last = nchw.to(memory_format=torch.channels_last)
    figure = demos.draw_storage({"a": nchw, "b": last})

    def place(text):  # from left to right, the upper line first
        x, y = text.get_position()
        return x, -y

    labels = [[t.get_text() for t in sorted(a.texts, key=place)] for a in figure.axes]
    assert labels[0][::2] == ["c0", "c0", "c1", "c1", "c2", "c2"]
    assert labels[1][::2] == ["c0", "c1", "c2"] * 2
    assert labels[1][1::2] == ["0,0"] * 3 + ["0,1"] * 3
    plt.close(figure)


@pytest.mark.parametrize(
    ("tensors", "says"),
    [
        ({}, "at least one tensor"),
        ({"t": torch.ones(2, 3, 2, 2)}, r"got \(2, 3, 2, 2\) for 't'"),
        ({"t": torch.ones(1, 5, 2, 2)}, r"got \(1, 5, 2, 2\)"),
        ({"t": torch.ones(3, 2, 2)}, r"got \(3, 2, 2\)"),
        ({"t": torch.ones(1, 3, 2, 4)[..., ::2]}, "every cell of its storage once"),
        ({"t": torch.ones(1, 1, 2, 2).expand(1, 3, 2, 2)}, "every cell of its storage once"),
    ],
)
def test_draw_storage_refuses(tensors, says):
    with pytest.raises(ValueError, match=says):
        demos.draw_storage(tensors)


def test_gradient_after():
    assert demos.gradient_after(lambda s: None) == 0.25
    assert demos.gradient_after(lambda s: s.clone().zero_()) == 0.25
    assert demos.gradient_after(lambda s: s.detach().zero_()) == "caught"
    assert demos.gradient_after(lambda s: s.data.zero_()) == 0.0


# ---------------------------------------------------------------- exercises


def position(t, index):
    return t.storage_offset() + sum(i * s for i, s in zip(index, t.stride(), strict=True))


def by_address(t, index):
    return (t[index].data_ptr() - t.untyped_storage().data_ptr()) // t.element_size()


def without_offset(t, index):
    return sum(i * s for i, s in zip(index, t.stride(), strict=True))


def as_if_contiguous(t, index):
    cell = 0
    for i, n in zip(index, t.shape, strict=True):
        cell = cell * n + i
    return cell


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (position, None),
        (by_address, None),
        (lambda t, index: int(vc.storage_cells(t)[index]), None),
        (without_offset, "the offset is missing: shape (4, 4), stride (9, 2), offset 73"),
        (as_if_contiguous, "take the strides as they are"),
        (lambda t, i: t.storage_offset() + as_if_contiguous(t, i), "take the strides as they are"),
        (lambda t, i: position(t, i[::-1]), "got cell"),
        (lambda t, i: position(t, i) + 1, "got cell 60"),
        (lambda t, i: t[i], "expected an int, got Tensor"),
        (lambda t, i: ..., "expected an int, got ellipsis"),
    ],
)
def test_position(answer, says):
    for seed in range(20):
        torch.manual_seed(seed)
        verdict = exercises.check_position(answer)
        assert verdict.passed == (says is None), verdict
        assert says is None or says in verdict.message


def split_heads(x, heads):
    return x.unflatten(2, (heads, -1)).transpose(1, 2)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (split_heads, None),
        (lambda x, h: x.view(*x.shape[:2], h, -1).permute(0, 2, 1, 3), None),
        (lambda x, h: x.reshape(x.shape[0], h, x.shape[1], -1), "the numbers are scrambled"),
        (lambda x, h: x.unflatten(2, (-1, h)).permute(0, 3, 1, 2), "the numbers are scrambled"),
        (lambda x, h: split_heads(x, h).contiguous(), "but they were copied"),
        (lambda x, h: split_heads(x.contiguous(), h), "but they were copied"),
        (lambda x, h: torch.stack(x.chunk(h, 2), 1), "but they were copied"),
        (lambda x, h: x.unflatten(2, (h, -1))[..., None], "expected shape"),
        (lambda x, h: None, "expected a tensor, got NoneType"),
    ],
)
def test_split_heads(answer, says):
    for seed in range(20):
        torch.manual_seed(seed)
        verdict = exercises.check_split_heads(answer)
        assert verdict.passed == (says is None), verdict
        assert says is None or says in verdict.message


def compact(state):
    return {
        name: t.clone() if t.untyped_storage().nbytes() > t.nbytes else t
        for name, t in state.items()
    }


def clone_unless_contiguous(state):
    return {k: t if t.is_contiguous() and k != "row" else t.clone() for k, t in state.items()}


def clone_unless_equal(state):
    sizes = {k: t.untyped_storage().nbytes() for k, t in state.items()}
    return {k: t if sizes[k] == t.nbytes else t.clone() for k, t in state.items()}


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (compact, None),
        (dict, "row holds 40 bytes in a storage of 4000"),
        (
            lambda s: {k: t.contiguous() for k, t in s.items()},
            "row holds 40 bytes in a storage of 4000",
        ),
        (lambda s: {k: t.clone() for k, t in s.items()}, "weight filled its storage"),
        (clone_unless_contiguous, "turned filled its storage"),
        (clone_unless_equal, "now takes 1200"),
        (lambda s: {k: t.double() for k, t in s.items()}, "row has changed"),
        (lambda s: {k: t.clone() * 0 for k, t in s.items()}, "row has changed"),
        (lambda s: {}, "expected the keys"),
        (lambda s: list(s), "expected a dict, got list"),
    ],
)
def test_compact(answer, says):
    for seed in range(20):
        torch.manual_seed(seed)
        verdict = exercises.check_compact(answer)
        assert verdict.passed == (says is None), verdict
        assert says is None or says in verdict.message


def test_the_solutions_pass_whatever_is_drawn():
    for seed in range(300):
        torch.manual_seed(seed)
        for found, checks in [
            (exercises.check_position(position), 4),
            (exercises.check_split_heads(split_heads), 2),
            (exercises.check_compact(compact), 3),
        ]:
            assert found == Verdict(True, f"correct: {checks} checks passed")
