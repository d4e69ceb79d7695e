"""Helpers of the chapter on language models: a small GPT, its text, loss and sampling.

Source: Radford et al. 2019, "Language Models are Unsupervised Multitask Learners" (GPT-2), and
Holtzman et al. 2019, "The Curious Case of Neural Text Degeneration" (top-p).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from helpers import checks
from helpers.evaluation import preserve_modes

IGNORED = -100  # the default `ignore_index` of `F.cross_entropy`

LINES = (
    "the lamp is lit before the rain.",
    "a boat comes home.",
    "two gulls sleep on the roof.",
    "he counts the waves.",
    "snow!",
    "every seventh one is larger.",
    "when fog comes, he rings a bell.",
    "nobody answers.",
    "in june his sister brings ink.",
    "they talk until the oil is low.",
    "good night, old light.",
)


# ---------------------------------------------------------------- characters as tokens


class Characters:
    """Vocabulary of single characters, whose last token `end` is the end-of-sequence (EOS) token.

    Args:
        text: its characters get the token IDs 0, 1, … in order of their code points.

    Raises:
        TypeError: `text` is not a str.
    """

    def __init__(self, text: str) -> None:
        self.characters = sorted(set(checks.text("text", text)))
        self.end = len(self.characters)
        self._tokens = {c: i for i, c in enumerate(self.characters)}

    def __len__(self) -> int:
        return len(self.characters) + 1

    def encode(self, text: str, end: bool = False) -> Tensor:
        """Return the token IDs of `text`, followed by `self.end` if `end`: int64, shape (T,).

        Raises:
            TypeError: `text` is not a str.
            ValueError: a character is not in the vocabulary.
        """
        if unknown := sorted(set(checks.text("text", text)) - self._tokens.keys()):
            raise ValueError(f"not in the vocabulary: {unknown}")
        return torch.tensor([self._tokens[c] for c in text] + [self.end] * end, dtype=torch.int64)

    def decode(self, ids: Tensor) -> str:
        """Return the text of `ids`, of shape (T,), up to the first EOS token.

        Raises:
            TypeError: `ids` is not a tensor.
            ValueError: `ids` has another shape, or contains an ID that is not in the vocabulary.
        """
        if checks.filled("ids", ids).dim() != 1:
            raise ValueError(f"ids must have the shape (T,), got {tuple(ids.shape)}")
        tokens = ids.tolist()
        if unknown := sorted(set(tokens) - set(range(len(self)))):
            raise ValueError(f"ids must be from 0 to {self.end}, got {unknown}")
        if self.end in tokens:
            tokens = tokens[: tokens.index(self.end)]
        return "".join(self.characters[i] for i in tokens)


def padded(lines: Sequence[str], characters: Characters) -> tuple[Tensor, Tensor]:
    """Return lines as token IDs with EOS, padded on the right with EOS.

    Returns:
        `ids`, int64 of shape (N, T), and `lengths`, int64 of shape (N,), EOS included.

    Raises:
        TypeError: `lines` is not a list, or `characters` is not `Characters`.
        ValueError: there is no line, or as in `characters.encode`.
    """
    if isinstance(lines, str) or not isinstance(lines, Sequence):
        raise TypeError(f"lines must be a list, got {type(lines).__name__}")
    if lines and not isinstance(characters, Characters):
        raise TypeError(f"expected Characters, got {type(characters).__name__}")
    if not lines:
        raise ValueError("expected at least one line, got none")
    rows = [characters.encode(line, end=True) for line in lines]
    lengths = torch.tensor([len(row) for row in rows])
    end = characters.end
    return nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=end), lengths


# ---------------------------------------------------------------- the model


class Block(nn.Module):
    """Pre-norm transformer block: self-attention and an MLP, each with a residual connection.

    Args:
        width: of the tokens, a multiple of `heads`.
        heads: number of attention heads.
        causal: whether a token attends only to itself and to earlier tokens.
        dropout: probability, after attention and after the MLP.

    Raises:
        TypeError, ValueError: a size is not an int, or below 1, or `width` is no multiple of
            `heads`.
    """

    def __init__(self, width: int, heads: int, causal: bool, dropout: float) -> None:
        super().__init__()
        width, heads = checks.integer("width", width, 1), checks.integer("heads", heads, 1)
        checks.fraction("dropout", dropout)
        if width % heads:
            raise ValueError(f"width must be a multiple of heads, got {width} and {heads}")
        self.heads, self.causal, self.dropout = heads, causal, nn.Dropout(dropout)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Return the output of the block for `x` of shape (N, T, width), in the same shape."""
        split = self.qkv(self.norm1(x)).unflatten(-1, (3, self.heads, -1))
        q, k, v = split.permute(2, 0, 3, 1, 4)  # each (N, heads, T, width / heads)
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        x = x + self.dropout(self.out(seen.transpose(1, 2).flatten(2)))
        return x + self.dropout(self.narrow(F.gelu(self.wide(self.norm2(x)))))


class GPT(nn.Module):
    """Decoder in the style of GPT-2: from token IDs to the logits of the next token.

    Args:
        vocab: number of tokens.
        width: of the embeddings and blocks, a multiple of `heads`.
        context: the longest sequence.
        layers: number of blocks.
        heads: number of attention heads in each block.
        tied: whether the output layer shares the weight of the token embedding.
        causal: whether a token attends only to itself and to earlier tokens.
        dropout: probability, in the blocks.

    Raises:
        TypeError, ValueError: a size is not an int, or below 1, or `width` is no multiple of
            `heads`.
    """

    def __init__(
        self,
        vocab: int,
        width: int = 48,
        context: int = 40,
        layers: int = 2,
        heads: int = 4,
        *,
        tied: bool = True,
        causal: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        for name, size in (("vocab", vocab), ("width", width), ("context", context)):
            checks.integer(name, size, 1)
        checks.integer("layers", layers, 0)
        self.tokens, self.positions = nn.Embedding(vocab, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads, causal, dropout) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocab, bias=False)
        for table in (self.tokens, self.positions, self.head):
            nn.init.normal_(table.weight, std=0.02)
        if tied:
            self.head.weight = self.tokens.weight

    def forward(self, ids: Tensor) -> Tensor:
        """Return the logits of each next token, (N, T, vocab), for `ids` of shape (N, T), int64."""
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


# ---------------------------------------------------------------- loss


def _wide(scores: Tensor) -> Tensor:
    """Return `scores` in float32 if they are in half precision, else unchanged."""
    return scores.to(torch.promote_types(scores.dtype, torch.float32))


def _logits(model: nn.Module, ids: Tensor) -> Tensor:
    """Return the logits of a model that returns them, or an object with an attribute `logits`."""
    output = model(ids)
    logits = output if isinstance(output, Tensor) else getattr(output, "logits", None)
    if not isinstance(logits, Tensor) or logits.dim() != 3:
        got = tuple(logits.shape) if isinstance(logits, Tensor) else type(output).__name__
        raise ValueError(f"the model must return logits (N, T, vocab), got {got}")
    return logits


def labels_of(ids: Tensor, lengths: Tensor) -> Tensor:
    """Return the token that follows each position, or -100 if there is none: shape (N, T), int64.

    The tokens up to `lengths` are real, EOS included; later tokens are padding, whatever they are.

    Args:
        ids: shape (N, T), padded on the right.
        lengths: shape (N,), the number of real tokens in each row.

    Raises:
        TypeError: `ids` or `lengths` is not a tensor.
        ValueError: `ids` is not of shape (N, T) or contains no integers, or `lengths` has another
            shape.
    """
    if checks.tensor("ids", ids).is_floating_point() or ids.dim() != 2:
        raise ValueError(f"ids must be integers (N, T), got {ids.dtype} of {tuple(ids.shape)}")
    if checks.tensor("lengths", lengths).shape != ids.shape[:1]:
        raise ValueError(f"expected {len(ids)} lengths, got shape {tuple(lengths.shape)}")
    labels = torch.full_like(ids, IGNORED, dtype=torch.int64)
    labels[:, :-1] = ids[:, 1:]
    positions = torch.arange(1, ids.shape[1] + 1, device=ids.device)
    return labels.masked_fill(positions >= lengths[:, None], IGNORED)


def next_token_loss(logits: Tensor, labels: Tensor, reduction: str = "mean") -> Tensor:
    """Return the cross-entropy over labels that are not -100, without shifting the labels.

    Args:
        logits: shape (N, T, vocab).
        labels: shape (N, T), int64, the token after each position (see `labels_of`).
        reduction: as in `F.cross_entropy`.

    Raises:
        TypeError: `logits` is not a floating-point tensor, or `labels` not a tensor.
        ValueError: `logits` has another number of dimensions, or `labels` another shape.
    """
    checks.tensor("labels", labels)
    if checks.floating("logits", logits).dim() != 3 or labels.shape != logits.shape[:2]:
        raise ValueError(
            f"expected logits (N, T, vocab) and labels (N, T), got {tuple(logits.shape)} and "
            f"{tuple(labels.shape)}"
        )
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction=reduction)


@torch.no_grad()
def perplexity(model: nn.Module, batches: Iterable[tuple[Tensor, Tensor]]) -> float:
    """Return exp of the mean loss per token over all `batches` of ids and labels, each (N, T).

    Losses are accumulated in float32 or wider. The model runs in evaluation mode; afterwards every
    submodule's mode is restored.

    Returns:
        The perplexity, inf if it is too large for a float, nan if a logit is nan or inf.

    Raises:
        TypeError: `model` is not a module, or `batches` contains no pairs of tensors.
        ValueError: every label is ignored.
    """
    checks.batches("batches", batches)
    total, count = 0.0, 0
    with preserve_modes(model):
        model.eval()
        for batch in batches:
            if not isinstance(batch, tuple | list) or len(batch) != 2:
                raise TypeError(f"expected batches (ids, labels), got {type(batch).__name__}")
            ids, labels = batch
            total += next_token_loss(_wide(_logits(model, ids)), labels, reduction="sum").item()
            count += int((labels != IGNORED).sum())
    if not count:
        raise ValueError("expected at least one label that is not -100, got none")
    try:
        return math.exp(total / count)
    except OverflowError:
        return math.inf


@torch.no_grad()
def offsets(model: nn.Module, ids: Tensor, largest: int = 2) -> dict[int, float]:
    """Return how often the most likely token is the one 0, 1, … `largest` positions later.

    A model trained to predict the next token is right at 1. If it is right at 0, its labels were
    not shifted; at 2, they were shifted twice. `ids` has shape (N, T). The model returns logits of
    shape (N, T, vocab), or an object with them in `logits`, as those of Hugging Face do.

    Raises:
        TypeError: `model` cannot be called, `ids` is not a tensor, or `largest` is not an int.
        ValueError: `ids` has another number of dimensions, T is not above `largest`, or `largest`
            is negative.
    """
    checks.function("model", model)
    largest = checks.integer("largest", largest)
    if largest < 0:
        raise ValueError(f"largest must not be negative, got {largest}")
    if checks.tensor("ids", ids).dim() != 2 or ids.shape[1] <= largest:
        raise ValueError(f"ids must be (N, T), T above {largest}, got {tuple(ids.shape)}")
    best = _logits(model, ids).argmax(-1)[:, : ids.shape[1] - largest]
    ahead = {k: ids[:, k : k + best.shape[1]] for k in range(largest + 1)}
    return {k: (best == token).float().mean().item() for k, token in ahead.items()}


@torch.no_grad()
def leaks(model: nn.Module, ids: Tensor, vocab: int) -> bool:
    """Return whether a logit depends on a later token, by changing one token at a time.

    Differences up to about 1e-5 count as rounding, and nan as a leak.
    The model runs in its current mode, so call `eval()` first if it has dropout. A model whose
    blocks or output layer are initialized with zeros does not leak before its first step.

    Args:
        model: from (N, T) to (N, T, vocab), or to an object with these logits in `logits`.
        ids: shape (N, T), T at least 2.
        vocab: number of tokens, at least 2.

    Raises:
        TypeError: `model` cannot be called, `ids` is not a tensor, or `vocab` is not an int.
        ValueError: `ids` has another number of dimensions, or T or `vocab` is below 2, so that no
            later token can be changed.
    """
    checks.function("model", model)
    vocab = checks.integer("vocab", vocab)
    if checks.tensor("ids", ids).dim() != 2 or ids.shape[1] < 2 or vocab < 2:
        raise ValueError(
            f"ids must be (N, T), T and vocab at least 2, got {tuple(ids.shape)} and {vocab}"
        )
    before = _logits(model, ids)
    for position in range(1, ids.shape[1]):
        other = ids.clone()
        other[:, position] = (other[:, position] + 1) % vocab
        changed = _logits(model, other)[:, :position]
        if not torch.allclose(changed, before[:, :position], atol=1e-5):
            return True
    return False


# ---------------------------------------------------------------- sampling


def filter_logits(
    logits: Tensor, temperature: float = 1.0, top_k: int | None = None, top_p: float = 1.0
) -> Tensor:
    """Return the logits divided by `temperature`, with -inf for tokens that must not be sampled.

    At least one token is kept. Of equal logits, the one with the smaller token ID counts as larger.

    Args:
        logits: shape (..., vocab).
        temperature: above 0; below 1, larger logits are sampled more often.
        top_k: keep this many of the largest; all if None or more than there are.
        top_p: keep the fewest of the largest whose probabilities, after `top_k`, sum to this.

    Raises:
        TypeError: `logits` is not a tensor, or another argument is not a number.
        ValueError: an argument is out of its range.
    """
    if not checks.tensor("logits", logits).dim():
        raise ValueError("logits must have the shape (..., vocab), got ()")
    checks.number("temperature", temperature), checks.number("top_p", top_p)
    top_k = None if top_k is None else checks.integer("top_k", top_k)
    if not temperature > 0:
        raise ValueError(f"temperature must be above 0, got {temperature}: for 0 take argmax")
    if top_k is not None and top_k < 1:
        raise ValueError(f"top_k must be at least 1, got {top_k}")
    if not 0 < top_p <= 1:
        raise ValueError(f"top_p must be above 0 and at most 1, got {top_p}")
    ordered, order = (logits / temperature).sort(dim=-1, descending=True, stable=True)
    if top_k is not None:
        ordered[..., top_k:] = -torch.inf
    if top_p < 1:
        chances = _wide(ordered).softmax(-1)
        before = chances.cumsum(-1) - chances  # of all larger ones
        ordered = ordered.masked_fill(before >= top_p, -torch.inf)
    return torch.empty_like(ordered).scatter_(-1, order, ordered)


@torch.no_grad()
def generate(
    model: nn.Module,
    ids: Tensor,
    new: int,
    *,
    context: int,
    end: int | None = None,
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float = 1.0,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Append up to `new` sampled tokens to one prompt, and stop after the EOS token `end`.

    The model runs in evaluation mode; afterwards every submodule's mode is restored.

    Args:
        model: from (1, T) to (1, T, vocab), for T up to `context`.
        ids: shape (T,), the prompt, at least one token.
        new: maximum number of new tokens.
        context: the model gets at most this many of the last tokens, at least 1.
        end: the EOS token; None: do not stop early.
        temperature: 0 takes the largest logit, others sample, see `filter_logits`.
        top_k: see `filter_logits`.
        top_p: see `filter_logits`.
        generator: for sampling; on the device of the logits.

    Returns:
        Prompt and continuation, shape (T + at most `new`,).

    Raises:
        TypeError: `model` is not a module, `ids` is not a tensor, or a number is of another kind.
        ValueError: `new` is negative, `ids` is not one prompt of at least one token, `context` is
            below 1, or as in `filter_logits`.
    """
    if checks.tensor("ids", ids).dim() != 1 or not len(ids):
        raise ValueError(f"expected one prompt of shape (T,), T at least 1, got {(*ids.shape,)}")
    context, new = checks.integer("context", context, 1), checks.integer("new", new, 0)
    end = None if end is None else checks.integer("end", end)
    checks.number("temperature", temperature)
    with preserve_modes(model):
        model.eval()
        for _ in range(new):
            logits = _logits(model, ids[None, -context:])[0, -1]
            if temperature == 0:
                token = logits.argmax(-1, keepdim=True)
            else:
                kept = filter_logits(_wide(logits), temperature, top_k, top_p)
                token = torch.multinomial(kept.softmax(-1), 1, generator=generator)
            ids = torch.cat([ids, token])
            if end is not None and token.item() == end:
                break
    return ids


# ---------------------------------------------------------------- a larger vocabulary


@torch.no_grad()
def grow(table: Tensor, rows: int) -> Tensor:
    """Return an embedding matrix with `rows` rows: the old ones, then their mean in each new one.

    Args:
        table: shape (old, width), as in a checkpoint, or (old,), a bias of the output layer.
        rows: at least `old`.

    Raises:
        TypeError: `table` is not a floating-point tensor, or `rows` is not an int.
        ValueError: `table` has no rows, or more than `rows`.
    """
    if not isinstance(table, Tensor) or not table.is_floating_point():
        kind = table.dtype if isinstance(table, Tensor) else type(table).__name__
        raise TypeError(f"expected a floating-point tensor, got {kind}")
    if not isinstance(rows, int):
        raise TypeError(f"rows must be an int, got {rows!r}")
    if not table.dim() or not len(table):
        raise ValueError(f"expected a table with rows, got shape {tuple(table.shape)}")
    if rows < len(table):
        raise ValueError(f"expected at least the {len(table)} rows of the table, got {rows}")
    mean = table.mean(0, keepdim=True)
    return torch.cat([table, mean.expand(rows - len(table), *table.shape[1:])])


# ---------------------------------------------------------------- before training


def training_bytes(model: nn.Module, optimizer_states: int = 2) -> dict[str, int]:
    """Return the bytes of weights, gradients and optimizer states of a model, without activations.

    A tied weight counts once; a frozen one has no gradient and no states. The model may be built
    on the meta device, but not moved there: `to("meta")` unties weights, which would count twice.

    Args:
        model: any module.
        optimizer_states: values per weight in the weight's dtype: 2 for Adam, 1 for SGD with
            momentum, 0 for SGD.

    Raises:
        TypeError: `model` is not a module, or `optimizer_states` is not an int.
        ValueError: `optimizer_states` is negative.
    """
    checks.module("model", model)
    optimizer_states = checks.integer("optimizer_states", optimizer_states, 0)
    weights = sum(p.nbytes for p in model.parameters())
    learning = sum(p.nbytes for p in model.parameters() if p.requires_grad)
    return {"weights": weights, "gradients": learning, "optimizer": optimizer_states * learning}
