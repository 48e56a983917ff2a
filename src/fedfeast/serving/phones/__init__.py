"""For phones: networks in their runtimes' formats, and latencies that were measured on them."""
