import mindspore as ms
from mindspore import Parameter, nn, ops


class Attention(nn.Cell):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.query = nn.Dense(width, width)
        self.key = nn.Dense(width, width)
        self.value = nn.Dense(width, width)
        self.dense = nn.Dense(width, width)
        self.transpose = ops.Transpose()
        self.reshape = ops.Reshape()
        self.matmul = ops.BatchMatMul()

    def construct(self, x, padding):
        n, length, width = x.shape
        shape = (n, length, self.heads, self.size)
        q = self.transpose(self.reshape(self.query(x), shape), (0, 2, 1, 3))
        k = self.transpose(self.reshape(self.key(x), shape), (0, 2, 3, 1))
        v = self.transpose(self.reshape(self.value(x), shape), (0, 2, 1, 3))
        scores = self.matmul(q, k) * (self.size**-0.5)
        scores = ops.masked_fill(scores, padding, ms.Tensor(-1e9, ms.float32))
        context = self.matmul(ops.softmax(scores), v)
        context = self.transpose(context, (0, 2, 1, 3))
        return self.dense(self.reshape(context, (n, length, width)))


class EncoderLayer(nn.Cell):
    def __init__(self, width, heads):
        super().__init__()
        self.attn = Attention(width, heads)
        self.attn_ln = nn.LayerNorm((width,), epsilon=1e-12)
        self.inter = nn.Dense(width, 2 * width)
        self.out = nn.Dense(2 * width, width)
        self.out_ln = nn.LayerNorm((width,), epsilon=1e-12)

    def construct(self, x, padding):
        x = self.attn_ln(self.attn(x, padding) + x)
        h = ops.gelu(self.inter(x), approximate="none")
        return self.out_ln(self.out(h) + x)


class Bert(nn.Cell):
    def __init__(self, width=12):
        super().__init__()
        self.word_emb = nn.Embedding(25, width)
        self.pos_emb = nn.Embedding(10, width)
        self.seg_emb = nn.Embedding(2, width)
        self.emb_ln = nn.LayerNorm((width,), epsilon=1e-12)
        self.encoder = nn.CellList([EncoderLayer(width, 3) for _ in range(2)])
        self.mlm_dense = nn.Dense(width, width)
        self.mlm_ln = nn.LayerNorm((width,), epsilon=1e-12)
        self.mlm_bias = Parameter(ops.zeros((25,), ms.float32))

    def construct(self, ids, segments, keep, where):
        n, length = ids.shape
        padding = (keep == 0).reshape((n, 1, 1, length))
        positions = ops.broadcast_to(ops.arange(length), (n, length))
        x = self.emb_ln(self.word_emb(ids) + self.seg_emb(segments) + self.pos_emb(positions))
        for layer in self.encoder:
            x = layer(x, padding)
        flat = where + (ops.arange(n) * length).astype(ms.int32).expand_dims(1)
        x = ops.gather(x.reshape((n * length, -1)), flat.reshape(-1), 0)
        x = self.mlm_ln(ops.gelu(self.mlm_dense(x), approximate="none"))
        return ops.matmul(x, self.word_emb.embedding_table.swapaxes(0, 1)) + self.mlm_bias


def build():
    return Bert()


def loss(net, batch):
    logits = net(batch["ids"], batch["segments"], batch["keep"], batch["where"])
    return ops.cross_entropy(logits, batch["wanted"].reshape(-1)), {"logits": logits.reshape((2, 2, 25))}
