import math

import torch
import torch.nn.functional as F
from torch import nn


class Embeddings(nn.Module):
    def __init__(self, words, length, width):
        super().__init__()
        self.word = nn.Embedding(words, width)
        self.position = nn.Embedding(length, width)
        self.segment = nn.Embedding(2, width)
        self.norm = nn.LayerNorm(width, eps=1e-12)

    def forward(self, ids, segments):
        positions = torch.arange(ids.size(1)).unsqueeze(0)
        return self.norm(self.word(ids) + self.position(positions) + self.segment(segments))


class SelfAttention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.output = nn.Linear(width, width)

    def forward(self, x, mask):
        n, length, width = x.shape
        q = self.query(x).view(n, length, self.heads, -1).permute(0, 2, 1, 3)
        k = self.key(x).view(n, length, self.heads, -1).permute(0, 2, 1, 3)
        v = self.value(x).view(n, length, self.heads, -1).permute(0, 2, 1, 3)
        scores = torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(q.size(-1)) + mask
        context = torch.matmul(scores.softmax(-1), v)
        return self.output(context.permute(0, 2, 1, 3).reshape(n, length, width))


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.attention = SelfAttention(width, heads)
        self.attention_norm = nn.LayerNorm(width, eps=1e-12)
        self.intermediate = nn.Linear(width, 2 * width)
        self.output = nn.Linear(2 * width, width)
        self.norm = nn.LayerNorm(width, eps=1e-12)

    def forward(self, x, mask):
        x = self.attention_norm(x + self.attention(x, mask))
        return self.norm(x + self.output(F.gelu(self.intermediate(x))))


class Bert(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        self.embeddings = Embeddings(25, 10, width)
        self.layer = nn.ModuleList(Layer(width, 3) for _ in range(2))
        self.transform = nn.Linear(width, width)
        self.transform_norm = nn.LayerNorm(width, eps=1e-12)
        self.bias = nn.Parameter(torch.zeros(25))

    def forward(self, ids, segments, keep, where):
        mask = (1.0 - keep[:, None, None, :]) * -1e9
        x = self.embeddings(ids, segments)
        for layer in self.layer:
            x = layer(x, mask)
        x = torch.gather(x, 1, where.unsqueeze(-1).expand(-1, -1, x.size(-1)))
        x = self.transform_norm(F.gelu(self.transform(x)))
        return F.linear(x, self.embeddings.word.weight, self.bias)


def build():
    return Bert()


def loss(net, batch):
    logits = net(batch["ids"], batch["segments"], batch["keep"], batch["where"])
    return F.cross_entropy(logits.view(-1, 25), batch["wanted"].view(-1)), {"logits": logits}
