"""Methods whose clients are given fewer layers of one network, each with an exit of its own."""
