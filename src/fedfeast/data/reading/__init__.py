"""How files and archives become prepared arrays."""
