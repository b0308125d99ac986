"""How the property tests draw their examples.

By default the same ones on every machine, however slow it is, so that a failure is the change's
own. `make test-all` draws new ones on every run.
"""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "same", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("new", settings.get_profile("same"), derandomize=False)
settings.load_profile("same")
