"""`python -I -m lsp_server`: the same as the `spec-complete` command."""

import sys

from lsp_server.cli import main

sys.exit(main())
