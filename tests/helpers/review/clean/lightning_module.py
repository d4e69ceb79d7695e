import lightning as L
import torch
import torch.nn.functional as F
from torch import nn


class LitAutoEncoder(L.LightningModule):
    def __init__(self, lr=1e-3):
        super().__init__()
        self.save_hyperparameters()
        self.encoder = nn.Sequential(nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 3))
        self.decoder = nn.Sequential(nn.Linear(3, 64), nn.ReLU(), nn.Linear(64, 784))
        self.dropout = nn.Dropout(0.1)

    def forward(self, x):
        return self.decoder(self.dropout(self.encoder(x)))

    def training_step(self, batch, batch_idx):
        x, _ = batch
        x = x.view(x.size(0), -1)
        loss = F.mse_loss(self(x), x)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        x, _ = batch
        x = x.view(x.size(0), -1)
        self.log("val_loss", F.mse_loss(self(x), x))

    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), lr=self.hparams.lr)
        scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
        return {"optimizer": optimizer, "lr_scheduler": scheduler, "monitor": "val_loss"}


trainer = L.Trainer(max_epochs=3, gradient_clip_val=1.0)
trainer.fit(LitAutoEncoder(), train_loader, val_loader)
