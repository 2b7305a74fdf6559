"""What all tests share: generated examples are the same in each run, unless more and others are asked for."""

import os

from hypothesis import settings

# LLMGWCTL_EXAMPLES=5000 looks further, with examples of its own; the default must not fail by chance.
_more = os.environ.get("LLMGWCTL_EXAMPLES")
settings.register_profile("llmgwctl", deadline=None, derandomize=not _more, max_examples=int(_more or 150))
settings.load_profile("llmgwctl")
