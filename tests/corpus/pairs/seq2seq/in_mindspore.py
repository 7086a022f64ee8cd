from mindspore import mint, nn, ops


class BahdanauAttention(nn.Cell):
    def __init__(self, width):
        super().__init__()
        self.wq = nn.Dense(width, width, has_bias=False)
        self.wk = nn.Dense(width, width)
        self.v = nn.Dense(width, 1, has_bias=False)
        self.softmax = nn.Softmax(axis=1)

    def construct(self, query, memory):
        query = ops.expand_dims(query, 1)
        scores = self.v(ops.tanh(self.wq(query) + self.wk(memory)))
        weights = ops.softmax(scores, 1)
        return (weights * memory).sum(1)


class Translator(nn.Cell):
    def __init__(self, width=10):
        super().__init__()
        self.embed_src = nn.Embedding(20, 8)
        self.embed_tgt = nn.Embedding(16, 8)
        self.enc = nn.GRU(8, width, batch_first=True)
        self.attention = BahdanauAttention(width)
        self.dec_cell = nn.GRUCell(8 + width, width)
        self.project = nn.Dense(2 * width, 16)

    def construct(self, source, given):
        memory, h = self.enc(self.embed_src(source))
        h = h.squeeze(0)
        embedded = self.embed_tgt(given)
        logits = []
        for t in range(given.shape[1]):
            context = self.attention(h, memory)
            h = self.dec_cell(mint.cat((embedded[:, t], context), 1), h)
            logits.append(self.project(mint.cat((h, context), 1)))
        return ops.stack(logits, 1)


def build():
    return Translator()


def loss(net, batch):
    logits = net(batch["source"], batch["given"])
    return ops.cross_entropy(logits.view(-1, 16), batch["wanted"].view(-1)), {"logits": logits}
