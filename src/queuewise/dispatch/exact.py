"""Exact numbers for routing rules; being written."""
