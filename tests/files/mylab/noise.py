"Mechanisms of one's own, one of them with a name that dpsbi has too."

import math
from dataclasses import dataclass

import numpy as np

from dpsbi import Mechanism


@dataclass(frozen=True)
class Laplace(Mechanism):
    "Not dpsbi's: its scale is that of the difference of two draws, twice as wide."

    scale: float

    def sample(self, s, rng):
        return s + rng.laplace(scale=2 * self.scale, size=np.shape(s))

    def log_prob(self, s_dp, s):
        distance = np.abs(np.asarray(s_dp, float) - s) / (2 * self.scale)
        return -(distance + math.log(4 * self.scale)).sum(-1)


@dataclass(frozen=True)
class Triangular(Mechanism):
    "Noise from -width to width, likeliest in the middle; its fields are of every kind."

    width: float
    made_by: str = "mylab"
    checked: bool = True
    nothing: None = None
    places: tuple = (1, 2.5, ("north", None))
    beside: Mechanism | None = None

    def sample(self, s, rng):
        return s + self.width * (rng.random(np.shape(s)) - rng.random(np.shape(s)))

    def log_prob(self, s_dp, s):
        return np.log(self._density(np.asarray(s_dp, float) - s)).sum(-1)

    def log_cdf(self, y, s):
        return np.log(self._below(y - s))

    def log_sf(self, y, s):
        return np.log(self._below(s - y))

    def _density(self, z):
        with np.errstate(divide="ignore"):
            return np.maximum(1 - np.abs(z) / self.width, 0) / self.width

    def _below(self, z):
        t = np.clip(z / self.width, -1, 1)
        return np.where(t < 0, (1 + t) ** 2 / 2, 1 - (1 - t) ** 2 / 2)
