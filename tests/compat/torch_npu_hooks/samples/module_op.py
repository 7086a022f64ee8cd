"""The document's first sample. Two slips of the document are corrected: `ModuleOp()` for a class called ModuleOP, and a dump
called npu_mpdule_op.pkl that is compared as npu_module_op.pkl. Nothing else is changed but the comments."""

import torch
import torch.nn as nn

from torch_npu.hooks import set_dump_path, seed_all, register_acc_cmp_hook  # isort: skip
from torch_npu.hooks.tools import compare


class ModuleOP(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear_1 = nn.Linear(in_features=2, out_features=2)
        self.linear_2 = nn.Linear(in_features=2, out_features=1)
        self.relu = nn.ReLU()

    def forward(self, x):
        x1 = self.linear_1(x)
        x2 = self.linear_2(x1)
        r1 = self.relu(x2)
        return r1


module = ModuleOP()
register_acc_cmp_hook(module)
seed_all()
x = torch.randn(2, 2)

# on the cpu
set_dump_path("./cpu_module_op.pkl")
out = module(x)
loss = out.sum()
loss.backward()
set_dump_path("./npu_module_op.pkl")

# on the npu
module.npu()
x = x.npu()
out = module(x)
loss = out.sum()
loss.backward()

compare("./npu_module_op.pkl", "./cpu_module_op.pkl", "./module_result.csv")
