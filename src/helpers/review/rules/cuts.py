"""Layers that no gradient reaches."""

import ast

from helpers.review.kinds import no_graph
from helpers.review.registry import rule
from helpers.review.rules.modules import module_classes
from helpers.review.syntax import name_of

_TRAINED = ("nn.Linear", "nn.Conv1d", "nn.Conv2d", "nn.Conv3d", "nn.LSTM", "nn.GRU", "nn.Embedding")


@rule("detach-new-layer", "wrong", "no_grad|.detach()|.data|inference_mode")
def layer_never_trained(code):
    """`h = self.encoder(x).detach()` of a new layer: no gradient reaches its weights."""
    if "requires_grad" in code.source or "load_state_dict" in code.source:
        return
    for owner in module_classes(code):
        forward = code.functions.get((owner.name, "forward"))
        if forward is None or "optim" not in code.source and "backward(" not in code.source:
            continue
        for name, values in owner.attributes.items():
            if len(values) != 1 or code.called(values[0].value) not in _TRAINED:
                continue
            uses = [
                attribute
                for attribute in code.nodes_of(ast.Attribute)
                if name_of(attribute) == name
                and attribute.owner is owner
                and isinstance(attribute.ctx, ast.Load)
            ]
            if uses and all(_is_cut(code, use, forward) for use in uses):
                yield uses[0].parent


def _is_cut(code, use, forward):
    """Return whether a use is `layer(x).detach()`, or a call of the layer under `no_grad`."""
    call = use.parent
    if (
        not isinstance(call, ast.Call)
        or call.func is not use
        or code.function_of(use) is not forward
    ):
        return False
    if forward.decorator_list:
        return False
    parent = call.parent
    cut = isinstance(parent, ast.Attribute) and parent.attr in ("detach", "data")
    return cut or no_graph(code, call)
