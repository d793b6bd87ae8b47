"""What runs the machines: descriptors, threads, event loops, processes, clocks. Independent of what is served."""

__all__: list[str] = []
