"""The shapes of the protocol, in the newest revision's vocabulary: values without logic."""
