"""The original: Llama as transformers has it, small, one training step recorded.

python original.py TRACES
"""

import sys
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM

import twintrace as tt

traces = Path(sys.argv[1])
torch.manual_seed(0)
config = LlamaConfig(
    vocab_size=64,
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    rms_norm_eps=1e-5,
    rope_theta=500000.0,
)
net = LlamaForCausalLM(config)
tokens = torch.randint(0, 64, (2, 12))
traces.mkdir(parents=True, exist_ok=True)
torch.save(net.state_dict(), traces / "net.pth")
torch.save(tokens, traces / "tokens.pt")

with tt.record(traces / "original", net, keep="tensor", overwrite=True):
    loss = net(input_ids=tokens, labels=tokens, use_cache=False).loss
    loss.backward()
print(f"original    loss {loss.item():.6f}")
