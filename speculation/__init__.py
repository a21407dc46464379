"""Speculative decoding at batch size 1: drafts from text, verified exactly by a local code model."""
