"""Proposers: each suggests continuations from one kind of text. See `base.Proposer`."""
