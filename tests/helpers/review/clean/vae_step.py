import torch
import torch.nn.functional as F


def train(model, loader, optimizer):
    model.train()
    for x in loader:
        optimizer.zero_grad()
        reconstruction, kl = model(x)
        loss = F.mse_loss(reconstruction, x) + kl
        loss.backward()
        optimizer.step()


@torch.inference_mode()
def evaluate(model, loader):
    model.eval()
    return torch.stack([F.mse_loss(model(x)[0], x) for x in loader]).mean()
