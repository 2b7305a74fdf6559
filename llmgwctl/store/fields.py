"""The fields of a JSON object from elsewhere, each of its kind and within its bounds; null counts as absent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from llmgwctl.store.codec import CodecError, kind_of


class Fields:
    """One object; `place` is where it stands, for messages. Everything raises CodecError naming place and key."""

    def __init__(self, data: object, place: str) -> None:
        if not isinstance(data, dict):
            raise CodecError(f"{place or 'the document'} should be an object, not {kind_of(data)}")
        self._data: Mapping[str, Any] = data
        self.place = place

    def text(self, key: str, default: str = "") -> str:
        """Return a text."""
        value = self._data.get(key)
        if value is None:
            return default
        if not isinstance(value, str):
            raise self.wrong(key, "a text")
        return value

    def needed_text(self, key: str) -> str:
        """Return a text that must be there, and hold something."""
        if not self.text(key):
            raise self.wrong(key, "a text") if key in self._data else self.lacks(key)
        return self.text(key)

    def optional_text(self, key: str) -> str | None:
        """Return a text, or None."""
        return None if self._data.get(key) is None else self.text(key)

    def flag(self, key: str, default: bool | None = False) -> bool:
        """Return true or false; without a default it must be there."""
        value = self._data.get(key)
        if value is None and default is not None:
            return default
        if not isinstance(value, bool):
            raise self.wrong(key, "true or false") if key in self._data else self.lacks(key)
        return value

    def number(self, key: str, least: float, most: float) -> float | None:
        """Return a number between bounds, or None."""
        value = self._data.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
            raise self.wrong(key, f"a number from {least:g} to {most:g}")
        return value

    def whole(self, key: str, least: int, most: int) -> int | None:
        """Return a whole number between bounds, or None."""
        value = self._data.get(key)
        return None if value is None else self._whole(key, value, least, most)

    def needed_whole(self, key: str, least: int, most: int) -> int:
        """Return a whole number that must be there."""
        value = self.whole(key, least, most)
        if value is None:
            raise self.wrong(key, f"a whole number from {least} to {most}") if key in self._data else self.lacks(key)
        return value

    def wholes(self, key: str, least: int, most: int) -> tuple[int, ...]:
        """Return a list of whole numbers."""
        return tuple(self._whole(f"{key}[{i}]", v, least, most) for i, v in enumerate(self._list(key)))

    def texts(self, key: str) -> tuple[str, ...]:
        """Return a list of texts."""
        values = self._list(key)
        for i, value in enumerate(values):
            if not isinstance(value, str):
                raise self._wrong(f"{key}[{i}]", "a text", value)
        return tuple(values)

    def text_map(self, key: str) -> dict[str, str]:
        """Return an object whose values are texts."""
        value = self._data.get(key)
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise self.wrong(key, "an object")
        for name, text in value.items():
            if not isinstance(text, str):
                raise self._wrong(f"{key}.{name}", "a text", text)
        return value

    def objects(self, key: str) -> Iterator[Fields]:
        """Yield the objects of a list."""
        for i, value in enumerate(self._list(key)):
            yield Fields(value, self._at(f"{key}[{i}]"))

    def wrong(self, key: str, expected: str) -> CodecError:
        """Return the error of a field."""
        return self._wrong(key, expected, self._data.get(key))

    def lacks(self, key: str) -> CodecError:
        """Return the error of a field that is not there."""
        return CodecError(f"{self.place or 'the document'} lacks {key}")

    def _list(self, key: str) -> list[Any]:
        value = self._data.get(key)
        if value is None:
            return []
        if not isinstance(value, list):
            raise self.wrong(key, "a list")
        return value

    def _whole(self, key: str, value: object, least: int, most: int) -> int:
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise self._wrong(key, f"a whole number from {least} to {most}", value)
        return value

    def _wrong(self, key: str, expected: str, value: object) -> CodecError:
        return CodecError(f"{self._at(key)} should be {expected}, not {kind_of(value)}")

    def _at(self, key: str) -> str:
        separator = "." if self.place and not self.place.endswith(": ") else ""
        return f"{self.place}{separator}{key}"
