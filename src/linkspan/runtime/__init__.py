"""What runs the machines: descriptors, threads, event loops, processes, clocks. Independent of what is served."""
