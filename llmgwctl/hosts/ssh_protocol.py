"""paramiko's side of a connection, silent, idle when nothing happens, and keeping what the server said at the end."""

from __future__ import annotations

import logging

import paramiko

from llmgwctl.hosts.transport import host_words

# paramiko logs tracebacks, and without a handler Python prints them; what the user has to know is in our errors.
_LOG = logging.getLogger("paramiko")
_LOG.addHandler(logging.NullHandler())
if _LOG.level == logging.NOTSET:
    _LOG.setLevel(logging.CRITICAL)


class ClientProtocol(paramiko.Transport):
    """A connection's protocol; `farewell` is what the server said as it ended it, in words fit to be shown."""

    # By default an idle connection wakes up ten times a second; deadlines and the end of a connection are our own.
    _active_check_timeout = 10.0

    farewell = ""

    def _parse_disconnect(self, m: paramiko.Message) -> None:
        # paramiko only logs it, and trips over a text that is no UTF-8.
        code = m.get_int()
        self.farewell = host_words(m.get_string()).rstrip(".") or f"disconnect code {code}"
