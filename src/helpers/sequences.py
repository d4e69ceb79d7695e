"""Helpers of the chapter on sequences: steps that a result depends on, batches of unequal lengths.

Source: https://pytorch.org/docs/stable/generated/torch.nn.LSTM.html
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from helpers import checks


def reads(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Return which steps of which samples in `x` the result of `function(x)` depends on.

    A step counts if the gradient of the result by it is not exactly 0. The gradient is taken in a
    random direction, because a plain sum may be constant, as with softmax. A result that is flat
    there depends on nothing: a dead ReLU, a unit that dropout sets to 0, a gradient that underflows
    after hundreds of steps. Gradients of parameters are not changed.

    Args:
        function: from a tensor such as `x` to the result in question, of any shape, such as
            `lambda x: lstm(x)[0][1, -1]`.
        x: floating point, shape (N, L, ...): N samples, L steps.

    Returns:
        Bool, shape (N, L).

    Raises:
        ValueError: `x` has fewer than two dimensions or is not floating point.
        TypeError: `function` cannot be called, `x` is not a tensor, or `function` does not return
            one; an LSTM returns a tuple.
    """
    checks.function("function", function)
    if checks.tensor("x", x).dim() < 2 or not x.is_floating_point():
        raise ValueError(
            f"x must be floating point of shape (N, L, ...), got {x.dtype} of {tuple(x.shape)}"
        )
    # cuDNN has no backward pass of an RNN in eval()
    with (
        torch.inference_mode(False),
        torch.enable_grad(),
        torch.backends.cudnn.flags(enabled=False),
    ):
        x = x.detach().clone().requires_grad_()
        result = function(x.clone())  # a copy may be changed in place
        if not isinstance(result, Tensor):
            raise TypeError(f"function must return a tensor, got {type(result).__name__}")
        if not result.requires_grad:
            return torch.zeros(x.shape[:2], dtype=torch.bool, device=x.device)
        direction = torch.randn(result.shape, generator=torch.Generator().manual_seed(0))
        (gradient,) = torch.autograd.grad(
            result, x, direction.to(result), materialize_grads=True, allow_unused=True
        )
    return (gradient != 0)[..., None].flatten(2).any(-1)


def _lengths(lengths: Tensor | Sequence[int], samples: int, steps: int) -> Tensor:
    """Return `lengths` as int64 of shape (samples,) on their device, checked from 1 to `steps`."""
    if lengths is None:
        raise TypeError("lengths must be integers, got None")
    try:
        lengths = torch.as_tensor(lengths)
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(f"lengths must be integers, got {type(lengths).__name__}") from None
    whole = not (lengths.is_floating_point() or lengths.is_complex())
    if lengths.numel() and (not whole or lengths.dtype == torch.bool):  # [] is float32
        raise TypeError(f"lengths must be integers, got {lengths.dtype}")
    lengths = lengths.long()  # unsigned integers cannot be compared
    if lengths.shape != (samples,):  # torch would drop samples or broadcast silently
        raise ValueError(f"expected {samples} lengths, got shape {tuple(lengths.shape)}")
    if bool(((lengths < 1) | (lengths > steps)).any()):
        raise ValueError(f"lengths must be from 1 to {steps}, got {lengths.tolist()}")
    return lengths


def run_packed(
    rnn: nn.RNNBase, x: Tensor, lengths: Tensor | Sequence[int], state: Any = None
) -> tuple[Tensor, Any]:
    """Run a recurrent layer over the first `lengths[i]` steps of each sample, without the padding.

    The backward direction starts at each sample's last real step.

    Args:
        rnn: an `nn.RNN`, `nn.LSTM` or `nn.GRU`, with or without `batch_first`.
        x: shape (N, L, F) with `batch_first`, else (L, N, F); steps beyond a length are ignored.
        lengths: integers from 1 to L, shape (N,), in any order, on any device.
        state: as for `rnn`; zeros if None.

    Returns:
        The output, as long as `x` and zero beyond each length, and the state of each sample after
        its last real step, in the order of `x`.

    Raises:
        TypeError: `rnn` is not a recurrent layer, `x` is not a tensor, or `lengths` are not
            integers.
        ValueError: there is not one length for each sample, or one is not from 1 to L; or `x` does
            not have three dimensions.

    Source: https://pytorch.org/docs/stable/generated/torch.nn.utils.rnn.pack_padded_sequence.html
    """
    if isinstance(rnn, type) or not hasattr(rnn, "batch_first"):
        raise TypeError(f"rnn must be an nn.RNN, nn.LSTM or nn.GRU, got {type(rnn).__name__}")
    if checks.tensor("x", x).dim() != 3:
        raise ValueError(f"x must have three dimensions, got {tuple(x.shape)}")
    first = rnn.batch_first
    samples, steps = x.shape[:2] if first else (x.shape[1], x.shape[0])
    lengths = _lengths(lengths, samples, steps).cpu()
    packed = pack_padded_sequence(x, lengths, batch_first=first, enforce_sorted=False)
    out, state = rnn(packed, state)
    padded, _ = pad_packed_sequence(out, batch_first=first, total_length=steps)
    return padded, state


def masked_mean(out: Tensor, lengths: Tensor | Sequence[int]) -> Tensor:
    """Return the mean over the real steps of each sample: (N, H) from (N, L, H), batch first.

    Raises:
        TypeError: `out` is not a tensor, or `lengths` are not integers.
        ValueError: `out` has another number of dimensions, or there is not one length from 1 to L
            for each sample.
    """
    if checks.tensor("out", out).dim() != 3:
        raise ValueError(f"out must be (N, L, H), got {tuple(out.shape)}")
    lengths = _lengths(lengths, *out.shape[:2]).to(out.device)
    real = torch.arange(out.shape[1], device=out.device) < lengths[:, None]
    wide = torch.promote_types(out.dtype, torch.float32)  # a sum in float16 may overflow
    mean = out.masked_fill(~real[..., None], 0).sum(1, dtype=wide) / lengths[:, None]
    return mean.to(out.dtype if out.is_floating_point() else wide)


def set_forget_bias(lstm: nn.LSTM, value: float = 1.0) -> nn.LSTM:
    """Set the initial bias of the forget gates of an LSTM, in each layer and direction, in place.

    PyTorch adds two biases; afterwards their forget parts sum to `value`. The four parts of an
    LSTM's bias belong to the input gate, the forget gate, the candidate and the output gate.

    Raises:
        TypeError: `value` is not a number.
        ValueError: the layer is not an LSTM, or has no bias, or `value` is nan or infinite.

    Source: Jozefowicz et al., https://proceedings.mlr.press/v37/jozefowicz15.html
    """
    if not isinstance(lstm, nn.LSTM) or not lstm.bias:
        raise ValueError(f"expected an nn.LSTM with biases, got {lstm}")
    checks.finite("value", value)
    forget = slice(lstm.hidden_size, 2 * lstm.hidden_size)
    with torch.no_grad():
        for name, bias in lstm.named_parameters():
            if name.startswith("bias_"):
                bias[forget] = value if name.startswith("bias_ih") else 0.0
    return lstm
