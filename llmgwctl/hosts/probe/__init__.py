"""What to ask a host, and how to read its answer."""

from llmgwctl.hosts.probe.answer import read_answer
from llmgwctl.hosts.probe.request import ProbeError, ProbeRequest
from llmgwctl.hosts.probe.script import build_script

__all__ = ["ProbeError", "ProbeRequest", "build_script", "read_answer"]
