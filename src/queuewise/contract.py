"""The error of a broken policy contract, common to both models."""


class PolicyError(ValueError):
    """A policy breaks a rule of the contract; the message is one sentence that says which."""
