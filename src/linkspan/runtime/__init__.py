"""What runs the machines: descriptors, threads, event loops, processes, clocks. It knows nothing of what is served."""

__all__: list[str] = []
