"""Sans-IO machines: objects with memory that never read, write, wait or look at a clock."""
