"""A real fleet: rounds over Flower's SuperNodes. The only folder that imports flwr."""
