"""Slow, obvious twins of both models, written from the papers alone.

Nothing here imports the package. Everything is plain Python, NumPy, SciPy and mpmath, and everything is
recomputed from the full history, so that the fast code can be judged decision by decision.
"""
