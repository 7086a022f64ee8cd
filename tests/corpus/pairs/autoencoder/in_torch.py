import torch.nn.functional as F
from torch import nn


class AutoEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv2d(2, 6, 3, 2, 1), nn.PReLU(6), nn.Conv2d(6, 8, 3, 2, 1), nn.PReLU(8))
        self.decoder = nn.Sequential(
            nn.Upsample(scale_factor=2, mode="nearest"),
            nn.Conv2d(8, 6, 3, padding=1),
            nn.Upsample(scale_factor=2, mode="nearest"),
            nn.Conv2d(6, 2, 3, padding=1),
        )

    def forward(self, x):
        return self.decoder(self.encoder(x))


def build():
    return AutoEncoder()


def loss(net, batch):
    out = net(batch["x"])
    return F.mse_loss(out, batch["x"]), {"out": out}
