"""Networks as ONNX files, and how they are run."""
