"""Verifiers: the target model behind one interface. See `base.Verifier`."""
