"""A bridge: servers elsewhere, for any host, in any revision. `linkspan bridge` makes one from a command line."""
