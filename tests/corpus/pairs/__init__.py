"""One folder for each network: truth.py, in_torch.py, in_mindspore.py. `notation.pair_names()` lists them."""
