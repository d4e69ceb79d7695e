import torch
import torch.nn as nn
import torch.nn.functional as F
from torchvision import models

teacher = models.resnet50(weights="DEFAULT").eval()
student = models.resnet18(num_classes=1000)
for p in teacher.parameters():
    p.requires_grad_(False)
optimizer = torch.optim.SGD(student.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
T, alpha = 4.0, 0.9


def kd_loss(s, t, y):
    soft = F.kl_div(F.log_softmax(s / T, dim=1), F.softmax(t / T, dim=1), reduction="batchmean")
    return alpha * T * T * soft + (1 - alpha) * F.cross_entropy(s, y)


def train(loader, epochs):
    scheduler = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=0.1, epochs=epochs, steps_per_epoch=len(loader)
    )
    for _ in range(epochs):
        student.train()
        meter = 0.0
        for x, y in loader:
            with torch.no_grad():
                t = teacher(x)
            loss = kd_loss(student(x), t, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            meter += loss.item() * x.size(0)
        print(meter / len(loader.dataset))
