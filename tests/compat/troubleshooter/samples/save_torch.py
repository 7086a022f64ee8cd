from pathlib import Path

import torch
import troubleshooter as ts

x1 = torch.tensor([-0.5962, 0.3123], dtype=torch.float32)
x2 = torch.tensor([[0.4985], [0.4323]], dtype=torch.float32)
path = Path("save_pt")
file = str(path / "torch_tensor")

ts.save(file, x1)
ts.save(file, x2)
ts.save(file, {"x1": x1, "x2": x2})
ts.save(file, {"x1": x1, "x2": x2}, suffix="torch")
