"""Test the helpers and checkers of `views_and_copies` with solutions and wrong answers."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from verdicts import expect

from helpers import views_and_copies as vc
from helpers.demos import views_and_copies as demos
from helpers.exercises import Verdict
from helpers.exercises import views_and_copies as exercises


def test_same_storage_distinguishes_views_and_copies():
    x = torch.arange(6.0)
    assert vc.same_storage(x, x) and vc.same_storage(x[:2], x[4:])
    assert vc.same_storage(x, x.detach()) and vc.same_storage(x.view(2, 3).t(), x)
    assert not vc.same_storage(x, x.clone()) and not vc.same_storage(x, torch.arange(6.0))
    empty = torch.empty(0)
    assert not vc.same_storage(empty, torch.empty(0)) and not vc.same_storage(empty, empty)
    assert vc.same_storage(x[:0], x)  # no elements, but a view of a storage that has some


@pytest.mark.parametrize(
    "x",
    [torch.eye(2).to_sparse(), torch.nested.nested_tensor([torch.ones(1)], layout=torch.jagged)],
)
def test_same_storage_rejects_tensors_without_a_storage(x):
    with pytest.raises(RuntimeError):
        vc.same_storage(x, torch.ones(1))


def test_same_storage_supports_the_meta_device():
    a, b = torch.zeros(3, device="meta"), torch.zeros(3, device="meta")
    assert vc.same_storage(a, a[1:]) and not vc.same_storage(a, b)
    assert vc.view_or_copy(torch.clone, a) == "copy"
    assert vc.view_or_copy(lambda t: t[1:], a) == "view"
    assert not vc.same_storage(a, torch.zeros(3))


def test_same_storage_supports_fake_tensors():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        a, b = torch.zeros(3), torch.zeros(3)
        assert vc.same_storage(a, a[1:]) and not vc.same_storage(a, b)


def test_same_storage_detects_parts_of_one_array():
    array = np.zeros(10)
    whole, tail, head = (torch.from_numpy(a) for a in (array, array[4:], array[:4]))
    assert vc.same_storage(whole, tail) and vc.same_storage(head, whole)
    assert not vc.same_storage(head, tail)
    tail[0] = 7
    assert whole[4] == 7


@pytest.mark.parametrize("code", demos.TABLE)
def test_table_functions_match_their_code(code):
    for t in (torch.arange(12.0).reshape(3, 4), torch.arange(12.0).reshape(3, 4).t()):
        y = eval(code, {"t": t, "torch": torch})
        z = demos.TABLE[code](t)
        assert y.dtype == z.dtype and y.stride() == z.stride() and torch.equal(y, z)
        before = t.clone()
        y.fill_(-1)
        kind = vc.view_or_copy(demos.TABLE[code], before)
        assert (y is t) == (kind == "itself")
        assert torch.equal(t, before) == (kind == "copy")  # the write confirms the kind


def test_copy_table_requires_floating_point_matrices():
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
def test_storage_cells_supports_any_strides(t):
    assert torch.equal(vc.storage_cells(t), t)  # the storage holds 0, 1, 2, …


def test_storage_cells_supports_expanded_empty_and_0d_tensors():
    assert vc.storage_cells(torch.ones(2, 1).expand(2, 3)).tolist() == [[0, 0, 0], [1, 1, 1]]
    assert vc.storage_cells(torch.tensor(3.0)).shape == ()
    assert vc.storage_cells(torch.empty(0, 3)).shape == (0, 3)
    assert vc.storage_cells(torch.ones(4, dtype=torch.float16)[2:]).tolist() == [2, 3]


def test_draw_storage_labels_the_cells_in_memory_order():
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
def test_draw_storage_rejects_invalid_tensors(tensors, says):
    with pytest.raises(ValueError, match=says):
        demos.draw_storage(tensors)


def test_gradient_after_returns_the_gradient_or_caught():
    assert demos.gradient_after(lambda s: None) == 0.25
    assert demos.gradient_after(lambda s: s.clone().zero_()) == 0.25
    assert demos.gradient_after(lambda s: s.detach().zero_()) == "caught"
    assert demos.gradient_after(lambda s: s.data.zero_()) == 0.0


# ---------------------------------------------------------------- exercises


def position(t, index):
    return t.storage_offset() + sum(i * s for i, s in zip(index, t.stride(), strict=True))


def by_address(t, index):
    return (t[index].data_ptr() - t.untyped_storage().data_ptr()) // t.element_size()


def in_float32(t, index):
    return (t[index].data_ptr() - t.untyped_storage().data_ptr()) // 4


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
        (lambda t, i: np.int64(t.storage_offset()) + np.dot(i, t.stride()).astype(int), None),
        (in_float32, "got cell"),
        (lambda t, index: int(vc.storage_cells(t)[index]), None),
        (without_offset, "the offset is missing: shape (4, 4), stride (9, 2), offset 73"),
        (as_if_contiguous, "use the strides of t"),
        (lambda t, i: as_if_contiguous(t.fill_(0), i), "t was changed"),
        (lambda t, i: t.storage_offset() + as_if_contiguous(t, i), "use the strides of t"),
        (lambda t, i: position(t, i[::-1]), "got cell"),
        (lambda t, i: position(t, i) + 1, "got cell 60"),
        (lambda t, i: t[i], "expected an int, got Tensor"),
        (lambda t, i: ..., "expected an int, got ellipsis"),
    ],
)
def test_check_position_returns_the_expected_verdict(answer, says):
    for seed in range(20):
        torch.manual_seed(seed)
        expect(exercises.check_position(answer), says)


def split_heads(x, heads):
    return x.unflatten(2, (heads, -1)).transpose(1, 2)


def as_if_the_last_stride_were_1(x, heads):
    d = x.shape[2] // heads
    size, stride = (x.shape[0], heads, x.shape[1], d), (x.stride(0), d, x.stride(1), 1)
    return x.as_strided(size, stride, x.storage_offset())


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (split_heads, None),
        (lambda x, h: x.unflatten(-1, (h, x.shape[-1] // h)).movedim(2, 1), None),
        (lambda x, h: x.view(*x.shape[:2], h, -1).permute(0, 2, 1, 3), None),
        (lambda x, h: split_heads(x.view(x.shape), h), None),
        (lambda x, h: x.view(-1, x.shape[1], h, x.shape[2] // h).transpose(1, 2), None),
        (lambda x, h: x.reshape(-1, h, x.shape[2] // h).unflatten(0, x.shape[:2]).mT, "shape"),
        (lambda x, h: x.reshape(x.shape[0], h, x.shape[1], -1), "the values are scrambled"),
        (lambda x, h: x.unflatten(2, (-1, h)).permute(0, 3, 1, 2), "the values are scrambled"),
        (lambda x, h: split_heads(x.detach(), h), "the gradient does not flow back to x"),
        (lambda x, h: split_heads(x.detach(), h).requires_grad_(), "does not flow back to x"),
        (lambda x, h: split_heads(x.detach().mul_(2), h), "x was changed"),
        (lambda x, h: split_heads(x, h).contiguous(), "but they were copied"),
        (lambda x, h: split_heads(x.contiguous(), h), "but they were copied"),
        (lambda x, h: torch.stack(x.chunk(h, 2), 1), "but they were copied"),
        (lambda x, h: x.unflatten(2, (h, -1))[..., None], "expected shape"),
        (as_if_the_last_stride_were_1, "the values are scrambled"),
        (lambda x, h: None, "expected a tensor, got None"),
    ],
)
def test_check_split_heads_returns_the_expected_verdict(answer, says):
    for seed in range(20):
        torch.manual_seed(seed)
        expect(exercises.check_split_heads(answer), says)


def compact(state):
    used = {}
    for t in state.values():
        where = t.untyped_storage().data_ptr()
        used[where] = used.get(where, 0) + t.nbytes
    return {
        name: t.clone()
        if t.untyped_storage().nbytes() > used[t.untyped_storage().data_ptr()]
        else t
        for name, t in state.items()
    }


def by_groups(state):
    groups = {}
    for name, t in state.items():
        groups.setdefault(t.untyped_storage().data_ptr(), []).append(name)
    result = dict(state)
    for names in groups.values():
        needed = sum(state[name].nbytes for name in names)
        if needed < state[names[0]].untyped_storage().nbytes():
            result |= {name: state[name].detach().clone() for name in names}
    return result


def each_by_itself(state):
    return {
        name: t.clone() if t.untyped_storage().nbytes() > t.nbytes else t
        for name, t in state.items()
    }


def only_alone(state):
    where = [t.untyped_storage().data_ptr() for t in state.values()]
    alone = {p for p in where if where.count(p) == 1}
    kept = each_by_itself(state)
    return {k: kept[k] if p in alone else state[k] for k, p in zip(state, where, strict=True)}


def below_half(state):
    kept = compact(state)
    return {
        k: kept[k] if 2 * t.nbytes < t.untyped_storage().nbytes() else t for k, t in state.items()
    }


def all_but_the_empty(state):
    kept = compact(state)
    return {k: kept[k] if t.numel() else t for k, t in state.items()}


def in_place(state):
    for k, t in state.items():
        if t.untyped_storage().nbytes() >= t.nbytes:
            state[k] = t.clone()
    return state


def in_float32_bytes(state):
    used = {}
    for t in state.values():
        where = t.untyped_storage().data_ptr()
        used[where] = used.get(where, 0) + 4 * t.numel()
    return {
        k: t if t.untyped_storage().nbytes() <= used[t.untyped_storage().data_ptr()] else t.clone()
        for k, t in state.items()
    }


def in_elements(state):
    used = {}
    for t in state.values():
        where = t.untyped_storage().data_ptr()
        used[where] = used.get(where, 0) + t.numel()
    room = {k: t.untyped_storage().nbytes() // t.element_size() for k, t in state.items()}
    return {
        k: t if room[k] <= used[t.untyped_storage().data_ptr()] else t.clone()
        for k, t in state.items()
    }


def clone_unless_contiguous(state):
    return {
        k: t if t.is_contiguous() and k not in ("row", "most") else t.clone()
        for k, t in state.items()
    }


def clone_unless_equal(state):
    sizes = {k: t.untyped_storage().nbytes() for k, t in state.items()}
    return {k: t if sizes[k] == t.nbytes else t.clone() for k, t in state.items()}


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (compact, None),
        (by_groups, None),
        (each_by_itself, "two tensors that overlap took 400 bytes, and now take 480"),
        (only_alone, "row has 40 bytes"),
        (below_half, "most has 320 bytes in a storage of 400"),
        (all_but_the_empty, "two slices of 40 bytes and an empty one now take 480"),
        (dict, "row has 40 bytes in a storage of 4000"),
        (
            lambda s: {k: t.contiguous() for k, t in s.items()},
            "row has 40 bytes in a storage of 4000",
        ),
        (lambda s: {k: t.clone() for k, t in s.items()}, "weight filled its storage"),
        (in_place, "state was changed"),
        (in_float32_bytes, "double filled its storage"),
        (in_elements, "slices of 8 and 16 bytes"),
        (clone_unless_contiguous, "turned filled its storage"),
        (clone_unless_equal, "now takes 1200"),
        (lambda s: {k: t.double() for k, t in s.items()}, "row has changed"),
        (lambda s: {k: t.clone() * 0 for k, t in s.items()}, "row has changed"),
        (lambda s: {}, "expected the keys"),
        (lambda s: list(s), "expected a dict, got list"),
    ],
)
def test_check_compact_returns_the_expected_verdict(answer, says):
    for seed in range(20):
        torch.manual_seed(seed)
        expect(exercises.check_compact(answer), says)


def test_solutions_pass_for_every_draw():
    for seed in range(100):
        torch.manual_seed(seed)
        for found, checks in [
            (exercises.check_position(position), 5),
            (exercises.check_split_heads(split_heads), 4),
            (exercises.check_compact(compact), 6),
        ]:
            assert found == Verdict(True, f"correct: {checks} checks passed")


# ---------------------------------------------------------------- sentences of the chapter


@settings(deadline=None, max_examples=100)
@given(strided())
def test_reshape_shares_storage_exactly_where_view_works(t):
    try:
        t.view(-1)
        works = True
    except RuntimeError:
        works = False
    if t.numel():
        assert vc.same_storage(t.reshape(-1), t) == works
        assert vc.same_storage(t.contiguous(), t) == t.is_contiguous()


@pytest.mark.parametrize("read", [lambda x: x[:-1], lambda x: x[:-1] * 1])
def test_overlapping_in_place_write_raises_unless_copied(read):
    x = torch.arange(5)
    if vc.same_storage(read(x), x):
        with pytest.raises(RuntimeError, match="clone"):
            x[1:] += read(x)
    else:
        x[1:] += read(x)
        assert x.tolist() == [0, 1, 3, 5, 7]


def test_integer_and_0d_indices_return_views_unlike_lists():
    x = torch.zeros(3, 4)
    for index in (1, torch.tensor(1), np.int64(1), torch.tensor(1, dtype=torch.int32)):
        assert vc.same_storage(x[index], x), index
    for index in ([1], torch.tensor([1]), torch.tensor(True), True, torch.tensor(1).byte()):
        assert not vc.same_storage(x[index], x), index


@pytest.mark.parametrize(
    "index", [[0, 2], [], torch.tensor([0, 2]), torch.ones(4, dtype=torch.bool), True]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bfloat16])
def test_in_place_method_after_advanced_indexing_changes_a_copy(index, dtype):
    x = torch.zeros(4, dtype=dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kept = x[index].fill_(1)
    assert not x.any() and bool((kept == 1).all())
    x[index] = 1
    assert x.any() == bool(kept.numel())


def test_no_grad_view_rejects_in_place_writes_outside():
    for whole in (torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True) * 1):
        with torch.no_grad():
            row = whole[:1]
        with pytest.raises(RuntimeError, match="created in no_grad mode"):
            row.mul_(2)


def test_some_overlapping_writes_return_wrong_values_silently():
    x = torch.arange(5)
    x[::2] += x[:3]
    assert x.tolist() != [0, 1, 3, 3, 6]
    x = torch.arange(1.0, 401.0).reshape(4, 100)
    right = x - x[:, :1]
    x -= x[:, :1]
    assert not torch.equal(x, right)


def test_elementwise_ops_keep_channels_last_only_for_one_tensor():
    plain, last = torch.ones(2, 3, 4, 5), torch.ones(2, 3, 4, 5)
    last = last.to(memory_format=torch.channels_last)
    for one in (last * 2, last.relu(), last.clone(), last + last):
        assert one.is_contiguous(memory_format=torch.channels_last)
    assert (plain + last).is_contiguous()


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), min_size=1, max_size=5))
def test_compact_state_uses_no_more_bytes(ends):
    def stored(state):
        storages = [t.untyped_storage() for t in state.values()]
        return sum({s.data_ptr(): s.nbytes() for s in storages}.values())

    big = torch.arange(20.0)
    state = {str(i): big[min(ab) : max(ab)] for i, ab in enumerate(ends)}
    assert stored(compact(state)) <= stored(state)


def test_expanded_tensor_accepts_fill_and_rejects_arithmetic():
    def fresh():
        return torch.zeros(2, 1).expand(2, 3)

    for write in (lambda e: e.fill_(1), lambda e: e[0, 0].add_(1), lambda e: e[0].fill_(1)):
        write(fresh())
    for write in (lambda e: e.add_(1), lambda e: e.mul_(2), lambda e: e[0].add_(1)):
        with pytest.raises(RuntimeError, match="more than one element"):
            write(fresh())


def test_method_after_a_mask_is_lost_unlike_augmented_assignment():
    x = torch.zeros(3)
    x[x == 0].add_(1)
    assert not x.any()
    x[x == 0] += 1
    assert x.all()


def test_view_or_copy_requires_a_tensor_result():
    with pytest.raises(TypeError, match="expected a tensor as result, got tuple"):
        vc.view_or_copy(lambda t: t.split(1), torch.ones(2))
