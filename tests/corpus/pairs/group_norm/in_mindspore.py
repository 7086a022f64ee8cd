from mindspore import mint, nn, ops


class TimeEmbedding(nn.Cell):
    def __init__(self):
        super().__init__()
        self.fc_in = nn.Dense(6, 10)
        self.fc_out = nn.Dense(10, 10)

    def construct(self, t):
        return self.fc_out(ops.silu(self.fc_in(t)))


class ResBlock(nn.Cell):
    def __init__(self, channels, time):
        super().__init__()
        self.gn1 = nn.GroupNorm(4, channels)
        self.conv1 = nn.Conv2d(channels, channels, 3, has_bias=True)
        self.time_proj = nn.Dense(time, channels)
        self.gn2 = mint.nn.GroupNorm(4, channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, has_bias=True)
        self.silu = mint.nn.SiLU()

    def construct(self, x, temb):
        h = self.conv1(self.silu(self.gn1(x)))
        bias = self.time_proj(self.silu(temb))
        h = h + ops.expand_dims(ops.expand_dims(bias, -1), -1)
        return self.conv2(self.silu(self.gn2(h))) + x


class Denoiser(nn.Cell):
    def __init__(self):
        super().__init__()
        self.temb = TimeEmbedding()
        self.conv_in = nn.Conv2d(3, 8, 3, has_bias=True)
        self.block_a = ResBlock(8, 10)
        self.block_b = ResBlock(8, 10)
        self.gn_out = nn.GroupNorm(4, 8)
        self.act = nn.SiLU()
        self.conv_out = nn.Conv2d(8, 3, 3, has_bias=True)

    def construct(self, x, t):
        temb = self.temb(t)
        x = self.conv_in(x)
        x = self.block_a(x, temb)
        x = self.block_b(x, temb)
        return self.conv_out(self.act(self.gn_out(x)))


def build():
    return Denoiser()


def loss(net, batch):
    guess = net(batch["noisy"], batch["t"])
    return ops.mse_loss(guess, batch["noise"]), {"guess": guess}
