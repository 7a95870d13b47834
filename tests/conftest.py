import forked  # noqa: F401  before NumPy: one thread for each process
from hypothesis import settings

settings.register_profile(
    "dpsbi", deadline=None, derandomize=True
)  # shared machines stall; failures must repeat
settings.load_profile("dpsbi")
