import copy

import torch
from torch import nn
from torch.optim.swa_utils import SWALR, AveragedModel, update_bn


class EMA:
    def __init__(self, model, decay=0.999):
        self.shadow = copy.deepcopy(model).eval()
        self.decay = decay
        for p in self.shadow.parameters():
            p.requires_grad_(False)

    @torch.no_grad()
    def update(self, model):
        for s, p in zip(self.shadow.parameters(), model.parameters()):
            s.mul_(self.decay).add_(p, alpha=1 - self.decay)
        for s, b in zip(self.shadow.buffers(), model.buffers()):
            s.copy_(b)


def train(model, loader, val_loader, epochs=10):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=epochs)
    swa_model, swa_scheduler = AveragedModel(model), SWALR(optimizer, swa_lr=0.05)
    ema, criterion = EMA(model), nn.CrossEntropyLoss(label_smoothing=0.1)
    history = {"loss": [], "acc": []}
    for epoch in range(epochs):
        model.train()
        total, hits, seen = 0.0, 0, 0
        for x, y in loader:
            out = model(x)
            loss = criterion(out, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            ema.update(model)
            total += loss.item() * len(x)
            hits += (out.argmax(1) == y).sum().item()
            seen += len(x)
        history["loss"].append(total / seen)
        history["acc"].append(hits / seen)
        if epoch > 5:
            swa_model.update_parameters(model)
            swa_scheduler.step()
        else:
            scheduler.step()
    update_bn(loader, swa_model)
    return history
