"""From hints to decoders and JSON Schemas, once, at registration; and problems in plain words. Pure functions."""

__all__: list[str] = []
