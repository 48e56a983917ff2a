"""What a run keeps beside its weights: hashes of its code and its data, clients' statistics, the values of sizes."""
