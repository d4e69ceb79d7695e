import random

import torch
import torch.nn as nn
import torch.optim as optim


class Encoder(nn.Module):
    def __init__(self, input_dim, emb_dim, hid_dim, n_layers, dropout):
        super().__init__()
        self.embedding = nn.Embedding(input_dim, emb_dim)
        self.rnn = nn.LSTM(emb_dim, hid_dim, n_layers, dropout=dropout)
        self.dropout = nn.Dropout(dropout)

    def forward(self, src):
        embedded = self.dropout(self.embedding(src))
        outputs, (hidden, cell) = self.rnn(embedded)
        return hidden, cell


class Decoder(nn.Module):
    def __init__(self, output_dim, emb_dim, hid_dim, n_layers, dropout):
        super().__init__()
        self.output_dim = output_dim
        self.embedding = nn.Embedding(output_dim, emb_dim)
        self.rnn = nn.LSTM(emb_dim, hid_dim, n_layers, dropout=dropout)
        self.fc_out = nn.Linear(hid_dim, output_dim)

    def forward(self, token, hidden, cell):
        embedded = self.embedding(token.unsqueeze(0))
        output, (hidden, cell) = self.rnn(embedded, (hidden, cell))
        return self.fc_out(output.squeeze(0)), hidden, cell


class Seq2Seq(nn.Module):
    def __init__(self, encoder, decoder):
        super().__init__()
        self.encoder, self.decoder = encoder, decoder

    def forward(self, src, trg, ratio=0.5):
        outputs = torch.zeros(trg.shape[0], trg.shape[1], self.decoder.output_dim)
        hidden, cell = self.encoder(src)
        token = trg[0, :]
        for t in range(1, trg.shape[0]):
            output, hidden, cell = self.decoder(token, hidden, cell)
            outputs[t] = output
            token = trg[t] if random.random() < ratio else output.argmax(1)
        return outputs


model = Seq2Seq(Encoder(1000, 256, 512, 2, 0.5), Decoder(1000, 256, 512, 2, 0.5))
optimizer = optim.Adam(model.parameters())
criterion = nn.CrossEntropyLoss(ignore_index=1)


def train(model, iterator, optimizer, criterion, clip):
    model.train()
    epoch_loss = 0
    for batch in iterator:
        optimizer.zero_grad()
        output = model(batch.src, batch.trg)
        output = output[1:].view(-1, output.shape[-1])
        loss = criterion(output, batch.trg[1:].view(-1))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        epoch_loss += loss.item()
    return epoch_loss / len(iterator)


def evaluate(model, iterator, criterion):
    model.eval()
    epoch_loss = 0
    with torch.no_grad():
        for batch in iterator:
            output = model(batch.src, batch.trg, 0)
            output = output[1:].view(-1, output.shape[-1])
            epoch_loss += criterion(output, batch.trg[1:].view(-1)).item()
    return epoch_loss / len(iterator)


best_valid_loss = float("inf")
for epoch in range(10):
    train_loss = train(model, train_iterator, optimizer, criterion, 1)
    valid_loss = evaluate(model, valid_iterator, criterion)
    if valid_loss < best_valid_loss:
        best_valid_loss = valid_loss
        torch.save(model.state_dict(), "model.pt")
model.load_state_dict(torch.load("model.pt"))
