"""What the distribution adds to the command line."""
