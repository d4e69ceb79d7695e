import numpy as np
import torch
from sklearn.metrics import accuracy_score, confusion_matrix
from sklearn.model_selection import StratifiedKFold
from torch import nn
from torch.utils.data import DataLoader, Subset


def build():
    return nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 1))


def run(dataset, labels, epochs=20):
    scores = []
    skf = StratifiedKFold(5, shuffle=True, random_state=0)
    for fold, (train_idx, val_idx) in enumerate(skf.split(np.zeros(len(labels)), labels)):
        model = build()
        optimizer = torch.optim.Adam(model.parameters(), 1e-3)
        criterion = nn.BCEWithLogitsLoss()
        train_loader = DataLoader(Subset(dataset, train_idx), 32, shuffle=True)
        val_loader = DataLoader(Subset(dataset, val_idx), 64)
        best = float("inf")
        patience = 0
        for epoch in range(epochs):
            model.train()
            for x, y in train_loader:
                optimizer.zero_grad()
                loss = criterion(model(x).squeeze(1), y)
                loss.backward()
                optimizer.step()
            model.eval()
            losses, truth, guessed = [], [], []
            with torch.no_grad():
                for x, y in val_loader:
                    logits = model(x).squeeze(1)
                    losses.append(criterion(logits, y).item())
                    guessed.append((logits.sigmoid() > 0.5).int())
                    truth.append(y)
            val_loss = np.mean(losses)
            if val_loss < best:
                best, patience = val_loss, 0
                torch.save(model.state_dict(), f"fold{fold}.pt")
            else:
                patience += 1
                if patience == 5:
                    break
        y_true, y_pred = torch.cat(truth), torch.cat(guessed)
        scores.append(accuracy_score(y_true, y_pred))
        print(confusion_matrix(y_true, y_pred))
    return np.mean(scores)
