import torch.nn.functional as F
from torch import nn


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, activation="gelu", batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.pool = nn.Linear(16, 5)

    def forward(self, x):
        return self.pool(self.encoder(x)[:, 0])


def build():
    return Encoder()


def loss(net, batch):
    logits = net(batch["x"])
    return F.cross_entropy(logits, batch["y"]), {"logits": logits}
