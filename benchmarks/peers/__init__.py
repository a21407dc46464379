"""Side by side with what people would use instead: the same prompts and weights, everyone's best settings.

    python -m benchmarks.peers [--workload edits,fresh,noise,rewrite,typing,truth] [--limit N] [--json FILE] …

`benchmarks/README.md` says how to reproduce the figures and has those of the last run.
"""
