"""Methods whose clients are given parts of an elastic network, of which many variants are trained and served."""
