from mindspore import nn, ops


class VAE(nn.Cell):
    def __init__(self):
        super().__init__()
        self.enc = nn.Dense(14, 12)
        self.mu = nn.Dense(12, 4)
        self.logvar = nn.Dense(12, 4)
        self.decoder = nn.SequentialCell(nn.Dense(4, 12), nn.Tanh(), nn.Dense(12, 14))

    def construct(self, x, noise):
        h = ops.softplus(self.enc(x))
        mu, logvar = self.mu(h), self.logvar(h)
        std = ops.exp(logvar / 2)
        z = ops.add(mu, ops.mul(std, noise))
        return ops.sigmoid(self.decoder(z)), mu, logvar


def build():
    return VAE()


def loss(net, batch):
    again, mu, logvar = net(batch["x"], batch["noise"])
    reconstruction = ops.binary_cross_entropy(again, batch["x"], reduction="sum")
    kld = ops.sum(1 + logvar - ops.square(mu) - ops.exp(logvar)) * -0.5
    return reconstruction + kld, {"again": again, "mean": mu, "logvar": logvar}
