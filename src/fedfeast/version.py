"""The version, known without an installation: a source tree runs as it is."""

VERSION = "0.1.0"
