"""What is measured, against peers where there are any. Not installed: run from a checkout."""
