from mindspore import mint, nn, ops


class Loop(nn.Cell):
    def __init__(self, inside, hidden):
        super().__init__()
        self.hidden = hidden
        self.x_in, self.h_in = nn.Dense(inside, hidden), nn.Dense(hidden, hidden)
        self.x_forget, self.h_forget = nn.Dense(inside, hidden), nn.Dense(hidden, hidden)
        self.x_cell, self.h_cell = nn.Dense(inside, hidden), nn.Dense(hidden, hidden)
        self.x_out, self.h_out = nn.Dense(inside, hidden), nn.Dense(hidden, hidden)

    def construct(self, series):
        n, length, _ = series.shape
        h = c = ops.zeros((n, self.hidden), series.dtype)
        states = []
        for t in range(length):
            x = series[:, t]
            take = mint.sigmoid(self.x_in(x) + self.h_in(h))
            keep = mint.sigmoid(self.x_forget(x) + self.h_forget(h))
            new = mint.tanh(self.x_cell(x) + self.h_cell(h))
            show = mint.sigmoid(self.x_out(x) + self.h_out(h))
            c = keep * c + take * new
            h = show * mint.tanh(c)
            states.append(h)
        return ops.stack(states, 1), h


class Forecast(nn.Cell):
    def __init__(self):
        super().__init__()
        self.cell_loop = Loop(5, 6)
        self.readout = nn.Dense(6, 2)

    def construct(self, series):
        _, last = self.cell_loop(series)
        return self.readout(last)


def build():
    return Forecast()


def loss(net, batch):
    out = net(batch["series"])
    return nn.SmoothL1Loss(reduction="mean")(out, batch["next"]), {"out": out}
