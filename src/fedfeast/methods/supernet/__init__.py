"""Methods that train the variants of an elastic network."""
