from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("schema", deadline=None, max_examples=150, suppress_health_check=list(HealthCheck))
settings.load_profile("schema")
