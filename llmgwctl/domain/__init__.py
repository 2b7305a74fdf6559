"""The nouns: frozen dataclasses, standard library only, no behaviour beyond arithmetic."""
