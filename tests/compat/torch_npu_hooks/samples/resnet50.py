"""The document's second sample, unchanged but for the comments."""

import copy

import torch
import torch.nn as nn

from torchvision import models, datasets, transforms  # noqa: F401  # isort: skip

from torch_npu.hooks import set_dump_path, seed_all, register_acc_cmp_hook  # isort: skip
from torch_npu.hooks.tools import compare

model_cpu = models.resnet50()
model_cpu.eval()
model_npu = copy.deepcopy(model_cpu)
model_npu.eval()

register_acc_cmp_hook(model_cpu)
register_acc_cmp_hook(model_npu)
seed_all()

inputs = torch.randn(1, 3, 244, 244)
labels = torch.randn(1).long()
criterion = nn.CrossEntropyLoss()

# cpu
set_dump_path("./cpu_resnet50_op.pkl")
output = model_cpu(inputs)
loss = criterion(output, labels)
loss.backward()

# npu
set_dump_path("./npu_resnet50_op.pkl")
model_npu.npu()
inputs = inputs.npu()
labels = labels.npu()
output = model_npu(inputs)
loss = criterion(output, labels)
loss.backward()

compare("./npu_resnet50_op.pkl", "./cpu_resnet50_op.pkl", "./resnet50_result.csv")
