"""Reference implementations of row-wise optimizers, in float64."""

import numpy as np


class LazyReference:
    """An optimizer that updates only the touched rows."""

    def __init__(self, kind, values, rate, **options):
        self.kind, self.values, self.rate, self.options = kind, values.astype(np.float64), rate, options
        self.slots = {name: np.zeros(values.shape) for name in ("m", "v")}
        self.slots["a"] = np.full(values.shape, 0.1)
        self.step_number = 0

    def step(self, gradient, touched):
        self.step_number += 1
        w, g = self.values[touched], gradient[touched]
        w = w - w * self.rate * self.options.get("weight_decay", 0.0)
        self.values[touched] = w + getattr(self, self.kind)(g, touched)

    def sgd(self, g, at):
        return -self.rate * g

    def momentum(self, g, at):
        self.slots["m"][at] = v = 0.9 * self.slots["m"][at] - self.rate * g
        return 0.9 * v - self.rate * g if self.options.get("nesterov") else v

    def adagrad(self, g, at):
        self.slots["a"][at] += g**2
        return -self.rate * g / np.sqrt(self.slots["a"][at] + 1e-7)

    def adam(self, g, at):
        t = self.step_number
        self.slots["m"][at] = m = 0.9 * self.slots["m"][at] + 0.1 * g
        self.slots["v"][at] = v = 0.999 * self.slots["v"][at] + 0.001 * g**2
        return -self.rate * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-7 / np.sqrt(1 - 0.999**t))
