"""Mixed precision, and the order of clipping."""

import ast
import re

from helpers.review.flow import events
from helpers.review.kinds import steps
from helpers.review.registry import rule
from helpers.review.syntax import (
    FUNCTIONS,
    LOOPS,
    ancestors,
    argument,
    branches,
    const,
    is_open,
    last_name,
    method,
    receiver,
)
from helpers.review.tracing import loss_calls


@rule("mixed-clip", "wrong")
def clip_scaled(code):
    """`clip_grad_norm_` without `scaler.unscale_`: it clips scaled gradients."""
    for scope in code.scopes:
        if isinstance(scope, ast.Lambda):
            continue
        order = events(code, scope, 1)
        kinds = {event.kind for event in order}
        if "clip" in kinds and "scaled" in kinds and "unscale" not in kinds:
            if code.methods(scope, "scale", follow=1):
                for event in order:
                    if event.kind == "clip" and (
                        not any(ancestors(event.call, ast.If)) or _beside_scale(code, event.call)
                    ):
                        yield event.call


def _beside_scale(code, clip):
    """Return whether each condition of `scaler.scale(loss).backward()` guards the clipping too."""
    arms = [*branches(clip)]
    guards = [node.test for node, _ in arms if isinstance(node, ast.If)]
    return any(
        method(call) == "scale" and {*branches(call)} <= {*arms}
        for call in code.calls_under(code.function_of(clip))
        if [*branches(call)] or not any(_asks_precision(guard) for guard in guards)
    )


def _asks_precision(test):
    return re.search(r"(?i)amp|fp16|half|scaler|mixed|precision", ast.unparse(test))


@rule("mixed-bce-error", "raises", "autocast")
def probabilities_in_half(code):
    """`BCELoss` under `autocast` on a GPU, which requires `BCEWithLogitsLoss`."""
    for call, _ in loss_calls(code, "binary_cross_entropy", "BCELoss"):
        for block in ancestors(call, ast.With):
            contexts = [item.context_expr for item in block.items]
            written = " ".join(ast.unparse(context) for context in contexts)
            if re.search(r"autocast\(.*enabled=False|cpu|device", written):
                break
            if "autocast" in written:
                yield call
                break


@rule("training-clip-early", "wrong")
def clip_misplaced(code):
    """`clip_grad_norm_` before `backward()` or after `step()`."""
    names = {"clip": "clip", "backward": "backward", "step": "step", "scaled": "step"}
    for node in code.nodes:
        if not isinstance(getattr(node, "body", None), list):
            continue
        steps = [
            (names[event.kind], event.call, statement)
            for statement in node.body
            if not isinstance(statement, (*LOOPS, *FUNCTIONS, ast.ClassDef))
            for event in events(code, statement, 0)
            if event.kind in names
        ]
        kinds = [kind for kind, _, _ in steps]
        for n, (kind, call, statement) in enumerate(steps):
            if kind != "clip" or not {"backward", "step"} <= {*kinds}:
                continue
            before, after = kinds[:n], kinds[n + 1 :]
            late = before[-1:] == ["step"] and "step" not in after
            early = "backward" in after and "backward" not in before
            if isinstance(statement, ast.If):
                only_clip = {step_kind for step_kind, _, other in steps if other is statement} == {
                    "clip"
                }
            else:
                only_clip = isinstance(statement, ast.Expr | ast.Assign)
            if only_clip and (late or early):
                yield call


@rule("mixed-cache", "wrong")
def autocast_around(code):
    """The loop with `optimizer.step()` is inside one `torch.autocast`."""
    for node in code.nodes_of(ast.With):
        if any(code.called(item.context_expr) == "amp.autocast" for item in node.items):
            if any(isinstance(child, LOOPS) and steps(code, child) for child in code.walk(node)):
                yield node


@rule("mixed-no-update", "wrong")
def no_update(code):
    """`scaler.step(optimizer)` without `scaler.update()`."""
    for loop in code.outer_loops:
        order = events(code, loop, 3)
        kinds = {event.kind for event in order}
        if "scaled" in kinds and "update" not in kinds and "update(" not in code.source:
            yield next(event.call for event in order if event.kind == "scaled")


def _is_scaled(code, call):
    """Return True for `scaler.scale(loss).backward()`, even with a name for the scaled loss."""
    value = code.resolved(receiver(call)) if receiver(call) is not None else None
    return "scale(" in ast.unparse(call) or method(value) == "scale"


@rule("mixed-plain-step", "wrong")
def plain_step(code):
    """`scaler.scale(loss).backward()` followed by `optimizer.step()`: scaled gradients are used."""
    for loop in code.outer_loops:
        order = events(code, loop, 2)
        scaled = [e for e in order if e.kind == "backward" and _is_scaled(code, e.call)]
        plain = [e for e in order if e.kind == "backward" and e not in scaled]
        kinds = {event.kind for event in order}
        if scaled and not plain and "step" in kinds and not kinds & {"scaled", "unscale"}:
            yield next(event.call for event in order if event.kind == "step")
        if plain and not scaled and "scaled" in kinds and not _scaler_is_used(code):
            yield plain[0].call


def _scaler_is_used(code):
    """Return whether a scaler scales a loss, or is off."""
    return re.search(r"\.scale\(|scale_loss|scaler\(\w+|_scaler\(|enabled=", code.source)


@rule("mixed-no-scaler", "wrong", "autocast")
def half_without_scaler(code):
    """`with torch.autocast("cuda", dtype=torch.float16)` and `loss.backward()`: no GradScaler."""
    if re.search(r"(?i)scaler|bfloat16|bf16|accelerat|lightning|fabric|apex", code.source):
        return
    for loop in code.outer_loops:
        order = events(code, loop, 2)
        blocks = [
            block
            for block in code.walk(loop, 2)
            if isinstance(block, ast.With) and _casts_to_half(code, block)
        ]
        if blocks and {"backward", "step"} <= {event.kind for event in order}:
            yield next(event.call for event in order if event.kind == "backward")


def _casts_to_half(code, block):
    """Return whether autocast casts to float16 in a block."""
    for item in block.items:
        call = item.context_expr
        if code.called(call) != "amp.autocast" or is_open(call) or argument(call, "enabled"):
            continue
        dtype = argument(call, "dtype", 1)
        device = const(argument(call, "device_type", 0))
        cuda = "cuda" in ast.unparse(call.func) or device == "cuda" or not call.args
        half = dtype is not None and last_name(dtype) in ("float16", "half")
        if half or dtype is None and cuda:
            return True
    return False
