from hypothesis import settings

settings.register_profile(
    "dpsbi", deadline=None, derandomize=True
)  # shared machines stall; failures must repeat
settings.load_profile("dpsbi")
