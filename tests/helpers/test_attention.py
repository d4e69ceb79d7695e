"""Test the helpers of `attention` against PyTorch, and its checkers with wrong answers."""

from __future__ import annotations

import math
import warnings

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.colors import to_hex
from torch import nn
from torch.nn.attention import SDPBackend
from verdicts import expect

from helpers import attention, autograd
from helpers.demos import attention as demos
from helpers.exercises import attention as exercises
from helpers.figures import COLORS

lengths = st.integers(1, 5)
seeds = st.integers(0, 999)


# ---------------------------------------------------------------- weights


@settings(max_examples=25, deadline=None)
@given(lq=lengths, lk=lengths, batch=st.sampled_from([(), (2,), (2, 3)]), seed=seeds)
def test_attention_weights_equal_the_masked_softmax(lq, lk, batch, seed):
    g = torch.Generator().manual_seed(seed)
    q, k = torch.randn(*batch, lq, 4, generator=g), torch.randn(*batch, lk, 4, generator=g)
    mask = torch.rand(lq, lk, generator=g) < 0.6
    mask[:, 0] = True
    scores = q @ k.transpose(-2, -1) / math.sqrt(4)
    expected = scores.masked_fill(~mask, -math.inf).softmax(-1)
    got = attention.attention_weights(q, k, attn_mask=mask)
    assert got.shape == (*batch, lq, lk)
    torch.testing.assert_close(got, expected)
    v = torch.randn(*batch, lk, 3, generator=g)
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    torch.testing.assert_close(got @ v, out)


def test_attention_weights_passes_options_on_and_keeps_the_dtype():
    q = torch.randn(1, 1, 3, 4, dtype=torch.double)
    weights = attention.attention_weights(q, q, is_causal=True, scale=2.0)
    assert weights.dtype == torch.double
    expected = (q @ q.transpose(-2, -1) * 2).masked_fill(torch.ones(3, 3).triu(1) > 0, -math.inf)
    torch.testing.assert_close(weights, expected.softmax(-1))
    assert not attention.attention_weights(q, q, attn_mask=torch.zeros(3, 3) > 0).any()


# ---------------------------------------------------------------- reach


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 2), lengths, st.integers(1, 4), seeds)
def test_reach_returns_the_mask(n, length, width, seed):
    torch.manual_seed(seed)
    mask = torch.rand(length, length) < 0.5
    x = torch.randn(n, length, width)
    seen = attention.reach(
        lambda t: F.scaled_dot_product_attention(x, x, t, attn_mask=mask), x
    )  # query and key are constants: only the values' positions are differentiated
    assert torch.equal(seen, mask)
    assert not x.requires_grad


def test_reach_supports_norms_modes_and_other_lengths():
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    x = torch.randn(2, 4, 8)
    causal = nn.Transformer.generate_square_subsequent_mask(4)
    with torch.no_grad():
        seen = attention.reach(lambda t: layer(t, causal, is_causal=True), x)
    assert torch.equal(seen, torch.ones(4, 4).tril() > 0)
    assert attention.reach(lambda t: t.mean(1, keepdim=True), x).tolist() == [[True] * 4]
    assert not attention.reach(lambda t: (0 * t).detach() + torch.ones_like(t[:1]), x).any()
    assert attention.reach(lambda t: t.to(torch.bfloat16), x).sum() == 4
    constant = torch.randn(2, 4, 8)  # the output depends on the parameters, not on x
    assert not attention.reach(lambda t: layer(constant), x).any()
    assert attention.reach(lambda t: t * math.nan, x).diag().all()
    top = attention.reach(lambda t: t * (t >= t.amax(1, keepdim=True)), x)
    assert not top.triu(1).any()  # a comparison has no gradient
    assert all(p.grad is None for p in layer.parameters())


def test_reach_combines_samples_and_features():
    def second_sample_only(x):
        return x * torch.tensor([0.0, 1.0])[:, None, None]

    def one_feature(x):
        return x[..., 3:].cumsum(1)

    x = torch.randn(2, 3, 4)
    assert torch.equal(attention.reach(second_sample_only, x), torch.eye(3) > 0)
    assert torch.equal(attention.reach(one_feature, x), torch.ones(3, 3).tril() > 0)


def test_reach_supports_a_model_that_changes_its_input():
    def cumulate(t):
        t += 1
        return t.cumsum(1)

    x = torch.zeros(1, 3, 2)
    assert torch.equal(attention.reach(cumulate, x), torch.ones(3, 3).tril() > 0)
    assert not x.any()


def test_reach_rejects_other_shapes():
    with pytest.raises(ValueError, match=r"an input \(N, L, E\), got shape \(3, 4\)"):
        attention.reach(lambda t: t, torch.randn(3, 4))
    with pytest.raises(ValueError, match=r"an output \(N, L, E\), got shape \(1, 3\)"):
        attention.reach(lambda t: t.sum(-1), torch.randn(1, 3, 4))


def test_reach_works_in_inference_mode():
    layer, x = nn.MultiheadAttention(8, 2, batch_first=True), torch.randn(1, 4, 8)
    with torch.inference_mode():
        made_inside = torch.randn(1, 4, 8)
        for t in (x, made_inside):
            assert attention.reach(lambda t: layer(t, t, t)[0], t).all()
    assert attention.reach(lambda t: layer(t, t, t)[0], made_inside).all()


def test_reach_ignores_the_default_device():
    layer, x = nn.MultiheadAttention(8, 2, batch_first=True), torch.randn(1, 4, 8)
    with torch.device("meta"):
        assert attention.reach(lambda t: layer(t, t, t)[0], x).all()


def test_reach_requires_floating_point():
    with pytest.raises(TypeError, match="floating-point input, got torch.int64: pass token emb"):
        attention.reach(lambda x: x, torch.ones(1, 2, 3, dtype=torch.long))


def test_reach_requires_a_tensor_output():
    layer, x = nn.MultiheadAttention(8, 2, batch_first=True), torch.randn(1, 4, 8)
    with pytest.raises(TypeError, match="expected a tensor as output, got tuple"):
        attention.reach(lambda t: layer(t, t, t), x)


# ---------------------------------------------------------------- positions


def complex_rotary(x, positions, base=10000.0):
    """Apply RoPE with complex numbers made of the two halves."""
    width = x.shape[-1]
    speed = base ** (-torch.arange(0, width, 2).double() / width)
    turn = torch.polar(torch.ones(()).double(), positions[..., None].double() * speed)
    a, b = x.double().chunk(2, -1)
    z = torch.complex(a, b) * turn
    return torch.cat((z.real, z.imag), -1)


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 4), lengths, st.integers(0, 10**5), st.sampled_from([(), (2,), (2, 3)]))
def test_rotary_rotates_by_the_position(half, length, start, batch):
    x = torch.randn(*batch, length, 2 * half)
    positions = start + torch.arange(length)
    got = attention.rotary(x, positions)
    assert got.dtype == x.dtype and got.shape == x.shape
    # float32 rounds an angle of 1e5 radians by up to 0.004
    torch.testing.assert_close(
        got.double(), complex_rotary(x, positions), atol=2e-2 if start > 1000 else 1e-3, rtol=0
    )
    precise = attention.rotary(x.double(), positions)
    torch.testing.assert_close(precise, complex_rotary(x, positions), atol=1e-8, rtol=0)
    torch.testing.assert_close(got.norm(dim=-1), x.norm(dim=-1))
    assert torch.equal(attention.rotary(x, torch.zeros(length).long()), x)


def test_rotary_in_bfloat16_distinguishes_large_positions():
    x = torch.randn(2, 8, dtype=torch.bfloat16)
    a, b = attention.rotary(x[:1].repeat(2, 1), torch.tensor([2048, 2049]))
    assert a.dtype == torch.bfloat16 and not torch.equal(a, b)


def test_rotary_accepts_positions_per_sample():
    x = torch.randn(2, 3, 4, 8)
    positions = torch.tensor([[0, 1, 2, 3], [5, 6, 7, 8]])
    got = attention.rotary(x, positions[:, None], base=100.0)
    for n in range(2):
        torch.testing.assert_close(got[n], attention.rotary(x[n], positions[n], base=100.0))


def test_rotary_requires_an_even_width():
    with pytest.raises(ValueError, match="an even number of features, got 7"):
        attention.rotary(torch.randn(3, 7), torch.arange(3))


def test_rotary_requires_floats_and_tensor_positions():
    with pytest.raises(TypeError, match=r"floating-point features, got torch\.int64"):
        attention.rotary(torch.ones(3, 8, dtype=torch.long), torch.arange(3))
    with pytest.raises(TypeError, match="positions as a tensor, got int"):
        attention.rotary(torch.ones(1, 8), 5)


@pytest.mark.parametrize("shape", [(1, 8), (2, 1, 8), (8,), (4, 8), (3, 2, 5, 0, 8)])
def test_rotary_rejects_positions_that_would_broadcast(shape):
    with pytest.raises(ValueError, match=r"expected positions for .*, got shape \(5,\)"):
        attention.rotary(torch.randn(shape), torch.arange(5))


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 30), st.integers(1, 9))
def test_sinusoids_match_the_paper(length, width):
    table = attention.sinusoids(length, width)
    assert table.shape == (length, width) and table.dtype == torch.float32
    for place in range(length):
        for i in range(width):
            wave = math.cos if i % 2 else math.sin
            want = wave(place / 10000 ** ((i - i % 2) / width))
            assert math.isclose(table[place, i].item(), want, abs_tol=1e-5)


@pytest.mark.parametrize(("length", "width"), [(0, 4), (4, 0), (-1, 4)])
def test_sinusoids_require_positive_sizes(length, width):
    with pytest.raises(ValueError, match="a length and a width of 1 or more"):
        attention.sinusoids(length, width)


# ---------------------------------------------------------------- kernels


def test_backends_reports_which_kernels_run_and_why():
    q = torch.randn(1, 2, 4, 8)
    for options, value, why in [
        ({}, q, "runs"),
        ({"attn_mask": torch.ones(4, 4) > 0}, q, "runs"),
        ({"dropout_p": 0.1}, q, "Both fused kernels do not support non-zero dropout"),
        ({}, q[..., :4], "requires q,k,v to have the same last dimension"),
    ]:
        for _ in range(2):  # each call returns the warning, not only the first
            found = attention.backends(q, q, value, **options)
            assert list(found) == ["flash", "efficient", "cudnn", "math"]
            assert why in found["flash"] and found["math"] == "runs"
            assert "No viable backend" in found["efficient"] and "Triggered" not in str(found)


def test_backends_keeps_the_settings_and_warns_nothing():
    q = torch.randn(1, 2, 4, 8)
    before = torch.backends.cuda.flash_sdp_enabled(), torch.backends.cuda.math_sdp_enabled()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        attention.backends(q, q, q, dropout_p=0.1)
    after = torch.backends.cuda.flash_sdp_enabled(), torch.backends.cuda.math_sdp_enabled()
    assert before == after == (True, True)
    assert {kind.name for kind in SDPBackend.__members__.values()} >= {
        "MATH",
        "FLASH_ATTENTION",
        "EFFICIENT_ATTENTION",
        "CUDNN_ATTENTION",
    }


def test_backends_keeps_the_rng_state():
    q, state = torch.randn(1, 2, 4, 8), torch.get_rng_state()
    assert attention.backends(q, q, q, dropout_p=0.5)["math"] == "runs"
    assert torch.equal(state, torch.get_rng_state())


GPU = """\
Memory efficient kernel not used because: (Triggered internally at ../sdp_utils.cpp:718.)
Memory Efficient attention has been runtime disabled. (Triggered internally at ../sdp.h:495.)
Flash attention kernel not used because: (Triggered internally at ../sdp_utils.cpp:720.)
Flash Attention does not support non-null attn_mask. (Triggered internally at ../sdp.h:269.)
cuDNN attention kernel not used because: (Triggered internally at ../sdp_utils.cpp:722.)
cuDNN attention has been runtime disabled. (Triggered internally at ../sdp_utils.cpp:496.)"""


def test_reason_selects_the_warning_of_a_kernel():
    """Read the warnings of https://github.com/Dao-AILab/flash-attention/issues/1321 in order."""
    message = GPU.split("\n")
    assert (
        attention._reason(message, "flash") == "Flash Attention does not support non-null attn_mask"
    )
    off = "Memory Efficient attention has been runtime disabled"
    assert attention._reason(message, "efficient") == off
    assert attention._reason(message, "cudnn") == "cuDNN attention has been runtime disabled"
    assert attention._reason([], "flash") == ""


# ---------------------------------------------------------------- sentences of the chapter


def test_nan_to_num_keeps_nan_gradients_and_sdpa_returns_zeros():
    """`nan_to_num` does not repair a nan gradient; SDPA returns zeros in every dtype."""
    seen = torch.tensor([[False, False], [True, True]])
    mha, x = nn.MultiheadAttention(8, 2, batch_first=True), torch.randn(1, 2, 8)
    mha(x, x, x, attn_mask=~seen)[0].nan_to_num().sum().backward()
    assert mha.in_proj_weight.grad.isnan().any()
    added = torch.where(seen, 0.0, -math.inf)
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
        for shape in ((2, 8), (1, 2, 8), (1, 1, 2, 8)):
            q = torch.randn(shape, dtype=dtype)
            for mask in (seen, added.to(dtype)):
                out = F.scaled_dot_product_attention(q, q, q, attn_mask=mask)
                assert not out[..., 0, :].any() and out.isfinite().all()


def test_reordering_rows_per_head_converts_the_rotary_layout():
    """Reordering each head's rows turns interleaved RoPE pairs into half-split pairs."""
    heads, width, places = 3, 8, torch.arange(5)
    x, to_q, to_k = torch.randn(5, 24), torch.randn(24, 24), torch.randn(24, 24)

    def split(weight):
        return (x @ weight.T).unflatten(-1, (heads, width)).transpose(0, 1)

    def neighbours(t):
        z = torch.view_as_complex(t.unflatten(-1, (-1, 2)).contiguous())
        speed = 10000.0 ** (-torch.arange(0, width, 2) / width)
        return torch.view_as_real(z * torch.polar(torch.ones(()), places[:, None] * speed)).flatten(
            -2
        )

    expected = neighbours(split(to_q)) @ neighbours(split(to_k)).mT
    order = torch.arange(width).view(-1, 2).T.flatten()
    q, k = (w.unflatten(0, (heads, width))[:, order].flatten(0, 1) for w in (to_q, to_k))
    got = attention.rotary(split(q), places) @ attention.rotary(split(k), places).mT
    torch.testing.assert_close(got, expected, atol=1e-3, rtol=1e-4)


@pytest.mark.parametrize("need", [False, True])
def test_module_adds_float_masks_in_both_modes(need):
    """Only encoders read a bias as a bool mask; the module adds it in eval mode too."""
    mha, x = nn.MultiheadAttention(8, 2, batch_first=True), torch.randn(2, 4, 8)
    masks = [{"attn_mask": torch.randn(4, 4)}, {"key_padding_mask": torch.randn(2, 4)}]
    with torch.no_grad():
        for mask in masks:
            trained = mha.train()(x, x, x, need_weights=need, **mask)[0]
            evaluated = mha.eval()(x, x, x, need_weights=need, **mask)[0]
            torch.testing.assert_close(trained, evaluated)


def test_encoder_treats_float_padding_masks_differently_in_eval_mode():
    layer = nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True)
    x = torch.randn(2, 4, 8)
    keep = torch.tensor([[True] * 4, [True, True, False, False]])
    infinite, bias = torch.where(keep, 0.0, -math.inf), torch.where(keep, 0.0, 1.0)
    same = {}
    with torch.no_grad():
        for name, mask in {"infinite": infinite, "bias": bias}.items():
            outs = [layer.train(mode)(x, src_key_padding_mask=mask)[keep] for mode in (True, False)]
            same[name] = torch.allclose(*outs, atol=1e-5)
    assert same == {"infinite": True, "bias": False}


@pytest.mark.parametrize("kind", ["layer", "encoder", "module"])
def test_is_causal_without_a_mask_raises_only_with_gradients(kind):
    """Without a mask `is_causal=True` raises, except in eval mode without gradients."""
    layer, x = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), torch.randn(2, 4, 8)
    encoder = nn.TransformerEncoder(layer, 2)
    model = {"layer": layer, "encoder": encoder, "module": layer.self_attn}[kind].eval()

    def run(**options):
        return model(x, x, x, **options)[0] if kind == "module" else model(x, **options)

    with pytest.raises(RuntimeError, match="Need attn_mask"):
        run(is_causal=True)
    with torch.no_grad():
        torch.testing.assert_close(run(is_causal=True), run())


def test_nan_in_padding_spreads_to_real_tokens():
    keep = torch.tensor([[True, True, False]])
    mha, x = nn.MultiheadAttention(8, 2, batch_first=True), torch.randn(1, 3, 8)
    x[~keep] = math.nan
    assert mha(x, x, x, key_padding_mask=~keep)[0][keep].isnan().any()
    assert F.scaled_dot_product_attention(x, x, x, attn_mask=keep[:, None])[keep].isnan().any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_two_added_masks_of_the_smallest_number_give_nan(dtype):
    low = torch.full((3,), torch.finfo(dtype).min, dtype=dtype)
    assert (low.softmax(0) > 0.3).all()
    assert (low + low).isneginf().all() and (low + low).softmax(0).isnan().all()


@pytest.mark.parametrize("kind", ["encoder", "decoder", "module"])
def test_two_masks_are_merged_into_one_of_full_size(kind):
    x, hidden = torch.randn(3, 16, 8), torch.ones(16, 16, dtype=torch.bool).triu(1)
    pad = torch.arange(16) >= torch.tensor([[16], [9], [5]])
    layer = {
        "encoder": nn.TransformerEncoderLayer(8, 2, 4, batch_first=True, dropout=0.0),
        "decoder": nn.TransformerDecoderLayer(8, 2, 4, batch_first=True, dropout=0.0),
        "module": nn.MultiheadAttention(8, 2, batch_first=True),
    }[kind]

    def squares(hidden, pad):
        calls = {
            "encoder": lambda: layer(x, hidden, pad),
            "decoder": lambda: layer(x, x, tgt_mask=hidden, tgt_key_padding_mask=pad),
            "module": lambda: layer(x, x, x, pad, need_weights=False, attn_mask=hidden),
        }
        shapes = autograd.saved_tensors(calls[kind])
        return [tuple(shape) for shape in shapes if shape[-2:] == (16, 16)]

    assert squares(None, pad) == []
    assert squares(hidden, pad) == [(3, 2, 16, 16)]


def causal(b, h, i, j):
    return i >= j


def test_packed_documents_require_restarted_sinusoids_but_not_rotary():
    """Rotary positions may continue across documents; sinusoidal ones must restart at 0."""
    q, k, v = torch.randn(3, 1, 1, 6, 8)
    doc, here = torch.tensor([0, 0, 1, 1, 1, 1]), torch.arange(6)
    own = (doc[:, None] == doc) & torch.ones(6, 6, dtype=torch.bool).tril()

    def attend(q, k, v, **options):
        return F.scaled_dot_product_attention(q, k, v, **options)

    packed = attend(attention.rotary(q, here), attention.rotary(k, here), v, attn_mask=own)
    table = attention.sinusoids(6, 8)
    added = attend(q + table, k + table, v, attn_mask=own)
    for part in (slice(2), slice(2, 6)):
        few = here[: part.stop - (part.start or 0)]
        turned = (attention.rotary(t[..., part, :], few) for t in (q, k))
        alone = attend(*turned, v[..., part, :], is_causal=True)
        torch.testing.assert_close(packed[..., part, :], alone)
        tabled = (t[..., part, :] + table[few] for t in (q, k))
        alone = attend(*tabled, v[..., part, :], is_causal=True)
        same = torch.allclose(added[..., part, :], alone, atol=1e-4)
        assert same == (part.start is None)


# ---------------------------------------------------------------- figures


def test_draw_seen_draws_a_panel_per_mask_and_a_box_per_weight():
    drawing = demos.draw_seen(
        {"is_causal=True": torch.ones(2, 5).tril() > 0, "b": torch.eye(3) > 0}
    )
    assert drawing.labels() == ["key", "query", "is_causal=True", "b"]
    boxes = [len(axis.patches) for axis in drawing.axes]
    assert boxes == [10, 9]
    first = drawing.axes[0].patches
    colors = [to_hex(patch.get_facecolor()) for patch in first]
    assert colors.count(COLORS["teal"]) == 3 and colors[0] == COLORS["teal"]
    assert "查询" in drawing._repr_html_()


# ---------------------------------------------------------------- exercises


def past_of(q, k):
    lq, lk = q.shape[-2], k.shape[-2]
    return torch.ones(lq, lk, dtype=torch.bool).tril(lk - lq)


def attend(mask, **options):
    def answer(q, k, v, keep):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask(q, k, keep), **options)

    return answer


def filled(low):
    def answer(q, k, v, keep):
        scores = q @ k.mT / q.shape[-1] ** 0.5
        hidden = ~(past_of(q, k) & keep[:, None, None])
        return scores.masked_fill(hidden, max(low, torch.finfo(q.dtype).min)).softmax(-1) @ v

    return answer


def by_rows(q, k, v, keep):
    rows = []
    for i in range(q.shape[-2]):
        end = k.shape[-2] - q.shape[-2] + i + 1
        seen = keep[:, None, None, :end]
        part = F.scaled_dot_product_attention
        rows.append(part(q[:, :, i : i + 1], k[:, :, :end], v[:, :, :end], attn_mask=seen))
    return torch.cat(rows, 2)


def scaled_in_place(q, k, v, keep):
    """Scale the input in place, so that a reference computed later would be equally wrong."""
    seen = past_of(q, k) & keep[:, None, None]
    return F.scaled_dot_product_attention(q.mul_(3), k, v, attn_mask=seen)


def added(q, k, keep):
    seen = past_of(q, k) & keep[:, None, None]
    return torch.zeros(seen.shape).masked_fill(~seen, -math.inf)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (attend(lambda q, k, keep: past_of(q, k) & keep[:, None, None]), None),
        (attend(added), None),
        (by_rows, None),
        (filled(-math.inf), None),
        (filled(torch.finfo(torch.float32).min), None),
        (filled(-1e9), "its score must be -inf"),
        (attend(lambda q, k, keep: None, is_causal=True), "must attend to every key"),
        (attend(lambda q, k, keep: None), "is not causal"),
        (attend(lambda q, k, keep: past_of(q, k)), "with padding"),
        (attend(lambda q, k, keep: keep[:, None, None]), "is not causal"),
        (attend(lambda q, k, keep: past_of(q, k) & ~keep[:, None, None]), "is not causal"),
        (attend(lambda q, k, keep: (past_of(q, k) & keep[:, None, None]).float()), "not causal"),
        (attend(lambda q, k, keep: keep[:, None, None], is_causal=True), "raised RuntimeError"),
        (attend(lambda q, k, keep: past_of(q, k) & keep[:1, None, None]), "with padding"),
        (scaled_in_place, "q was changed"),
        (attend(lambda q, k, keep: past_of(q, k) & keep[:, None, None], scale=0.5), "not yet"),
        (
            attend(lambda q, k, keep: past_of(q, k) & (keep[:, None, None] | (q.shape[2] == 1))),
            "with padding",
        ),
        (lambda q, k, v, keep: q.mean(), "expected shape"),
        (lambda q, k, v, keep: q * math.nan, "the result has nan"),
        (lambda q, k, v, keep: None, "expected a tensor, got None"),
    ],
)
def test_check_attend_accepts_right_and_rejects_wrong_answers(answer, says):
    expect(exercises.check_attend(answer), says)


def make_mask(keep, heads, own=True, real=True, spread="interleave", invert=True):
    length = keep.shape[1]
    seen = torch.ones(length, length, dtype=torch.bool).tril().expand(len(keep), -1, -1)
    seen = seen & keep[:, None] if real else seen
    seen = seen | torch.eye(length, dtype=torch.bool) if own else seen
    seen = ~seen if invert else seen
    wide = {"interleave": seen.repeat_interleave(heads, 0), "repeat": seen.repeat(heads, 1, 1)}
    return wide[spread]


def with_options(**options):
    return lambda keep, heads: make_mask(keep, heads, **options)


def as_float(keep, heads):
    return torch.zeros(()).masked_fill(make_mask(keep, heads), -math.inf)


def padding_sees_everything(keep, heads):
    """Let padding queries attend to everything: their outputs are unused."""
    length = keep.shape[1]
    hidden = ~(torch.ones(length, length).tril().bool() & keep[:, None]) & keep[..., None]
    return hidden.repeat_interleave(heads, 0)


def first_only(keep, heads):
    length = keep.shape[1]
    hidden = ~torch.eye(length, dtype=torch.bool).expand(len(keep) * heads, -1, -1)
    return hidden


def small_bias(keep, heads):
    return as_float(keep, heads) + 0.5 * torch.arange(keep.shape[1])


def padding_sees_real(keep, heads):
    past = torch.ones(keep.shape[1], keep.shape[1]).tril() > 0
    mask = past & keep[:, None] | ~keep[:, :, None] & keep[:, None]
    return ~mask.repeat_interleave(heads, 0)


MASKS = {}


def stored_by_shape(keep, heads):
    return MASKS.setdefault((*keep.shape, heads), make_mask(keep, heads))


def float_mask(keep, heads):
    mask = make_mask(keep, heads)
    return torch.zeros(mask.shape).masked_fill(mask, -math.inf)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (make_mask, None),
        (as_float, None),
        (padding_sees_everything, None),
        (stored_by_shape, "a real token"),
        (padding_sees_real, "nan"),
        (lambda keep, heads: (make_mask(keep, heads), keep.fill_(True))[0], "keep was changed"),
        (with_options(own=False), "nan"),
        (with_options(real=False), "a real token attends to padding"),
        (lambda keep, heads: -1e4 * make_mask(keep, heads).float(), "a float mask must be -inf"),
        (float_mask, None),
        (with_options(spread="repeat"), "a real token"),
        (with_options(invert=False), "a real token attends to a later one"),
        (lambda keep, heads: make_mask(keep, 1)[:1], "expected shape"),
        (lambda keep, heads: make_mask(keep, heads).float(), "a real token attends to a later one"),
        (first_only, "does not attend to all real tokens"),
        (small_bias, "does not attend to all real tokens"),
        (lambda keep, heads: ~keep, "expected shape"),
        (lambda keep, heads: None, "expected a tensor, got None"),
    ],
)
def test_check_mask_accepts_right_and_rejects_wrong_answers(answer, says):
    for _ in range(3):
        expect(exercises.check_mask(answer), says)


def step(q, k, v, cache, window, start=None, causal=True, size=None, keys=True, values=False):
    past = 0 if cache is None else cache[0].shape[-2]
    here = (past if start is None else start) + torch.arange(q.shape[-2])
    turn = attention.rotary
    q, k = turn(q, here), turn(k, here) if keys else k
    v = turn(v, here) if values else v
    if cache is not None:
        k, v = torch.cat((cache[0], k), -2), torch.cat((cache[1], v), -2)
    back = past + torch.arange(q.shape[-2])[:, None] - torch.arange(k.shape[-2])
    mask = back < (window if size is None else window + size)
    mask = mask & (back >= 0) if causal else mask
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask), (k, v)


def stepping(**options):
    return lambda *batch: step(*batch, **options)


def dropping(q, k, v, cache, window):
    """Cache only the keys inside the window, and the number of past positions."""
    old_k, old_v, past = cache or (k[:, :, :0], v[:, :, :0], 0)
    here = past + torch.arange(q.shape[-2])
    q, k = attention.rotary(q, here), attention.rotary(k, here)
    k, v = torch.cat((old_k, k), -2), torch.cat((old_v, v), -2)
    last = past + q.shape[-2]
    back = here[:, None] - torch.arange(last - k.shape[-2], last)
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=(back >= 0) & (back < window))
    return out, (k[:, :, -window:], v[:, :, -window:], last)


def raw_keys(q, k, v, cache, window):
    """Cache unrotated keys and rotate all of them at each step."""
    past = 0 if cache is None else cache[0].shape[-2]
    if cache is not None:
        k, v = torch.cat((cache[0], k), -2), torch.cat((cache[1], v), -2)
    places = torch.arange(k.shape[-2])
    back = places[past:, None] - places
    out = F.scaled_dot_product_attention(
        attention.rotary(q, places[past:]),
        attention.rotary(k, places),
        v,
        attn_mask=(back >= 0) & (back < window),
    )
    return out, (k, v)


def positions_below_64(q, k, v, cache, window):
    past = 0 if cache is None else cache[0].shape[-2]
    return step(q, k, v, cache, window, start=past % 64)


def rotated_again(q, k, v, cache, window):
    """Cache rotated keys and rotate them again at each step."""
    past = 0 if cache is None else cache[0].shape[-2]
    if cache is not None:
        k, v = torch.cat((cache[0], k), -2), torch.cat((cache[1], v), -2)
    places = torch.arange(k.shape[-2])
    q, k = attention.rotary(q, places[past:]), attention.rotary(k, places)
    back = places[past:, None] - places
    mask = (back >= 0) & (back < window)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask), (k, v)


def in_place(q, k, v, cache, window):
    """Append to a cache of lists: a second continuation includes the first one's keys."""
    cache = cache if cache is not None else ([], [])
    past = sum(t.shape[-2] for t in cache[0])
    here = past + torch.arange(q.shape[-2])
    cache[0].append(attention.rotary(k, here))
    cache[1].append(v)
    q, k, v = attention.rotary(q, here), torch.cat(cache[0], -2), torch.cat(cache[1], -2)
    back = here[:, None] - torch.arange(k.shape[-2])
    mask = (back >= 0) & (back < window)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask), cache


def causal_corner(q, k, v, cache, window):
    """Use `is_causal` instead of a mask: right for the prompt, wrong for later chunks."""
    _, cache = step(q, k, v, cache, window)
    here = cache[0].shape[-2] - q.shape[-2] + torch.arange(q.shape[-2])
    q = attention.rotary(q, here)
    return F.scaled_dot_product_attention(q, *cache, is_causal=True), cache


def without_gradient(*batch):
    out, cache = step(*batch)
    return out.detach(), cache


def detached_cache(*batch):
    out, cache = step(*batch)
    return out, tuple(t.detach() for t in cache)


def finite(q, k, v, cache, window):
    """Mask with -1e4, which large scores exceed."""
    _, (keys, values) = step(q, k, v, cache, window)
    past = keys.shape[-2] - q.shape[-2]
    here = past + torch.arange(q.shape[-2])
    back = here[:, None] - torch.arange(keys.shape[-2])
    mask = torch.where((back >= 0) & (back < window), 0.0, -1e4)
    q = attention.rotary(q, here)
    return F.scaled_dot_product_attention(q, keys, values, attn_mask=mask), (keys, values)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (step, None),
        (without_gradient, "gives no gradient to q, k or v"),
        (lambda *batch: (step(*batch), batch[0].zero_())[0], "q was changed"),
        (detached_cache, "no gradient to the keys and values before it"),
        (finite, "a masked key with a large score"),
        (stepping(), None),
        (dropping, None),
        (raw_keys, None),
        (positions_below_64, "wrong at positions above 64"),
        (stepping(start=0), "token by token"),
        (stepping(causal=False), "without a cache"),
        (stepping(size=1), "does not attend to exactly"),
        (stepping(size=-1), "without a cache"),
        (stepping(keys=False), "without a cache"),
        (stepping(values=True), "without a cache"),
        (rotated_again, "token by token"),
        (in_place, "continuing the same cache twice"),
        (causal_corner, "does not attend to exactly"),
        (lambda q, k, v, cache, window: q, "expected (out, cache), got Tensor"),
        (lambda q, k, v, cache, window: (None, None), "expected a tensor, got None"),
        (lambda q, k, v, cache, window: (q[:, 0], None), "expected shape"),
        (lambda q, k, v, cache, window: step(q, k, v, None, window), "token by token"),
    ],
)
def test_check_window_accepts_right_and_rejects_wrong_answers(answer, says):
    expect(exercises.check_window(answer), says)


@pytest.mark.parametrize("default", [torch.float64, torch.bfloat16])
def test_sinusoids_ignore_the_default_dtype(default):
    expected = attention.sinusoids(300, 5)
    torch.set_default_dtype(default)
    try:
        got = attention.sinusoids(300, 5)
    finally:
        torch.set_default_dtype(torch.float32)
    assert torch.equal(got, expected)
