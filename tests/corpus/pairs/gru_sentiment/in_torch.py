import torch.nn.functional as F
from torch import nn


class Sentiment(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(40, 10)
        self.gru = nn.GRU(10, 7, bidirectional=True)
        self.out = nn.Sequential(nn.Linear(14, 8), nn.ELU(), nn.Linear(8, 1))

    def forward(self, tokens):
        states, _ = self.gru(self.embed(tokens.t()))
        return self.out(states.max(0).values)


def build():
    return Sentiment()


def loss(net, batch):
    score = net(batch["tokens"])
    return F.binary_cross_entropy_with_logits(score, batch["liked"]), {"score": score}
