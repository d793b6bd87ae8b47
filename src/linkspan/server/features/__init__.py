"""What a server does for the methods of each feature: one class for each kind of method, one module for each feature."""
