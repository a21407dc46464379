"""The subcommands of `spec-complete`, one module each.

HELP, configure(parser), run(arguments) -> exit code.
"""
