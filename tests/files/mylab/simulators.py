"Simulators that count their calls, and end at one of them: for checkpoints."


class Ended(Exception):
    "A run was ended."


class Watched:
    """A simulator, or a latent model, whose calls are counted.

    Its fingerprint is the same whatever it counts, and in every version of Python.
    """

    def __init__(self, inner, name, last=None):
        self.inner, self.fingerprint, self.calls, self.last = inner, name, 0, last

    def _count(self):
        self.calls += 1
        if self.calls == self.last:
            raise Ended

    def __call__(self, *given):
        self._count()
        return self.inner(*given)

    def update(self, *given):
        self._count()
        return self.inner.update(*given)

    def __getattr__(self, name):
        if name in ("inner", "fingerprint", "calls", "last") or name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.inner, name)
