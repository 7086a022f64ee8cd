import torch
import torch.nn.functional as F
from torch import nn


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(14, 12), nn.Softplus(), nn.Linear(12, 8))
        self.decode = nn.Sequential(nn.Linear(4, 12), nn.Tanh(), nn.Linear(12, 14))

    def forward(self, x, noise):
        mean, logvar = self.encode(x).chunk(2, dim=1)
        z = mean + noise * (0.5 * logvar).exp()
        return torch.sigmoid(self.decode(z)), mean, logvar


def build():
    return VAE()


def loss(net, batch):
    again, mean, logvar = net(batch["x"], batch["noise"])
    divergence = -0.5 * (1 + logvar - mean.pow(2) - logvar.exp()).sum()
    total = F.binary_cross_entropy(again, batch["x"], reduction="sum") + divergence
    return total, {"again": again, "mean": mean, "logvar": logvar}
