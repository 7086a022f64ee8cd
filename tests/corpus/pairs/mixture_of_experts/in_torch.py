import torch
import torch.nn.functional as F
from torch import nn


class Mixture(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(8, 3)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(8, 12), nn.GELU(), nn.Linear(12, 8)) for _ in range(3))
        self.out = nn.Linear(8, 4)

    def forward(self, x):
        share = F.softmax(self.gate(x), dim=-1)
        best, which = share.topk(2, dim=-1)
        share = torch.zeros_like(share).scatter(-1, which, best / best.sum(-1, keepdim=True))
        mixed = torch.stack([expert(x) for expert in self.experts], dim=1)
        mixed = (share.unsqueeze(-1) * mixed).sum(1)
        return self.out(x + mixed)


def build():
    return Mixture()


def loss(net, batch):
    logits = net(batch["x"])
    return F.cross_entropy(logits, batch["y"]), {"logits": logits}
