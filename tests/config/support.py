"""What the tests of this folder share."""

from llmgwctl.config.documents import Documents, read_text
from llmgwctl.config.resolve import resolve
from llmgwctl.diagnostics import Severity
from llmgwctl.errors import ConfigError

MODEL = "models:\n  - name: m\n    source: s\n    profiles:\n      - {name: p, gpu_class: h100, tp: 2}\n"


def desired(*texts):
    """Resolve texts as the files a.yaml, b.yaml and so on."""
    return resolve(Documents(tuple(read_text(t, f"{chr(97 + n)}.yaml") for n, t in enumerate(texts))))


def problems(*texts):
    """Return the errors of texts, as printed; none where they are valid."""
    try:
        desired(*texts)
    except ConfigError as error:
        return [str(d) for d in error.diagnostics if d.severity is Severity.ERROR]
    return []


def warnings(*texts):
    """Return the warnings of valid texts, as printed."""
    return [str(d) for d in desired(*texts).diagnostics]


def model_with(lines="", profile=""):
    """Return a valid model with more lines, and more keys in its profile."""
    extra = "".join(f"    {line}\n" for line in lines.splitlines())
    return (
        f"models:\n  - name: m\n    source: s\n{extra}    profiles:\n"
        f"      - {{name: p, gpu_class: h100{', ' if profile else ''}{profile}}}\n"
    )
