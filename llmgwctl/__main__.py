"""`python -m llmgwctl`."""

import sys

from llmgwctl.cli.entry import main

sys.exit(main())
