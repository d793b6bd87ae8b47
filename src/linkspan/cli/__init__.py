"""The command line. Each verb is a module of its own, loaded when it is used."""
