import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset


class DoubleConv(nn.Sequential):
    def __init__(self, a, b):
        super().__init__(
            nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU(inplace=True),
            nn.Conv2d(b, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU(inplace=True),
        )


class UNet(nn.Module):
    def __init__(self, features=(64, 128, 256)):
        super().__init__()
        self.downs, self.ups = nn.ModuleList(), nn.ModuleList()
        self.pool = nn.MaxPool2d(2, 2)
        channels = 3
        for feature in features:
            self.downs.append(DoubleConv(channels, feature))
            channels = feature
        for feature in reversed(features):
            self.ups.append(nn.ConvTranspose2d(feature * 2, feature, 2, 2))
            self.ups.append(DoubleConv(feature * 2, feature))
        self.bottleneck = DoubleConv(features[-1], features[-1] * 2)
        self.final = nn.Conv2d(features[0], 1, 1)

    def forward(self, x):
        skips = []
        for down in self.downs:
            x = down(x)
            skips.append(x)
            x = self.pool(x)
        x = self.bottleneck(x)
        for n in range(0, len(self.ups), 2):
            x = self.ups[n](x)
            x = self.ups[n + 1](torch.cat((skips[-1 - n // 2], x), dim=1))
        return self.final(x)


def check_accuracy(loader, model, device="cuda"):
    correct = pixels = dice = 0
    model.eval()
    with torch.no_grad():
        for x, y in loader:
            y = y.to(device).unsqueeze(1)
            preds = torch.sigmoid(model(x.to(device)))
            preds = (preds > 0.5).float()
            correct += (preds == y).sum().item()
            pixels += preds.numel()
            dice += (2 * (preds * y).sum()) / ((preds + y).sum() + 1e-8)
    print(correct / pixels, dice / len(loader))
    model.train()


def train_fn(loader, model, optimizer, loss_fn, scaler):
    for data, targets in loader:
        with torch.autocast("cuda"):
            predictions = model(data.cuda())
            loss = loss_fn(predictions, targets.float().unsqueeze(1).cuda())
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


def main(train_set, val_set):
    model = UNet().cuda()
    loss_fn = nn.BCEWithLogitsLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    train_loader = DataLoader(train_set, 16, shuffle=True, drop_last=True)
    val_loader = DataLoader(val_set, 16)
    scaler = torch.amp.GradScaler()
    for epoch in range(3):
        train_fn(train_loader, model, optimizer, loss_fn, scaler)
        check_accuracy(val_loader, model)
