import os

os.environ["OMP_NUM_THREADS"] = "1"  # before NumPy: processes share the processors

from hypothesis import HealthCheck, settings  # noqa: E402

settings.register_profile(
    "dpsbi", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)  # shared machines stall; failures must repeat
settings.load_profile("dpsbi")
