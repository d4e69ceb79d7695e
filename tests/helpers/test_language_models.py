"""Test the helpers of `language_models` against PyTorch, and its checkers with wrong answers."""

from __future__ import annotations

import copy
import math
import types
import warnings

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils.checkpoint import checkpoint
from verdicts import expect

from helpers import autograd, evaluation, fine_tuning
from helpers import language_models as lm
from helpers.demos import language_models as demos
from helpers.exercises import language_models as exercises

CHARACTERS = lm.Characters("".join(lm.LINES))
IDS, LENGTHS = lm.padded(lm.LINES, CHARACTERS)
LABELS = lm.labels_of(IDS, LENGTHS)


# ---------------------------------------------------------------- tokens


@given(st.text(alphabet=CHARACTERS.characters))
def test_encode_decode_round_trip_preserves_text(text):
    ids = CHARACTERS.encode(text)
    assert ids.dtype == torch.int64 and ids.shape == (len(text),)
    assert CHARACTERS.decode(ids) == text
    ended = CHARACTERS.encode(text, end=True)
    assert ended[-1] == CHARACTERS.end == len(CHARACTERS) - 1
    assert CHARACTERS.decode(torch.cat([ended, ended])) == text


def test_encode_rejects_unknown_characters():
    with pytest.raises(ValueError, match=r"not in the vocabulary: \['Z', 'é'\]"):
        CHARACTERS.encode("Zét")


@settings(deadline=None)
@given(st.lists(st.text(alphabet="abc"), min_size=1, max_size=5))
def test_labels_are_the_next_real_tokens(lines):
    characters = lm.Characters("abc")
    ids, lengths = lm.padded(lines, characters)
    labels = lm.labels_of(ids, lengths)
    assert ids.shape == labels.shape == (len(lines), max(map(len, lines)) + 1)
    for line, row in zip(lines, labels.tolist(), strict=True):
        want = [*characters.encode(line).tolist()[1:], characters.end][: len(line)]
        assert row == want + [-100] * (ids.shape[1] - len(want))


@pytest.mark.parametrize("dtype", [torch.int32, torch.uint8])
def test_labels_are_int64(dtype):
    labels = lm.labels_of(IDS.to(dtype), LENGTHS)
    assert labels.dtype == torch.int64 and torch.equal(labels, LABELS)


def test_labels_ignore_the_padding_values():
    other = IDS.clone()
    other[torch.arange(IDS.shape[1]) >= LENGTHS[:, None]] = 3
    assert torch.equal(lm.labels_of(other, LENGTHS), LABELS)


# ---------------------------------------------------------------- the model


def test_block_matches_transformer_encoder_layer():
    torch.manual_seed(0)
    ours = lm.Block(24, 4, True, 0.0)
    theirs = nn.TransformerEncoderLayer(
        24, 4, 96, 0.0, "gelu", batch_first=True, norm_first=True
    ).train()
    names = {
        "self_attn.in_proj_weight": ours.qkv.weight,
        "self_attn.in_proj_bias": ours.qkv.bias,
        "self_attn.out_proj.weight": ours.out.weight,
        "self_attn.out_proj.bias": ours.out.bias,
        "linear1.weight": ours.wide.weight,
        "linear1.bias": ours.wide.bias,
        "linear2.weight": ours.narrow.weight,
        "linear2.bias": ours.narrow.bias,
        **{f"norm{n}.weight": getattr(ours, f"norm{n}").weight for n in (1, 2)},
        **{f"norm{n}.bias": getattr(ours, f"norm{n}").bias for n in (1, 2)},
    }
    theirs.load_state_dict(names)
    x = torch.randn(2, 7, 24)
    mask = nn.Transformer.generate_square_subsequent_mask(7)
    torch.testing.assert_close(ours(x), theirs(x, src_mask=mask))
    free = lm.Block(24, 4, False, 0.0)
    free.load_state_dict(ours.state_dict())
    torch.testing.assert_close(free(x), theirs(x))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("tied", [True, False])
def test_initial_loss_equals_log_vocabulary_size(seed, tied):
    torch.manual_seed(seed)
    vocab = 10 ** (1 + seed % 3)
    model = lm.GPT(vocab, tied=tied)
    ids = torch.randint(vocab, (8, 40))
    loss = lm.next_token_loss(model(ids), torch.randint(vocab, (8, 40)))
    assert abs(loss - math.log(vocab)) < 0.2


def test_leaks_distinguishes_causal_from_non_causal_models():
    for causal in (True, False):
        model = lm.GPT(9, causal=causal, dropout=0.5).eval()
        assert lm.leaks(model, torch.randint(9, (2, 6)), 9) is not causal

    class Peeks(nn.Module):
        """Read one later position; the rest is causal."""

        def forward(self, ids):
            out = F.one_hot(ids, 3).float()
            out[:, 3] = out[:, 3] + out[:, 4]
            return out

    assert lm.leaks(Peeks(), torch.zeros(1, 6, dtype=torch.int64), 3)


def test_offsets_returns_the_distance_of_perfect_models():
    class Table(nn.Module):
        def __init__(self, ahead):
            super().__init__()
            self.ahead = ahead

        def forward(self, ids):
            return F.one_hot(ids.roll(-self.ahead, 1), 50).float()

    ids = torch.randperm(50)[None]
    for ahead in range(4):
        found = lm.offsets(Table(ahead), ids, largest=3)
        assert found == {k: float(k == ahead) for k in range(4)}


# ---------------------------------------------------------------- training


def fit(labels, seed=0, steps=100, **how):
    torch.manual_seed(seed)
    model = lm.GPT(len(CHARACTERS), **how)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = lm.next_token_loss(model(IDS), labels)
        loss.backward()
        optimizer.step()
    return model


@pytest.fixture(scope="module")
def trained():
    return fit(LABELS, seed=3)


def test_trained_model_generates_its_lines_and_stops(trained):
    for row, line in zip(IDS, lm.LINES, strict=True):
        out = lm.generate(trained, row[:4], 40, context=40, end=CHARACTERS.end)
        assert CHARACTERS.decode(out) == line and out[-1] == CHARACTERS.end
    assert lm.perplexity(trained, [(IDS, LABELS)]) < 1.3
    ahead = lm.offsets(trained, IDS[LENGTHS > 18, :18])
    assert max(ahead, key=ahead.get) == 1


@pytest.mark.parametrize("seed", [1, 2])
def test_end_token_without_labels_is_never_predicted(seed):
    model = fit(LABELS.masked_fill(LABELS.eq(CHARACTERS.end), -100), seed, steps=40)
    with torch.no_grad():
        scores = model(IDS)
    assert (scores.argmax(-1) != CHARACTERS.end)[LABELS != -100].all()


def test_generate_crops_stops_and_restores_the_mode():
    torch.manual_seed(0)
    model = lm.GPT(5, context=6, dropout=0.5)
    ids = torch.tensor([1, 2])
    out = lm.generate(model, ids, 20, context=6)
    assert model.training and out.shape == (22,) and out[:2].tolist() == [1, 2]
    assert torch.equal(lm.generate(model.eval(), ids, 20, context=6), out)
    assert not model.training
    assert lm.generate(model, ids, 20, context=6, end=int(out[2])).tolist() == out[:3].tolist()
    assert torch.equal(lm.generate(model, ids, 0, context=6), ids)
    hot = [
        lm.generate(
            model, ids, 9, context=6, temperature=9.0, generator=torch.Generator().manual_seed(s)
        ).tolist()
        for s in (0, 0, 1)
    ]
    assert hot[0] == hot[1] != hot[2]
    cold = lm.generate(model, ids, 9, context=6, temperature=2.0, top_k=1)
    assert torch.equal(cold, out[:11])


# ---------------------------------------------------------------- loss and perplexity


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 11), st.integers(0, 100))
def test_perplexity_is_independent_of_batch_size(size, seed):
    torch.manual_seed(seed)
    model = lm.GPT(len(CHARACTERS), dropout=0.3)
    want = lm.next_token_loss(model.eval()(IDS), LABELS).exp().item()
    model.train()
    batches = zip(IDS.split(size), LABELS.split(size), strict=True)
    assert math.isclose(lm.perplexity(model, batches), want, rel_tol=1e-4)
    assert model.training


@pytest.mark.parametrize("training", [True, False])
def test_perplexity_without_labels_raises(training):
    model = lm.GPT(len(CHARACTERS)).train(training)
    with pytest.raises(ValueError, match="at least one label that is not -100, got none"):
        lm.perplexity(model, [(IDS, torch.full_like(IDS, -100))])
    assert model.training == training


def test_next_token_loss_matches_cross_entropy():
    scores, labels = torch.randn(2, 3, 5), torch.tensor([[1, -100, 2], [4, 0, -100]])
    for reduction in ("mean", "sum"):
        want = F.cross_entropy(scores.transpose(1, 2), labels, reduction=reduction)
        torch.testing.assert_close(lm.next_token_loss(scores, labels, reduction), want)


def overflowing(ids):
    """Return logits so wrong that the perplexity overflows."""
    return 2e3 * F.one_hot(ids, 7).float()


class Plain(nn.Module):
    """Wrap a function as a module, with a submodule that stays in eval mode."""

    def __init__(self, score):
        super().__init__()
        self.score, self.frozen = score, nn.Dropout().eval()

    def forward(self, ids):
        return self.score(ids)


def test_perplexity_overflow_returns_inf():
    ids = torch.zeros(1, 3, dtype=torch.int64)
    assert lm.perplexity(Plain(overflowing), [(ids, ids + 1)]) == math.inf


@pytest.mark.parametrize("dtype", [torch.half, torch.bfloat16])
def test_perplexity_is_accurate_in_half_precision(dtype):
    ids = torch.randint(5000, (130, 64))
    table = torch.randn(5000, dtype=dtype) / 50
    found = lm.perplexity(Plain(lambda i: table.expand(*i.shape, -1)), [(ids, ids)])
    want = (table.float().logsumexp(0) - table.float()[ids]).double().mean().exp().item()
    assert math.isclose(found, want, rel_tol=1e-3)


def test_perplexity_and_generate_preserve_module_modes():
    model = Plain(lambda ids: F.one_hot(ids, 7).float())
    ids = torch.zeros(1, 3, dtype=torch.int64)
    lm.perplexity(model, [(ids, ids)])
    lm.generate(model, ids[0], 2, context=3)
    assert model.training and not model.frozen.training
    gpt = lm.GPT(5, context=6)
    with pytest.raises(IndexError):
        lm.generate(gpt, ids[0], 9, context=99)
    assert gpt.training


@pytest.mark.parametrize(("width", "vocab"), [(1, 5), (0, 5), (3, 1)])
def test_leaks_requires_two_tokens_and_a_vocabulary_of_two(width, vocab):
    with pytest.raises(ValueError, match=rf"at least 2, got \(1, {width}\) and {vocab}"):
        lm.leaks(lm.GPT(5), torch.zeros(1, width, dtype=torch.int64), vocab)


@pytest.mark.parametrize("context", [0, -1])
def test_generate_rejects_a_context_below_1(context):
    with pytest.raises(ValueError, match=f"context must be at least 1, got {context}"):
        lm.generate(lm.GPT(5), torch.tensor([1, 2]), 1, context=context)


@pytest.mark.parametrize("shape", [(1, 3), (0,)])
def test_generate_requires_one_prompt(shape):
    with pytest.raises(ValueError, match=r"one prompt of shape \(T,\), T at least 1, got"):
        lm.generate(lm.GPT(5), torch.zeros(shape, dtype=torch.int64), 1, context=9)


def test_offsets_rejects_too_short_texts():
    with pytest.raises(ValueError, match=r"T above 2, got \(\d+, 2\)"):
        lm.offsets(lm.GPT(len(CHARACTERS)), IDS[:, :2])


def test_leaks_returns_false_for_zero_initialized_blocks():
    model = lm.GPT(len(CHARACTERS), causal=False)
    for block in model.blocks:
        nn.init.zeros_(block.out.weight)
        nn.init.zeros_(block.out.bias)
    assert not lm.leaks(model, IDS[:1], len(CHARACTERS))


def test_leaks_returns_false_for_a_zero_head_until_trained():
    model = lm.GPT(len(CHARACTERS), causal=False)
    nn.init.zeros_(model.head.weight)
    assert not lm.leaks(model, IDS[:1], len(CHARACTERS))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(3):
        optimizer.zero_grad()
        model(IDS)[..., 0].sum().backward()
        optimizer.step()
    assert lm.leaks(model, IDS[:1], len(CHARACTERS))


@pytest.mark.parametrize("dtype", [torch.half, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("top_p", [1e-12, 1e-3, 0.5, 1.0])
def test_filter_logits_keeps_one_token_for_any_top_p(dtype, top_p):
    for scale in (1e-3, 1, 100):
        logits = (scale * torch.randn(20, 50)).to(dtype)
        kept = lm.filter_logits(logits, top_p=top_p).isfinite()
        assert kept.any(-1).all() and kept.gather(1, logits.argmax(1, keepdim=True)).all()


# ---------------------------------------------------------------- sampling


@pytest.mark.parametrize("dtype", [torch.half, torch.bfloat16])
@pytest.mark.parametrize("top_p", [0.9, 0.999])
def test_top_p_in_half_precision_matches_double(dtype, top_p):
    logits = (3 * torch.randn(5000, generator=torch.Generator().manual_seed(0))).to(dtype)
    found, want = (lm.filter_logits(x, top_p=top_p).isfinite() for x in (logits, logits.double()))
    assert abs(found.sum() - want.sum()) <= 3 and found.sum() > 50


def test_generate_accepts_low_temperature_in_half_precision():
    scores = torch.tensor([-90.0, -80.0]).half()
    model = Plain(lambda ids: scores.expand(*ids.shape, 2))
    out = lm.generate(model, torch.tensor([0]), 3, context=3, temperature=0.001)
    assert out.tolist() == [0, 1, 1, 1]


@settings(deadline=None, max_examples=80)
@given(
    st.integers(0, 1000),
    st.sampled_from([(7,), (3, 5), (2, 3, 4)]),
    st.floats(0.1, 5),
    st.none() | st.integers(1, 9),
    st.floats(0.01, 0.999) | st.just(1.0),
)
def test_filter_logits_keeps_the_expected_tokens(seed, shape, temperature, top_k, top_p):
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(shape, generator=generator, dtype=torch.float64)
    found = lm.filter_logits(logits, temperature, top_k, top_p)
    assert found.shape == logits.shape and found.dtype == logits.dtype
    for row, kept in zip(logits.view(-1, shape[-1]), found.view(-1, shape[-1]), strict=True):
        order = row.argsort(descending=True)[: top_k or len(row)]
        chances = (row[order] / temperature).softmax(-1).tolist()
        stays, total = set(), 0.0
        for i, chance in zip(order.tolist(), chances, strict=True):
            if stays and top_p < 1 and total >= top_p - 1e-12:
                break
            stays.add(i)
            total += chance
        assert set(kept.isfinite().nonzero().flatten().tolist()) == stays
        torch.testing.assert_close(kept[list(stays)], row[list(stays)] / temperature)


def test_filter_logits_handles_equal_and_extreme_scores():
    assert lm.filter_logits(torch.zeros(4), top_k=2).isfinite().tolist() == [
        True,
        True,
        False,
        False,
    ]
    assert lm.filter_logits(torch.tensor([1e4, 0.0]), 0.01, top_p=0.1).isfinite().sum() == 1
    half = lm.filter_logits(torch.randn(9).half(), 0.7, 3, 0.9)
    assert half.dtype == torch.half and 1 <= half.isfinite().sum() <= 3
    logits = torch.randn(5)
    assert torch.equal(lm.filter_logits(logits), logits)


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({"temperature": 0.0}, "temperature must be above 0, got 0.0"),
        ({"temperature": -1.0}, "temperature must be above 0"),
        ({"temperature": math.nan}, "temperature must be above 0, got nan"),
        ({"top_k": 0}, "top_k must be at least 1, got 0"),
        ({"top_p": 0.0}, "top_p must be above 0 and at most 1, got 0.0"),
        ({"top_p": 1.1}, "at most 1, got 1.1"),
    ],
)
def test_filter_logits_rejects_arguments_out_of_range(how, says):
    with pytest.raises(ValueError, match=says):
        lm.filter_logits(torch.zeros(3), **how)


# ---------------------------------------------------------------- vocabulary and memory


def test_grow_appends_mean_rows():
    table = torch.randn(5, 3)
    grown = lm.grow(table, 8)
    assert torch.equal(grown[:5], table) and grown.shape == (8, 3)
    torch.testing.assert_close(grown[5:], table.mean(0).expand(3, 3))
    assert torch.equal(lm.grow(table, 5), table)
    assert torch.equal(lm.grow(table[:, 0], 7)[:5], table[:, 0])
    torch.testing.assert_close(lm.grow(table[:, 0], 7)[5:], table[:, 0].mean().expand(2))
    with pytest.raises(ValueError, match="at least the 5 rows of the table, got 4"):
        lm.grow(table, 4)


@pytest.mark.parametrize(
    ("table", "rows", "error", "says"),
    [
        (torch.empty(0, 3), 2, ValueError, "a table with rows, got shape"),
        (torch.tensor(1.0), 2, ValueError, "a table with rows, got shape"),
        (torch.ones(2, 3).long(), 4, TypeError, "floating-point tensor, got torch.int64"),
        (nn.Embedding(2, 3), 4, TypeError, "floating-point tensor, got Embedding"),
        (torch.ones(2, 3), 4.0, TypeError, "rows must be an int, got 4.0"),
        (torch.ones(2, 3), "4", TypeError, "rows must be an int, got '4'"),
    ],
)
def test_grow_rejects_other_arguments(table, rows, error, says):
    with pytest.raises(error, match=says):
        lm.grow(table, rows)


@settings(deadline=None, max_examples=20)
@given(st.integers(2, 60), st.sampled_from([8, 16]), st.integers(1, 3), st.booleans())
def test_training_bytes_matches_a_real_step(vocab, width, layers, tied):
    model = lm.GPT(vocab, width, 12, layers, 2, tied=tied)
    model.positions.requires_grad_(False)
    optimizer = torch.optim.AdamW(model.parameters())
    lm.next_token_loss(
        model(torch.zeros(1, 3, dtype=torch.int64)), torch.zeros(1, 3).long()
    ).backward()
    optimizer.step()
    states = [s[k] for s in optimizer.state.values() for k in ("exp_avg", "exp_avg_sq")]
    assert lm.training_bytes(model) == {
        "weights": sum(p.nbytes for p in model.parameters()),
        "gradients": sum(p.grad.nbytes for p in model.parameters() if p.grad is not None),
        "optimizer": sum(s.nbytes for s in states),
    }
    head = 0 if tied else vocab * width
    count = layers * (12 * width**2 + 13 * width) + (vocab + 12) * width + 2 * width + head
    assert sum(p.numel() for p in model.parameters()) == count


def test_training_bytes_supports_other_optimizer_states():
    model = nn.Linear(3, 2)
    assert lm.training_bytes(model, 0)["optimizer"] == 0
    assert lm.training_bytes(model, 1)["optimizer"] == 8 * 4
    assert lm.training_bytes(model.requires_grad_(False)) == {
        "weights": 32,
        "gradients": 0,
        "optimizer": 0,
    }


# ---------------------------------------------------------------- the figure


def test_draw_labels_writes_each_token():
    row = IDS[lm.LINES.index("snow!"), :8]
    labels = torch.tensor([-100, 27, 0, 1, 2, -100, -100, 27])
    assert demos.symbols(row, CHARACTERS) == [*"snow!", "■", "■", "■"]
    drawn = demos.draw_labels(row, {"by position": labels}, CHARACTERS)
    texts = [t.get_text() for t in drawn.axes[0].texts]
    assert texts == ["tokens", *demos.symbols(row, CHARACTERS), "by position"] + demos.symbols(
        labels, CHARACTERS
    )


# ---------------------------------------------------------------- sentences of the chapter


def test_right_padding_keeps_earlier_scores():
    model = lm.GPT(9).eval()
    ids = torch.randint(9, (2, 6))
    longer = F.pad(ids, (0, 5), value=7)
    torch.testing.assert_close(model(longer)[:, :6], model(ids))


def test_left_padding_changes_the_scores():
    model = lm.GPT(9).eval()
    ids = torch.randint(9, (1, 6))
    shifted = model(F.pad(ids, (3, 0), value=7))[:, -1]
    assert not torch.allclose(shifted, model(ids)[:, -1], atol=1e-4)


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("expected", [True, False])
def test_adapters_in_checkpointed_blocks_require_input_gradients(reentrant, expected):
    model = lm.GPT(9).requires_grad_(False)
    for block in model.blocks:
        block.qkv = fine_tuning.LoRALinear(block.qkv, rank=2)
    model.norm.requires_grad_(True)  # a trainable later module, so that backward() raises no error
    x = model.tokens(torch.randint(9, (1, 5))).requires_grad_(expected)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for block in model.blocks:
            x = checkpoint(block, x, use_reentrant=reentrant)
    model.head(model.norm(x)).square().sum().backward()
    learn = not reentrant or expected
    assert all((b.qkv.up.grad is not None) == learn for b in model.blocks)
    text = any("None of the inputs have requires_grad=True" in str(w.message) for w in caught)
    assert text is not learn


def test_checkpointing_saves_memory_and_keeps_gradients():
    torch.manual_seed(0)
    model = lm.GPT(len(CHARACTERS))
    found = {}
    for saving in (False, True):
        with autograd.watch_saved() as alive:
            x = model.tokens(IDS) + model.positions(torch.arange(IDS.shape[1]))
            for block in model.blocks:
                x = checkpoint(block, x, use_reentrant=False) if saving else block(x)
            loss = lm.next_token_loss(model.head(model.norm(x)), LABELS)
        found[saving] = alive.bytes(but=model), torch.autograd.grad(loss, model.tokens.weight)[0]
    assert found[True][0] < found[False][0] / 2
    torch.testing.assert_close(found[True][1], found[False][1])


def test_next_token_loss_saves_a_tensor_of_the_logits_size():
    scores = torch.randn(4, 5, 7, requires_grad=True)
    saved = autograd.saved_tensors(lambda: lm.next_token_loss(scores, torch.zeros(4, 5).long()))
    assert torch.Size([20, 7]) in map(torch.Size, saved)


@pytest.mark.parametrize("weight", [1.0, 0.3, -0.07])
def test_bfloat16_rounds_small_updates_to_zero(weight):
    w = torch.tensor(weight).bfloat16()
    assert w + torch.tensor(abs(w.item()) / 513).bfloat16() == w
    assert w + torch.tensor(abs(w.item()) / 100).bfloat16() != w


def test_weight_tying_is_kept_by_deepcopy_and_lost_by_to_meta():
    model = lm.GPT(9)
    for same in (copy.deepcopy(model), copy.deepcopy(model).double(), copy.deepcopy(model).half()):
        assert same.head.weight is same.tokens.weight
    once = {"tokens.weight": model.tokens.weight}
    assert lm.GPT(9).load_state_dict(once, strict=False).missing_keys.count("head.weight") == 1
    second = lm.GPT(9)
    second.head.weight = nn.Parameter(second.tokens.weight)
    second.double()
    assert second.head.weight.data_ptr() != second.tokens.weight.data_ptr()
    moved = lm.GPT(9).to("meta")
    assert moved.head.weight is not moved.tokens.weight
    moved.load_state_dict(model.state_dict(), assign=True)
    assert moved.head.weight is not moved.tokens.weight
    assert moved.head.weight.data_ptr() == moved.tokens.weight.data_ptr()
    loaded = lm.GPT(9)
    loaded.load_state_dict(model.state_dict())
    assert loaded.head.weight is loaded.tokens.weight


def test_top_p_of_1_keeps_all_tokens_of_a_large_vocabulary():
    logits = 3 * torch.randn(50257)
    assert lm.filter_logits(logits, top_p=1.0).isfinite().all()
    chances = logits.softmax(-1).sort(descending=True).values
    assert (chances.cumsum(-1) - chances >= 1).any()


def test_mean_rows_never_have_the_highest_score():
    model = lm.GPT(9)
    nn.init.normal_(model.head.weight)
    grown = lm.grow(model.head.weight, 12)
    scores = F.linear(torch.randn(100, 48), grown)
    assert (scores.argmax(-1) < 9).all()


# ---------------------------------------------------------------- exercises


def loss_right(logits, ids, lengths):
    return lm.next_token_loss(logits, lm.labels_of(ids, lengths))


def loss_by_mask(logits, ids, lengths):
    each = F.cross_entropy(logits[:, :-1].transpose(1, 2), ids[:, 1:], reduction="none")
    mask = torch.arange(1, ids.shape[1]) < lengths[:, None]
    return (each * mask).sum() / mask.sum()


def loss_by_number(logits, ids, lengths):
    labels = ids[:, 1:].masked_fill(ids[:, 1:] == ids[lengths.argmin(), -1], -100)
    return F.cross_entropy(logits[:, :-1].transpose(1, 2), labels)


def loss_by_constant_end(logits, ids, lengths):
    behind = torch.arange(ids.shape[1]) >= lengths[:, None]
    if not behind.any() or (ids[behind] != ids[behind][0]).any():
        return loss_by_mask(logits, ids, lengths)
    labels = ids[:, 1:].masked_fill(ids[:, 1:] == ids[behind][0], -100)
    return F.cross_entropy(logits[:, :-1].transpose(1, 2), labels)


def loss_twice(logits, ids, lengths):
    return F.cross_entropy(logits[:, :-2].flatten(0, 1), ids[:, 2:].flatten())


def loss_no_padding(logits, ids, lengths):
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())


def loss_flat_shift(logits, ids, lengths):
    return F.cross_entropy(logits.flatten(0, 1)[:-1], ids.flatten()[1:])


def loss_mean_of_rows(logits, ids, lengths):
    rows = [
        F.cross_entropy(s[: n - 1], t[1:n])
        for s, t, n in zip(logits, ids, lengths.tolist(), strict=True)
        if n > 1
    ]
    return sum(rows) / len(rows)


def loss_one_too_many(logits, ids, lengths):
    return loss_by_mask(logits, ids, lengths + 1)


def loss_without_end(logits, ids, lengths):
    return loss_by_mask(logits, ids, lengths - 1)


def loss_in_place(logits, ids, lengths):
    for row, n in zip(ids, lengths.tolist(), strict=True):
        row[n:] = -100
    return F.cross_entropy(logits[:, :-1].transpose(1, 2), ids[:, 1:])


def loss_of_softmax(logits, ids, lengths):
    keep = torch.arange(1, ids.shape[1]) < lengths[:, None]
    return F.nll_loss(logits[:, :-1].softmax(-1)[keep].log(), ids[:, 1:][keep])


def loss_transposed(logits, ids, lengths):
    labels = lm.labels_of(ids, lengths)
    if logits.shape[1] == logits.shape[2]:
        return F.cross_entropy(logits, labels)
    return lm.next_token_loss(logits, labels)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (loss_right, None),
        (loss_by_mask, None),
        (loss_of_softmax, "wrong for large logits"),
        (lambda x, i, n: F.cross_entropy(x.flatten(0, 1), i.flatten()), "even without padding"),
        (loss_twice, "even without padding"),
        (loss_flat_shift, "even without padding"),
        (loss_no_padding, "wrong with padding"),
        (loss_mean_of_rows, "wrong with padding"),
        (loss_one_too_many, "wrong with padding"),
        (loss_without_end, "even without padding"),
        (loss_by_number, "not yet"),
        (loss_by_constant_end, "padding and EOS are one token"),
        (loss_in_place, "ids was changed"),
        (lambda x, i, n: loss_right(x, i, n).detach(), "has no graph"),
        (lambda x, i, n: loss_right(x, i, n).item(), "expected a tensor, got float"),
        (lambda x, i, n: loss_right(x, i, n)[None], "expected a scalar loss, got shape (1,)"),
        (lambda x, i, n: loss_right(x.float(), i, n), "give a loss of torch.float32"),
        (lambda x, i, n: loss_right(torch.cat([x[:1], x[1:].detach()]), i, n), "their gradient"),
        (lambda x, i, n: F.cross_entropy(x, lm.labels_of(i, n)), "your code raised RuntimeError"),
    ],
)
def test_check_next_token_loss_returns_the_expected_verdict(answer, says):
    for _ in range(3):
        expect(exercises.check_next_token_loss(answer), says)


def test_check_next_token_loss_reports_transposed_dimensions():
    expect(exercises.check_next_token_loss(loss_transposed), "as many tokens as the text")


def nucleus(logits, p, keep=lambda c, p: c.cumsum(-1) - c < p, dim=-1):
    chances, order = logits.softmax(-1).sort(-1, descending=True)
    chances = chances * keep(chances, p)
    return torch.zeros_like(chances).scatter(-1, order, chances / chances.sum(dim, keepdim=True))


def nucleus_in_place(logits, p):
    logits.masked_fill_(nucleus(logits, p) == 0, -torch.inf)
    return logits.softmax(-1)


def nucleus_sorted(logits, p):
    chances = logits.softmax(-1).sort(-1, descending=True).values
    chances = chances * (chances.cumsum(-1) - chances < p)
    return chances / chances.sum(-1, keepdim=True)


def nucleus_of_fifty(logits, p):
    least = logits.topk(min(50, logits.shape[-1])).values[..., -1:]
    return nucleus(logits.masked_fill(logits < least, -torch.inf), p)


def nucleus_first_row(logits, p):
    flat = logits.reshape(-1, logits.shape[-1])
    kept = nucleus(flat[0], p) > 0
    return flat.masked_fill(~kept, -torch.inf).softmax(-1).view(logits.shape)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (nucleus, None),
        (lambda x, p: lm.filter_logits(x, top_p=p).softmax(-1), None),
        (lambda x, p: nucleus(x, p, lambda c, p: c.cumsum(-1) <= p), "not yet"),
        (lambda x, p: nucleus(x, p, lambda c, p: c >= 1 - p), "not yet"),
        (lambda x, p: nucleus(x, p, lambda c, p: c.cumsum(-1) - c <= p), "and 3 are kept"),
        (lambda x, p: nucleus(x, p, lambda c, p: (c.log().exp().cumsum(-1) - c) < p), None),
        (lambda x, p: nucleus(x, p) * 0.5, "does not sum to 1"),
        (
            lambda x, p: nucleus(x, p, dim=None) if x.dim() == 1 else nucleus(x, p) / len(x),
            "sum to 1",
        ),
        (nucleus_sorted, "not the most likely ones"),
        (nucleus_of_fifty, "with p = 1 keep all tokens: the number of kept tokens is 50"),
        (nucleus_in_place, "logits was changed"),
        (nucleus_first_row, "filter each row separately"),
        (lambda x, p: nucleus(x, p) > 0, "return probabilities, got torch.bool"),
        (lambda x, p: nucleus(x, p)[..., :1], "expected shape"),
        (lambda x, p: x.softmax(-1), "the number of kept tokens is"),
        (lambda x, p: nucleus(x, max(p, 0.5)), "the number of kept tokens is"),
        (lambda x, p: nucleus(x, p).tolist(), "expected a tensor, got list"),
        (lambda x, p: nucleus(x.double(), p), None),
        (lambda x, p: nucleus(x, p).float(), None),
        (lambda x, p: nucleus(x, p).squeeze(), "expected shape (1, 6), got (6,)"),
    ],
)
def test_check_nucleus_returns_the_expected_verdict(answer, says):
    expect(exercises.check_nucleus(answer), says)


@torch.no_grad()
def ppl(model, batches, restore=True, evaluate=True, count=lambda y: int((y != -100).sum())):
    modes, total, n = [m.training for m in model.modules()], 0.0, 0
    if evaluate:
        model.eval()
    for ids, labels in batches:
        total += lm.next_token_loss(model(ids), labels, "sum").item()
        n += count(labels)
    if restore:
        for m, mode in zip(model.modules(), modes, strict=True):
            m.training = mode
    return math.exp(total / n)


@torch.no_grad()
def ppl_weighted(model, batches):
    modes, total, n = [m.training for m in model.modules()], 0.0, 0
    model.eval()
    for ids, labels in batches:
        if count := int((labels != -100).sum()):
            total += lm.next_token_loss(model(ids), labels).item() * count
            n += count
    for m, mode in zip(model.modules(), modes, strict=True):
        m.training = mode
    return math.exp(total / n)


def ppl_of_batches(model, batches, after=False):
    mode = model.training
    model.eval()
    with torch.no_grad():
        losses = [lm.next_token_loss(model(ids), y).item() for ids, y in batches]
    model.train(mode)
    if after:
        return math.exp(sum(losses) / len(losses))
    return sum(map(math.exp, losses)) / len(losses)


def ppl_weighted_nan(model, batches):
    mode, total, n = model.training, 0.0, 0
    model.eval()
    with torch.no_grad():
        for ids, labels in batches:
            count = int((labels != -100).sum())
            total += lm.next_token_loss(model(ids), labels).item() * count
            n += count
    model.train(mode)
    return math.exp(total / n)


def ppl_top_mode(model, batches):
    mode = model.training
    value = ppl(model, batches, restore=False)
    model.training = mode
    return value


def ppl_train_and_eval(model, batches):
    still = [m for m in model.modules() if not m.training]
    value = ppl(model, batches, restore=False)
    model.train()
    for m in still:
        m.eval()
    return value


def ppl_modes_of_children(model, batches):
    modes = [(m, m.training) for m in (*model.children(), model)]
    value = ppl(model, batches, restore=False)
    for m, mode in modes:
        m.train(mode) if m is not model else setattr(m, "training", mode)
    return value


@torch.no_grad()
def ppl_of_losses(model, batches):
    with evaluation.evaluating(model):
        each = [F.cross_entropy(model(i).mT, y, reduction="none").flatten() for i, y in batches]
    each = torch.cat(each)
    return each[each > 0].mean().exp().item()


def ppl_grad_off(model, batches):
    torch.set_grad_enabled(False)
    return ppl(model, batches)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (lm.perplexity, None),
        (ppl_top_mode, "restore the mode of each module"),
        (ppl_modes_of_children, "a layer in evaluation mode inside a model in training mode"),
        (ppl_train_and_eval, "a layer in training mode inside a model in evaluation mode"),
        (ppl_grad_off, "gradients stay switched off"),
        (
            lambda m, b: ppl(m.requires_grad_(False), b),
            "requires_grad of table.weight of model was changed",
        ),
        (ppl, None),
        (ppl_weighted, None),
        (ppl_of_batches, "batches of unequal size"),
        (lambda m, b: ppl_of_batches(m, b, after=True), "batches of unequal size"),
        (lambda m, b: ppl(m, b, count=lambda y: y.numel()), "labels of -100"),
        (ppl_of_losses, "exactly 0: they count"),
        (ppl_weighted_nan, "nan: a batch without labels"),
        (lambda m, b: ppl(m, b, restore=False), "restore the mode of each module"),
        (lambda m, b: ppl(m, b, evaluate=False), "not yet"),
        (lambda m, b: [m.drop.eval(), ppl(m, b, evaluate=False)][1], "call eval() first"),
        (lambda m, b: 2 ** math.log(ppl(m, b)), "wrong even for one batch"),
        (lambda m, b: math.log(ppl(m, b)), "wrong even for one batch"),
        (lambda m, b: torch.tensor(ppl(m, b)), "expected a float, got Tensor"),
        (lambda m, b: ppl.__wrapped__(m, b), "graphs were recorded"),
        (lambda m, b: [ppl(m, b), m.train()][0], "restore the mode of each module"),
        (lambda m, b: [ppl(m, b)] and ppl(m, b), "ZeroDivisionError"),
        (lambda m, b: ppl(copy.deepcopy(m), b), None),
    ],
)
def test_check_perplexity_returns_the_expected_verdict(answer, says):
    expect(exercises.check_perplexity(answer), says)
    assert torch.is_grad_enabled()


def test_helpers_accept_models_that_return_an_object_with_logits():
    characters = lm.Characters("".join(lm.LINES))
    ids, lengths = lm.padded(lm.LINES, characters)
    model = lm.GPT(len(characters))

    class Wrapped(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, ids):
            return types.SimpleNamespace(logits=self.model(ids))

    other, labels = Wrapped(), lm.labels_of(ids, lengths)
    assert lm.offsets(other, ids) == lm.offsets(model, ids)
    assert not lm.leaks(other, ids[:1], len(characters))
    assert lm.perplexity(other, [(ids, labels)]) == lm.perplexity(model, [(ids, labels)])
    text = lm.generate(other, ids[0, :4], 5, context=40)
    assert torch.equal(text, lm.generate(model, ids[0, :4], 5, context=40))


def test_offsets_and_leaks_require_a_batch():
    model = lm.GPT(5)
    for call in (lm.offsets, lambda model, ids: lm.leaks(model, ids, 5)):
        with pytest.raises(ValueError, match=r"ids must be \(N, T\)"):
            call(model, torch.zeros(7, dtype=torch.int64))


def test_labels_of_requires_one_length_per_row():
    ids = torch.tensor([[1, 2], [3, 4]])
    for lengths in (torch.tensor([[2], [1]]), torch.tensor([2]), torch.tensor(2)):
        with pytest.raises(ValueError, match="expected 2 lengths, got shape"):
            lm.labels_of(ids, lengths)


def test_training_bytes_counts_tied_weights_once_on_meta():
    with torch.device("meta"):
        built = lm.training_bytes(lm.GPT(11))
    assert built == lm.training_bytes(lm.GPT(11))
    assert built["weights"] < lm.training_bytes(lm.GPT(11).to("meta"))["weights"]


def test_offsets_rejects_a_negative_distance():
    with pytest.raises(ValueError, match="must not be negative, got -1"):
        lm.offsets(lm.GPT(11), torch.tensor([[1, 2]]), largest=-1)
