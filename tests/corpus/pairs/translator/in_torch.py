import torch.nn.functional as F
from torch import nn


class Translator(nn.Module):
    def __init__(self):
        super().__init__()
        self.source = nn.Embedding(18, 12)
        self.target = nn.Embedding(20, 12)
        self.encoder = nn.TransformerEncoderLayer(12, 3, 24, dropout=0.0, batch_first=True)
        self.decoder = nn.TransformerDecoderLayer(12, 3, 24, dropout=0.0, batch_first=True)
        self.words = nn.Linear(12, 20, bias=False)

    def forward(self, source, given, future):
        memory = self.encoder(self.source(source))
        return self.words(self.decoder(self.target(given), memory, tgt_mask=future))


def build():
    return Translator()


def loss(net, batch):
    logits = net(batch["source"], batch["given"], batch["future"])
    return F.cross_entropy(logits.flatten(0, 1), batch["wanted"].flatten()), {"logits": logits}
