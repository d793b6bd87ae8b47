"""What a client does, as generators: a flow yields effects, is sent their results, and returns a value. No I/O."""
