import forked  # noqa: F401  before NumPy: one thread for each process
from hypothesis import HealthCheck, settings

settings.register_profile(
    "dpsbi", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)  # shared machines stall; failures must repeat
settings.load_profile("dpsbi")
