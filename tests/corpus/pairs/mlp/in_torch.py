import torch.nn.functional as F
from torch import nn


class Perceptron(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Flatten(), nn.Linear(48, 64), nn.ReLU(), nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 10)
        )

    def forward(self, images):
        return self.layers(images)


def build():
    return Perceptron()


def loss(net, batch):
    logits = net(batch["images"])
    return F.cross_entropy(logits, batch["labels"]), {"logits": logits}
