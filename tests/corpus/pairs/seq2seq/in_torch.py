import torch
import torch.nn.functional as F
from torch import nn


class Additive(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.query = nn.Linear(width, width, bias=False)
        self.keys = nn.Linear(width, width)
        self.score = nn.Linear(width, 1, bias=False)

    def forward(self, state, memory):
        energy = torch.tanh(self.query(state).unsqueeze(1) + self.keys(memory))
        weights = torch.softmax(self.score(energy).squeeze(-1), dim=1)
        return torch.bmm(weights.unsqueeze(1), memory).squeeze(1)


class Seq2Seq(nn.Module):
    def __init__(self, width=10):
        super().__init__()
        self.source = nn.Embedding(20, 8)
        self.target = nn.Embedding(16, 8)
        self.encoder = nn.GRU(8, width, batch_first=True)
        self.attend = Additive(width)
        self.decoder = nn.GRUCell(8 + width, width)
        self.words = nn.Linear(2 * width, 16)

    def forward(self, source, given):
        memory, last = self.encoder(self.source(source))
        state, logits = last[0], []
        for word in self.target(given).unbind(1):
            context = self.attend(state, memory)
            state = self.decoder(torch.cat([word, context], dim=1), state)
            logits.append(self.words(torch.cat([state, context], dim=1)))
        return torch.stack(logits, dim=1)


def build():
    return Seq2Seq()


def loss(net, batch):
    logits = net(batch["source"], batch["given"])
    return F.cross_entropy(logits.reshape(-1, 16), batch["wanted"].reshape(-1)), {"logits": logits}
