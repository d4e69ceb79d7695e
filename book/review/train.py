"""Train a classifier of handwritten digits."""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

torch.manual_seed(0)
epochs = 20
images, labels = load_digits(return_X_y=True)
data = TensorDataset(torch.tensor(images).float() / 16, torch.tensor(labels))
train_set, test_set = random_split(data, [1500, 297])
train_loader = DataLoader(train_set, batch_size=64, shuffle=False)
test_loader = DataLoader(test_set, batch_size=64, shuffle=True)

model = nn.Sequential(
    nn.Linear(64, 64),
    nn.ReLU(),
    nn.Dropout(0.5),
    nn.Linear(64, 10),
    nn.Softmax(dim=1),
)
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=epochs)

losses, best = [], 0.0
for _ in range(epochs):
    for x, y in train_loader:
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        scheduler.step()
        losses.append(loss)

    correct = 0
    with torch.no_grad():
        for x, y in test_loader:
            correct += (model(x).argmax(1) == y).sum().item()
    accuracy = correct / len(test_set)
    if accuracy > best:
        best, weights = accuracy, model.state_dict()

model.load_state_dict(weights)
print(f"test accuracy {best:.0%}")
