import torch
import torch.nn.functional as F
from torch import nn


class RMSNorm(nn.Module):
    def __init__(self, width, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x):
        dtype = x.dtype
        x = x.to(torch.float32)
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)
        return self.weight * x.to(dtype)


def rotate_half(x):
    one, two = x.chunk(2, dim=-1)
    return torch.cat((-two, one), dim=-1)


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.q = nn.Linear(width, width, bias=False)
        self.k = nn.Linear(width, width, bias=False)
        self.v = nn.Linear(width, width, bias=False)
        self.o = nn.Linear(width, width, bias=False)

    def forward(self, x, cos, sin):
        n, length, width = x.shape
        q, k, v = (f(x).view(n, length, self.heads, -1).transpose(1, 2) for f in (self.q, self.k, self.v))
        q = q * cos + rotate_half(q) * sin
        k = k * cos + rotate_half(k) * sin
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o(y.transpose(1, 2).reshape(n, length, width))


class MLP(nn.Module):
    def __init__(self, width, wide):
        super().__init__()
        self.gate_up = nn.Linear(width, 2 * wide, bias=False)
        self.down = nn.Linear(wide, width, bias=False)

    def forward(self, x):
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        return self.down(F.silu(gate) * up)


class Layer(nn.Module):
    def __init__(self, width, heads, wide):
        super().__init__()
        self.input_norm = RMSNorm(width)
        self.attn = Attention(width, heads)
        self.post_norm = RMSNorm(width)
        self.mlp = MLP(width, wide)

    def forward(self, x, cos, sin):
        x = x + self.attn(self.input_norm(x), cos, sin)
        return x + self.mlp(self.post_norm(x))


class Llama(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(30, 16)
        self.layers = nn.ModuleList(Layer(16, 4, 24) for _ in range(2))
        self.norm = RMSNorm(16)
        self.lm_head = nn.Linear(16, 30, bias=False)

    def forward(self, ids, cos, sin):
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x, cos, sin)
        return self.lm_head(self.norm(x))


def build():
    return Llama()


def loss(net, batch):
    logits = net(batch["ids"], batch["cos"], batch["sin"])
    return F.cross_entropy(logits.flatten(0, 1), batch["next"].flatten()), {"logits": logits}
