import os

import torch
import torch.nn as nn


class AverageMeter:
    def __init__(self):
        self.reset()

    def reset(self):
        self.val = self.avg = self.sum = self.count = 0

    def update(self, val, n=1):
        self.val = val
        self.sum += val * n
        self.count += n
        self.avg = self.sum / self.count


def main_worker(args, model, train_loader, val_loader, train_sampler):
    criterion = nn.CrossEntropyLoss().cuda()
    optimizer = torch.optim.SGD(model.parameters(), args.lr, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=30, gamma=0.1)
    start, best_acc1 = 0, 0
    if args.resume and os.path.isfile(args.resume):
        checkpoint = torch.load(args.resume, map_location="cpu")
        start, best_acc1 = checkpoint["epoch"], checkpoint["best_acc1"]
        model.load_state_dict(checkpoint["state_dict"])
        optimizer.load_state_dict(checkpoint["optimizer"])
        scheduler.load_state_dict(checkpoint["scheduler"])
    for epoch in range(start, args.epochs):
        train(train_loader, model, criterion, optimizer, epoch)
        acc1 = validate(val_loader, model, criterion)
        scheduler.step()
        is_best = acc1 > best_acc1
        best_acc1 = max(acc1, best_acc1)
        state = {
            "epoch": epoch + 1,
            "state_dict": model.state_dict(),
            "best_acc1": best_acc1,
            "optimizer": optimizer.state_dict(),
            "scheduler": scheduler.state_dict(),
        }
        torch.save(state, "best.pth.tar" if is_best else "checkpoint.pth.tar")


def train(train_loader, model, criterion, optimizer, epoch):
    losses, top1 = AverageMeter(), AverageMeter()
    model.train()
    for images, target in train_loader:
        images, target = images.cuda(non_blocking=True), target.cuda(non_blocking=True)
        output = model(images)
        loss = criterion(output, target)
        losses.update(loss.item(), images.size(0))
        top1.update(accuracy(output, target), images.size(0))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def validate(val_loader, model, criterion):
    top1 = AverageMeter()
    model.eval()
    with torch.no_grad():
        for images, target in val_loader:
            output = model(images.cuda())
            top1.update(accuracy(output, target.cuda()), images.size(0))
    return top1.avg


def accuracy(output, target):
    with torch.no_grad():
        _, pred = output.topk(1, 1, True, True)
        correct = pred.t().eq(target.view(1, -1))
        return correct[:1].reshape(-1).float().sum(0).item() * 100.0 / target.size(0)
