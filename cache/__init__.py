"""What is remembered between requests: model files, n-gram index, workspace files, history, KV prefixes."""
