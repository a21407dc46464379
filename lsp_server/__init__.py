"""What the editor and the shell talk to: language server, command line, telemetry."""
