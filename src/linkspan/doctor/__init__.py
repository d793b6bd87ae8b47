"""A doctor for servers: it plays the hosts that people use, and names what will not work with them, and what to change."""
