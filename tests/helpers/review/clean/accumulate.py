import torch
from torch import nn
from tqdm import tqdm


def train_one_epoch(model, loader, optimizer, scheduler, scaler, steps=4, max_norm=1.0):
    model.train()
    losses = []
    optimizer.zero_grad(set_to_none=True)
    for i, batch in enumerate(tqdm(loader)):
        batch = {k: v.cuda(non_blocking=True) for k, v in batch.items()}
        with torch.autocast("cuda", dtype=torch.float16):
            loss = model(**batch).loss / steps
        scaler.scale(loss).backward()
        if (i + 1) % steps == 0 or i + 1 == len(loader):
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), max_norm)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad(set_to_none=True)
            scheduler.step()
        losses.append(loss.item() * steps)
    return sum(losses) / len(losses)


@torch.inference_mode()
def evaluate(model, loader):
    model.eval()
    correct = total = 0
    for batch in loader:
        logits = model(**batch).logits
        correct += (logits.argmax(-1) == batch["labels"]).sum().item()
        total += len(logits)
    return correct / total


def main(model, train_loader, val_loader, epochs=3):
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * len(train_loader))
    scaler = torch.amp.GradScaler()
    for epoch in range(epochs):
        print(epoch, train_one_epoch(model, train_loader, optimizer, scheduler, scaler))
        print(evaluate(model, val_loader))
