from mindspore import nn, ops


class Translator(nn.Cell):
    def __init__(self):
        super().__init__()
        self.src_embed = nn.Embedding(18, 12)
        self.tgt_embed = nn.Embedding(20, 12)
        self.enc = nn.TransformerEncoderLayer(12, 3, 24, dropout=0.0, batch_first=True)
        self.dec = nn.TransformerDecoderLayer(12, 3, 24, dropout=0.0, batch_first=True)
        self.generator = nn.Dense(12, 20, has_bias=False)

    def construct(self, source, given, future):
        memory = self.enc(self.src_embed(source))
        hidden = self.dec(self.tgt_embed(given), memory, tgt_mask=future)
        return self.generator(hidden)


def build():
    return Translator()


def loss(net, batch):
    logits = net(batch["source"], batch["given"], batch["future"])
    return ops.cross_entropy(logits.view(-1, 20), batch["wanted"].reshape(-1)), {"logits": logits}
