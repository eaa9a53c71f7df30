"""The version, where everything that records it can read it."""

VERSION = "0.1.0"
