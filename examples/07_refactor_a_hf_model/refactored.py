"""The same model in a hundred lines of its own: joint projections, other names, no configuration object.

python refactored.py TRACES [--repair 0|1|2]
"""

import argparse
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

import twintrace as tt

parser = argparse.ArgumentParser()
parser.add_argument("traces", type=Path)
parser.add_argument("--repair", type=int, default=0)
asked = parser.parse_args()

WIDTH, HEADS, KEYS, HIDDEN, VOCABULARY, LAYERS = 32, 4, 2, 48, 64, 2
SIZE = WIDTH // HEADS
EPS = 1e-5 if asked.repair >= 1 else 1e-6  # 1: the default of transformers, but this model's configuration says 1e-5
BASE = 500000.0 if asked.repair >= 2 else 10000.0  # 2: the base of the rotary embedding, likewise


class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x):
        return F.rms_norm(x, (WIDTH,), self.scale, EPS)


def rotate(x):
    """Turn the two halves of each head's features by their position."""
    frequencies = BASE ** (-torch.arange(0, SIZE, 2).float() / SIZE)
    angles = torch.outer(torch.arange(x.shape[-2]).float(), frequencies)
    angles = torch.cat((angles, angles), dim=-1)
    one, two = x.chunk(2, dim=-1)
    return x * angles.cos() + torch.cat((-two, one), dim=-1) * angles.sin()


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.before = Norm()
        self.qkv = nn.Linear(WIDTH, (HEADS + 2 * KEYS) * SIZE, bias=False)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)
        self.behind = Norm()
        self.gate_up = nn.Linear(WIDTH, 2 * HIDDEN, bias=False)
        self.down = nn.Linear(HIDDEN, WIDTH, bias=False)

    def forward(self, x):
        batch, length, _ = x.shape
        parts = self.qkv(self.before(x)).view(batch, length, -1, SIZE).transpose(1, 2)
        q, k, v = parts.split((HEADS, KEYS, KEYS), dim=1)
        mixed = F.scaled_dot_product_attention(rotate(q), rotate(k), v, is_causal=True, enable_gqa=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, WIDTH))
        gate, up = self.gate_up(self.behind(x)).chunk(2, dim=-1)
        return x + self.down(F.silu(gate) * up)


class Llama(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = Norm()
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def renamed(old):
    """The checkpoint of transformers under the names of this file."""
    new = {"embedding.weight": old["model.embed_tokens.weight"], "norm.scale": old["model.norm.weight"]}
    new["head.weight"] = old["lm_head.weight"]
    for number in range(LAYERS):
        here, there = f"blocks.{number}.", f"model.layers.{number}."
        new[here + "qkv.weight"] = torch.cat([old[f"{there}self_attn.{name}_proj.weight"] for name in "qkv"])
        new[here + "gate_up.weight"] = torch.cat([old[f"{there}mlp.{name}_proj.weight"] for name in ("gate", "up")])
        new[here + "out.weight"] = old[there + "self_attn.o_proj.weight"]
        new[here + "down.weight"] = old[there + "mlp.down_proj.weight"]
        new[here + "before.scale"] = old[there + "input_layernorm.weight"]
        new[here + "behind.scale"] = old[there + "post_attention_layernorm.weight"]
    return new


net = Llama()
net.load_state_dict(renamed(torch.load(asked.traces / "net.pth")))
tokens = torch.load(asked.traces / "tokens.pt")

with tt.record(asked.traces / "refactored", net, keep="tensor", overwrite=True):
    logits = net(tokens)[:, :-1]
    loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    loss.backward()
print(f"refactored  loss {loss.item():.6f}")
