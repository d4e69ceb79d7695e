"""Test the helpers of `sequences` against PyTorch, and its checkers with wrong answers."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils import rnn
from verdicts import expect

from helpers import sequences
from helpers.exercises import sequences as exercises

KINDS = [nn.RNN, nn.LSTM, nn.GRU]


def parts(state):
    return state if isinstance(state, tuple) else (state,)


# ---------------------------------------------------------------- steps that a result depends on


@settings(deadline=None, max_examples=25)
@given(
    st.integers(0, 10**6),
    st.sampled_from(KINDS),
    st.booleans(),
    st.integers(0, 2),
    st.integers(0, 3),
)
def test_reads_matches_changing_the_input(seed, kind, both, sample, step):
    torch.manual_seed(seed)
    layer = kind(2, 3, bidirectional=both, batch_first=True).double()
    x = torch.randn(3, 4, 2).double()

    def result(x):
        return layer(x)[0][sample, step]

    table = sequences.reads(result, x)
    with torch.no_grad():
        for n in range(3):
            for t in range(4):
                other = x.clone()
                other[n, t] += 1
                assert table[n, t] == (not torch.equal(result(other), result(x)))


def test_reads_preserves_input_gradients_and_random_state():
    layer = nn.LSTM(2, 3, batch_first=True).eval()
    x = torch.randn(2, 3, 2)
    before = x.clone()
    with torch.no_grad():
        table = sequences.reads(lambda x: layer(x)[0], x)
    assert table.all() and table.dtype == torch.bool and not x.requires_grad
    assert torch.equal(x, before) and all(p.grad is None for p in layer.parameters())
    state = torch.get_rng_state()
    sequences.reads(lambda x: x * 2, x)
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.ones(3),
        lambda x: x.detach().sum(),
        lambda x: nn.Linear(1, 1)(torch.ones(1)),
    ],
)
def test_reads_of_an_independent_result_is_all_false(function):
    assert not sequences.reads(function, torch.randn(2, 3)).any()


def test_reads_detects_inputs_of_a_result_with_constant_sum():
    table = sequences.reads(lambda x: torch.stack([x[0], 3 - x[0]]), torch.randn(2, 4))
    assert table.tolist() == [[True] * 4, [False] * 4]


def test_reads_supports_inference_mode_and_in_place_functions():
    layer, x = nn.LSTM(2, 3, batch_first=True), torch.randn(2, 4, 2)
    with torch.inference_mode():
        result = torch.randn(2, 4, 2)
        tables = [sequences.reads(lambda x: layer(x)[0][1, 2], x) for x in (x, result)]
    for table in tables:
        assert table.tolist() == [[False] * 4, [True, True, True, False]]
    before = x.clone()
    assert sequences.reads(lambda x: x.mul_(2)[0], x)[0].all() and torch.equal(x, before)
    assert sequences.reads(lambda x: x, torch.ones(2, 0, 3)).shape == (2, 0)


def test_reads_rejects_a_result_of_several_tensors():
    layer = nn.LSTM(2, 3, batch_first=True)
    with pytest.raises(TypeError, match="must return a tensor, got tuple"):
        sequences.reads(layer, torch.randn(2, 4, 2))


@pytest.mark.parametrize(("layers", "steps"), [(1, 1), (2, 5)])
def test_backward_half_at_the_last_step_reads_expected_steps(layers, steps):
    layer = nn.LSTM(2, 3, num_layers=layers, bidirectional=True, batch_first=True)
    table = sequences.reads(lambda x: layer(x)[0][1, -1, 3:], torch.randn(2, 5, 2))
    assert table.sum(1).tolist() == [0, steps]


@pytest.mark.parametrize("x", [torch.ones(3), torch.ones(2, 3).long()])
def test_reads_rejects_1d_and_integer_inputs(x):
    with pytest.raises(ValueError, match="x must be floating point of shape"):
        sequences.reads(lambda x: x, x)


# ---------------------------------------------------------------- batches of unequal lengths


@settings(deadline=None, max_examples=40)
@given(
    st.sampled_from(KINDS),
    st.integers(1, 2),
    st.booleans(),
    st.booleans(),
    st.lists(st.integers(1, 6), min_size=1, max_size=4),
    st.integers(0, 2),
    st.booleans(),
)
def test_run_packed_matches_each_sequence_alone(kind, layers, both, first, lengths, extra, started):
    layer = kind(2, 3, num_layers=layers, bidirectional=both, batch_first=first)
    n, longest = len(lengths), max(lengths) + extra
    x = torch.full((n, longest, 2), torch.nan)
    for row, length in zip(x, lengths, strict=True):
        row[:length] = torch.randn(length, 2)
    size = (layers * (1 + both), n, 3)
    zero = [torch.randn(size) for _ in range(1 + (kind is nn.LSTM))] if started else None
    state = None if zero is None else tuple(zero) if kind is nn.LSTM else zero[0]
    given_x = x if first else x.transpose(0, 1)
    out, after = sequences.run_packed(layer, given_x, torch.tensor(lengths), state)
    out = out if first else out.transpose(0, 1)
    assert out.shape == (n, longest, 3 * (1 + both))
    for i, length in enumerate(lengths):
        own = None if zero is None else [part[:, i : i + 1].contiguous() for part in zero]
        own = own and (tuple(own) if kind is nn.LSTM else own[0])
        piece = x[i : i + 1, :length]
        alone, end = layer(piece if first else piece.transpose(0, 1), own)
        alone = alone if first else alone.transpose(0, 1)
        torch.testing.assert_close(out[i, :length], alone[0])
        assert not out[i, length:].any()
        for mine, theirs in zip(parts(after), parts(end), strict=True):
            torch.testing.assert_close(mine[:, i], theirs[:, 0])


def test_run_packed_accepts_int32_and_list_lengths():
    layer, x = nn.GRU(2, 3, batch_first=True), torch.randn(2, 4, 2)
    out, _ = sequences.run_packed(layer, x, torch.tensor([4, 1], dtype=torch.int32))
    assert out[1, 0].any() and not out[1, 1:].any()
    assert torch.equal(out, sequences.run_packed(layer, x, [4, 1])[0])


@pytest.mark.parametrize("first", [True, False])
def test_invalid_lengths_raise(first):
    layer, x = nn.GRU(2, 3, batch_first=first), torch.randn(2, 4, 2)
    calls = [
        lambda n: sequences.run_packed(layer, x if first else x.transpose(0, 1), n),
        lambda n: sequences.masked_mean(x, n),
    ]
    for call in calls:
        for lengths in ([4, 0], [5, 4], [-1, 4]):
            with pytest.raises(ValueError, match="lengths must be from 1 to 4, got"):
                call(torch.tensor(lengths))
        for lengths in ([4], [4, 1, 1], [[4, 1]], [[4], [1]]):
            with pytest.raises(ValueError, match="expected 2 lengths"):
                call(torch.tensor(lengths))
        for lengths in ([2.5, 1.0], [True, True]):
            with pytest.raises(TypeError, match="lengths must be integers, got"):
                call(torch.tensor(lengths))
        call([4, 1])
        call(torch.tensor([4, 1], dtype=torch.uint16))


@pytest.mark.parametrize("shape", [(4, 4), (4, 4, 4, 4)])
def test_masked_mean_requires_three_dimensions(shape):
    with pytest.raises(ValueError, match="must be"):
        sequences.masked_mean(torch.ones(shape), [1, 2, 3, 4])
    assert sequences.masked_mean(torch.ones(0, 4, 2), []).shape == (0, 2)


@pytest.mark.parametrize("kind", [nn.RNN, nn.GRU, nn.LSTM])
def test_a_length_beyond_the_steps_raises_in_the_layer(kind):
    layer = kind(2, 3, batch_first=True)
    packed = rnn.pack_padded_sequence(
        torch.randn(3, 5, 2), [7, 2, 3], batch_first=True, enforce_sorted=False
    )
    with pytest.raises(RuntimeError, match=r"start \(10\) \+ length \(1\) exceeds"):
        layer(packed)


def test_pack_padded_sequence_drops_samples_without_a_length():
    x = torch.randn(3, 4, 2)
    packed = rnn.pack_padded_sequence(x, [2, 4], batch_first=True, enforce_sorted=False)
    out, lengths = rnn.pad_packed_sequence(packed, batch_first=True)
    assert lengths.tolist() == [2, 4] and len(out) == 2
    with pytest.raises(RuntimeError, match="equal to batch_size"):
        rnn.pack_padded_sequence(x, [4, 2], batch_first=True)


@settings(deadline=None, max_examples=30)
@given(st.lists(st.integers(1, 6), min_size=1, max_size=4))
def test_masked_mean_matches_a_loop(lengths):
    out = torch.randn(len(lengths), 7, 3, dtype=torch.double)
    for row, length in zip(out, lengths, strict=True):
        row[length:] = torch.nan
    mean = sequences.masked_mean(out, torch.tensor(lengths))
    for i, length in enumerate(lengths):
        torch.testing.assert_close(mean[i], out[i, :length].mean(0))


def test_masked_mean_returns_no_gradient_for_padding():
    out = torch.randn(2, 4, 3, requires_grad=True)
    sequences.masked_mean(out, torch.tensor([1, 3])).sum().backward()
    assert (out.grad != 0).any(-1).tolist() == [[True, False, False, False], [True] * 3 + [False]]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_masked_mean_in_half_precision_does_not_overflow(dtype):
    out = torch.full((1, 300, 1), 300.0, dtype=dtype)
    assert abs(sequences.masked_mean(out, torch.tensor([300])).item() - 300) < 3


# ---------------------------------------------------------------- forget gates


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("value", [1.0, -2.0])
def test_set_forget_bias_changes_only_the_forget_bias(layers, both, value):
    lstm = nn.LSTM(2, 3, num_layers=layers, bidirectional=both)
    before = {name: p.detach().clone() for name, p in lstm.named_parameters()}
    assert sequences.set_forget_bias(lstm, value) is lstm
    for name, p in lstm.named_parameters():
        assert p.requires_grad and p.is_leaf
        if name.startswith("bias_ih"):
            other = lstm.get_parameter(name.replace("_ih_", "_hh_"))
            assert (p + other)[3:6].tolist() == [value] * 3
        changed = (p != before[name]).reshape(len(p), -1).any(1)
        assert not changed[:3].any() and not changed[6:].any()
        assert changed[3:6].any() == name.startswith("bias")


def test_open_forget_gates_preserve_the_cell_state():
    """Open forget gates and closed input gates keep the cell state."""
    lstm = sequences.set_forget_bias(nn.LSTM(2, 3), 50.0)
    with torch.no_grad():
        lstm.bias_ih_l0[:3] = -50  # input gate
    memory = torch.randn(1, 1, 3)
    _, (_, c) = lstm(torch.randn(5, 1, 2), (torch.zeros(1, 1, 3), memory))
    torch.testing.assert_close(c, memory)


@pytest.mark.parametrize("layer", [nn.GRU(2, 3), nn.LSTM(2, 3, bias=False), nn.LSTMCell(2, 3)])
def test_set_forget_bias_rejects_layers_without_forget_bias(layer):
    with pytest.raises(ValueError, match="expected an nn.LSTM with biases"):
        sequences.set_forget_bias(layer)


# ---------------------------------------------------------------- sentences of the chapter


@pytest.mark.parametrize("kind", [nn.GRU, nn.RNN])
@pytest.mark.parametrize(
    ("layers", "both", "runs"), [(1, False, False), (1, True, True), (2, False, True)]
)
def test_gru_and_rnn_states_unpack_like_lstm_only_with_two_states(kind, layers, both, runs):
    layer = kind(2, 3, num_layers=layers, bidirectional=both)
    if runs:
        _, (_, c) = layer(torch.randn(4, 5, 2))
        assert c.shape == (5, 3)
        return
    with pytest.raises(ValueError, match="not enough values to unpack"):
        _, (_, c) = layer(torch.randn(4, 5, 2))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("layers", [1, 3])
def test_last_two_states_belong_to_the_last_layer(kind, layers):
    layer = kind(2, 3, num_layers=layers, bidirectional=True, batch_first=True)
    out, state = layer(torch.randn(4, 5, 2))
    h = parts(state)[0]
    assert torch.equal(torch.cat([h[-2], h[-1]], 1), torch.cat([out[:, -1, :3], out[:, 0, 3:]], 1))
    assert torch.equal(h.view(layers, 2, 4, 3)[-1], h[-2:])


def test_step_without_its_axis_is_read_as_a_sequence():
    lstm, x = nn.LSTM(2, 3, batch_first=True), torch.randn(4, 5, 2)
    state = lstm(x[:, :1])[1]
    with pytest.raises(RuntimeError, match="For unbatched 2-D input"):
        lstm(x[:, 1], state)
    with pytest.raises(RuntimeError, match="must be equal to input_size"):
        nn.LSTM(1, 3, batch_first=True)(torch.randn(4, 5))
    read = sequences.reads(lambda x: nn.LSTM(5, 3, batch_first=True)(x)[0][2], torch.randn(4, 5))
    assert read[:3].all() and not read[3:].any()


def test_loop_over_steps_without_axis_runs_over_samples():
    lstm, x = nn.LSTM(2, 3, batch_first=True), torch.randn(4, 5, 2)

    def loop(x):
        state = None
        for t in range(5):
            out, state = lstm(x[:, t], state)
        return out[1]

    assert sequences.reads(loop, x).sum(1).tolist() == [5, 5, 4, 4]


def test_bidirectional_layer_step_by_step_differs_from_one_call():
    lstm, x = nn.LSTM(2, 3, bidirectional=True, batch_first=True), torch.randn(4, 5, 2)
    state, outs = None, []
    for t in range(5):
        out, state = lstm(x[:, t : t + 1], state)
        outs.append(out)
    found, whole = torch.cat(outs, 1), lstm(x)[0]
    torch.testing.assert_close(found[..., :3], whole[..., :3])
    assert not torch.allclose(found[..., 3:], whole[..., 3:], atol=1e-3)


def test_equal_steps_and_classes_hide_a_wrong_axis_order():
    logits, tags = torch.randn(3, 4, 4), torch.randint(4, (3, 4))
    assert F.cross_entropy(logits, tags) != F.cross_entropy(logits.transpose(1, 2), tags)
    conv, x = nn.Conv1d(4, 4, 3), torch.randn(2, 4, 4)
    assert not torch.allclose(conv(x), conv(x.transpose(1, 2)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_missing_state_equals_a_zero_state(dtype):
    lstm, x = nn.LSTM(2, 3).to(dtype), torch.randn(4, 5, 2, dtype=dtype)
    zeros = torch.zeros(1, 5, 3, dtype=dtype)
    assert torch.equal(lstm(x)[0], lstm(x, (zeros, zeros))[0])


def test_gru_cell_applies_the_reset_gate_after_the_weights():
    cell, x, h = nn.GRUCell(2, 3), torch.randn(4, 2), torch.randn(4, 3)
    from_x = (x @ cell.weight_ih.T + cell.bias_ih).chunk(3, 1)
    r, z, _ = (
        (a + b).sigmoid()
        for a, b in zip(from_x, (h @ cell.weight_hh.T + cell.bias_hh).chunk(3, 1), strict=True)
    )
    last, bias = cell.weight_hh[6:], cell.bias_hh[6:]
    after = (from_x[2] + r * (h @ last.T + bias)).tanh()
    before = (from_x[2] + (r * h) @ last.T + bias).tanh()
    torch.testing.assert_close(cell(x, h), (1 - z) * after + z * h)
    assert not torch.allclose(cell(x, h), (1 - z) * before + z * h, atol=1e-4)


@pytest.mark.parametrize("kind", [nn.RNN, nn.GRU])
def test_proj_size_is_supported_only_for_lstm(kind):
    with pytest.raises(ValueError, match="only supported for LSTM"):
        kind(2, 3, proj_size=1)


@pytest.mark.filterwarnings("ignore:LSTM with projections")
def test_lstm_projections_have_the_expected_sizes():
    lstm = nn.LSTM(2, 5, proj_size=3, num_layers=2, bidirectional=True)
    out, (h, c) = lstm(torch.randn(4, 1, 2))
    assert (out.shape, h.shape, c.shape) == ((4, 1, 6), (4, 1, 3), (4, 1, 5))


@pytest.mark.parametrize("dilation", [1, 2, 3])
@pytest.mark.parametrize("size", [2, 3])
def test_left_padded_convolution_is_causal(size, dilation):
    conv = nn.Conv1d(2, 3, size, dilation=dilation)
    x, left = torch.randn(2, 9, 2), (size - 1) * dilation

    def causal(x):
        return conv(F.pad(x.transpose(1, 2), (left, 0))).transpose(1, 2)

    assert causal(x).shape == (2, 9, 3)
    read = sequences.reads(lambda x: causal(x)[1, 7], x)
    assert read[1].nonzero().flatten().tolist() == list(range(7 - left, 8, dilation))


# ---------------------------------------------------------------- exercises


def vectors(gru, x, lengths):
    return last_layer(gru, sequences.run_packed(gru, x, lengths)[1])


def last_layer(gru, h):
    return torch.cat(list(h[-2:] if gru.bidirectional else h[-1:]), 1)


def one_by_one(gru, x, lengths):
    found = [
        last_layer(gru, gru(row[None, :n])[1]) for row, n in zip(x, lengths.tolist(), strict=True)
    ]
    return torch.cat(found)


def sort_by_hand(gru, x, lengths, back=True):
    lengths, order = lengths.sort(descending=True)
    h = gru(rnn.pack_padded_sequence(x[order], lengths, batch_first=True))[1]
    return last_layer(gru, h)[order.argsort()] if back else last_layer(gru, h)


def viewed(gru, x, lengths):
    h = sequences.run_packed(gru, x, lengths)[1]
    directions = 2 if gru.bidirectional else 1
    return h.view(gru.num_layers, directions, len(x), -1)[-1].reshape(len(x), -1)


def last_steps(out, lengths):
    return out[torch.arange(len(out)), lengths - 1]


def by_output(gru, x, lengths):
    return last_steps(sequences.run_packed(gru, x, lengths)[0], lengths)


def by_halves(gru, x, lengths):
    out = sequences.run_packed(gru, x, lengths)[0]
    last = last_steps(out, lengths)
    if not gru.bidirectional:
        return last
    half = gru.hidden_size
    return torch.cat([last[:, :half], out[:, 0, half:]], 1)


def unpacked_halves(gru, x, lengths):
    out = gru(x)[0]
    last, half = last_steps(out, lengths), gru.hidden_size
    return torch.cat([last[:, :half], out[:, 0, half:]], 1) if gru.bidirectional else last


def second_layer(gru, x, lengths):
    h = sequences.run_packed(gru, x, lengths)[1]
    return last_layer(gru, h) if gru.bidirectional else h[int(gru.num_layers > 1)]


def zeroed(gru, x, lengths):
    x[torch.arange(x.shape[1]) >= lengths[:, None]] = 0
    return vectors(gru, x, lengths)


def shortened(gru, x, lengths):
    lengths -= 1
    return vectors(gru, x, lengths + 1)


def in_eval(gru, x, lengths):
    return vectors(gru.eval(), x, lengths)


def back_to_training(gru, x, lengths):
    found = in_eval(gru, x, lengths)
    gru.train()
    return found


def mode_kept(gru, x, lengths):
    training = gru.training
    found = in_eval(gru, x, lengths)
    gru.train(training)
    return found


def in_double(gru, x, lengths):
    return vectors(gru.double(), x.double(), lengths).float()


def time_first(gru, x, lengths):
    gru.batch_first = False
    packed = rnn.pack_padded_sequence(x.transpose(0, 1), lengths, enforce_sorted=False)
    return last_layer(gru, gru(packed)[1])


def frozen(gru, x, lengths):
    found = vectors(gru, x, lengths)
    gru.requires_grad_(False)
    return found


def initialized(gru, x, lengths):
    found = vectors(gru, x, lengths)
    with torch.no_grad():
        gru.weight_hh_l0.mul_(2)
    return found


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (vectors, None),
        (mode_kept, "called in another mode"),
        (in_eval, "the GRU came in training mode and was left in another"),
        (back_to_training, "called in another mode"),
        (initialized, "_l0 of the GRU was changed"),
        (in_double, "_l0 of the GRU was changed"),
        (lambda g, x, n: vectors(g, x, n).double(), "expected torch.float32, got torch.float64"),
        (time_first, "a setting of the GRU was changed"),
        (frozen, "requires_grad of weight_ih_l0 of the GRU was changed"),
        (one_by_one, None),
        (sort_by_hand, None),
        (by_halves, None),
        (lambda g, x, n: g(x)[0][:, -1], "depends on their padding"),
        (lambda g, x, n: last_layer(g, g(x)[1]), "depends on their padding"),
        (lambda g, x, n: last_steps(g(x)[0], n), "with two directions"),
        (by_output, "with two directions"),
        (unpacked_halves, "with two directions"),
        (viewed, "with two directions"),
        (lambda g, x, n: sort_by_hand(g, x, n, back=False), "depends on their padding"),
        (lambda g, x, n: sequences.run_packed(g, x, n)[1][0], "with 2 layers"),
        (lambda g, x, n: sequences.run_packed(g, x, n)[1][-1], "expected shape (4, 8), got (4, 4)"),
        (lambda g, x, n: vectors(g, x, n).squeeze(0), "expected shape (1, 8)"),
        (lambda g, x, n: vectors(g, x, n).detach(), "no gradient to the GRU"),
        (lambda g, x, n: vectors(g, x.detach(), n), "no gradient to the GRU"),
        (lambda g, x, n: vectors(g, x, n).detach().requires_grad_(), "no gradient to the GRU"),
        (second_layer, "with 3 layers"),
        (zeroed, "x was changed"),
        (lambda g, x, n: vectors(g, x, n).flip(1), "wrong even if no sentence has padding"),
        (lambda g, x, n: sequences.run_packed(g, x, n)[1], "expected shape (3, 4), got (1, 3, 4)"),
        (lambda g, x, n: sequences.run_packed(g, x, n), "expected a tensor, got tuple"),
        (shortened, "lengths was changed"),
        (lambda g, x, n: None, "expected a tensor, got None"),
    ],
)
def test_check_vectors_returns_the_expected_verdict(answer, says):
    expect(exercises.check_vectors(answer), says)


def test_check_vectors_reports_dependence_on_the_padding():
    """The answer is right for zero padding and for one direction only."""

    def answer(gru, x, lengths):
        if (x == 0).any() or not gru.bidirectional:
            return vectors(gru, x, lengths)
        return last_layer(gru, gru(x)[1])

    expect(exercises.check_vectors(answer), "depends on the values in the padding")


def ignoring(logits, tags, ids, padding):
    return F.cross_entropy(logits.transpose(1, 2), tags.masked_fill(ids == padding, -100))


def by_mask(logits, tags, ids, padding):
    return F.cross_entropy(logits[ids != padding], tags[ids != padding])


def by_lengths(logits, tags, ids, padding):
    words = torch.arange(ids.shape[1]) < (ids != padding).sum(1, keepdim=True)
    return F.cross_entropy(logits[words], tags[words])


def by_sum(logits, tags, ids, padding):
    each = F.cross_entropy(logits.transpose(1, 2), tags, reduction="none")
    words = ids != padding
    return (each * words).sum() / words.sum()


def mean_of_means(logits, tags, ids, padding):
    each = F.cross_entropy(logits.transpose(1, 2), tags, reduction="none")
    words = ids != padding
    return ((each * words).sum(1) / words.sum(1)).mean()


def in_place(logits, tags, ids, padding):
    tags[ids == padding] = -100
    return F.cross_entropy(logits.transpose(1, 2), tags)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (ignoring, "make the gradient nan"),
        (by_mask, None),
        (by_sum, "logits of nan at the padding"),
        (
            lambda x, y, i, p: by_mask(x.detach(), y, i, p) + 0 * x.nan_to_num().sum(),
            "its gradient is not",
        ),
        (lambda x, y, i, p: F.cross_entropy(x.transpose(1, 2), y), "the padding is included"),
        (
            lambda x, y, i, p: F.cross_entropy(x.reshape(len(x), x.shape[2], -1), y),
            "wrong even without padding",
        ),
        (lambda x, y, i, p: F.cross_entropy(x, y), "your code raised RuntimeError"),
        (mean_of_means, "average over words"),
        (by_lengths, "padding comes before the words"),
        (in_place, "tags was changed"),
        (lambda x, y, i, p: by_mask(x, y, i, 0), "ID of the padding is not 0"),
        (
            lambda x, y, i, p: F.cross_entropy(x.transpose(1, 2), y, ignore_index=0),
            "wrong even without padding",
        ),
        (lambda x, y, i, p: by_sum(x, y, i, p) * (i != p).float().mean(), "padding is included"),
        (lambda x, y, i, p: by_mask(x, y, i, p).detach(), "gives no gradient to the logits"),
        (lambda x, y, i, p: by_mask(x, y, i, p).item(), "return a tensor without dimensions"),
        (
            lambda x, y, i, p: by_mask(x, y, i, p) + 0 * x.sum(),
            "logits of nan at the padding",
        ),
        (
            lambda x, y, i, p: by_mask(x, y, i, p) + (x - x.detach())[i == p].sum(),
            "the padding has a gradient",
        ),
    ],
)
def test_check_tag_loss_returns_the_expected_verdict(answer, says):
    expect(exercises.check_tag_loss(answer), says)


def test_check_tag_loss_rejects_an_ignored_class():
    def answer(logits, tags, ids, padding):
        if not (ids == padding).any():
            return by_mask(logits, tags, ids, padding)
        return F.cross_entropy(logits.transpose(1, 2), tags, ignore_index=0)

    assert not exercises.check_tag_loss(answer).passed


def test_masked_mean_is_accurate_in_half_precision():
    small, large = torch.full((1, 3000, 1), 1e-4).half(), torch.full((1, 4, 1), 6e4).half()
    assert torch.allclose(sequences.masked_mean(small, [3000]), small[:, 0], rtol=1e-3, atol=0)
    assert torch.equal(sequences.masked_mean(large, [4]), large[:, 0])
    whole = torch.tensor([[[1], [2]]])
    assert sequences.masked_mean(whole, [2]).tolist() == [[1.5]]
