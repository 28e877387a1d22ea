"""What holds for every test: made-up examples are the same on every run and on every machine."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# No deadline and no complaint about slow generation: how long an example takes says how busy the
# machine is. The same examples each time: what passed here passes there.
settings.register_profile(
    "ctxbench",
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("ctxbench")

# As wide as where there is no terminal: what is wrapped where does not depend on who runs the tests.
os.environ["COLUMNS"] = "100"
