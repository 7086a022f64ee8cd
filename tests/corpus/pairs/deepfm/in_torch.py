import torch
import torch.nn.functional as F
from torch import nn


class DeepFM(nn.Module):
    def __init__(self, size=6):
        super().__init__()
        self.register_buffer("offsets", torch.tensor([0, 10, 17]), persistent=False)
        self.fields = nn.Embedding(20, size)
        self.bag = nn.EmbeddingBag(15, size, mode="mean")
        self.linear = nn.Linear(3, 1)
        self.deep = nn.Sequential(nn.Linear(4 * size, 16), nn.ReLU(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 1))

    def forward(self, fields, words, numbers):
        embedded = self.fields(fields + self.offsets)
        embedded = torch.cat([embedded, self.bag(words).unsqueeze(1)], dim=1)
        square_of_sum = embedded.sum(1).square()
        sum_of_square = embedded.square().sum(1)
        pairs = 0.5 * (square_of_sum - sum_of_square).sum(1, keepdim=True)
        return (self.linear(numbers) + pairs + self.deep(embedded.flatten(1))).squeeze(1)


def build():
    return DeepFM()


def loss(net, batch):
    score = net(batch["fields"], batch["words"], batch["numbers"])
    return F.binary_cross_entropy(torch.sigmoid(score), batch["clicked"]), {"score": score}
