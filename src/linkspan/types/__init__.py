"""The shapes of the protocol, in the newest revision's vocabulary: values without logic."""

__all__: list[str] = []
