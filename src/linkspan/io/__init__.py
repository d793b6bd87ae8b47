"""The drivers: the only place where bytes move, threads start and clocks are read. Each is thin; the core decides."""

__all__: list[str] = []
