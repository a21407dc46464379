"""What the tests of the language server share: a scripted engine, a server that runs it, and a client."""
