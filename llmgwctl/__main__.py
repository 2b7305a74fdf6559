"""`python -m llmgwctl`."""

import sys

from llmgwctl.cli.main import main

sys.exit(main())
