"""The base class of configurations, and the descriptor of their settings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Self

from ais_tar2tf.errors import OptionError, OptionTypeError

__all__ = ["ConfigBase", "Setting"]


class Setting:
    """A setting: an attribute of a configuration with a type and a default.

    Args:
        kind: The type, or several types. None is accepted as well where the default is None.
        default: The default, or a function that returns it.
        doc: The docstring of the attribute.
        least: The smallest value of a number, or of each number in a list.
    """

    def __init__(
        self, kind: type | tuple[type, ...], default: Callable[[], Any] | Any, doc: str, *, least: int | None = None
    ) -> None:
        self._kinds = kind if isinstance(kind, tuple) else (kind,)
        self._default = default
        self._least = least
        self.__doc__ = doc
        self.name: str = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, config: ConfigBase | None, owner: type | None = None) -> Any:
        if config is None:
            return self
        if self.name not in config.values:
            config.values[self.name] = self.default()
        return config.values[self.name]

    def __set__(self, config: ConfigBase, value: Any) -> None:
        config.values[self.name] = self.checked(type(config).__name__, value)

    def default(self) -> Any:
        """Return the default; a default that is a function is called."""
        return self._default() if callable(self._default) else self._default

    def checked(self, owner: str, value: Any) -> Any:
        """Return a valid value.

        Args:
            owner: The name of the class, for errors.
            value: The value.

        Raises:
            OptionTypeError: The value has another type.
            OptionError: The value is too small.
        """
        if value is None and self.default() is None:
            return value
        is_bool = isinstance(value, bool) and bool not in self._kinds and object not in self._kinds
        if is_bool or not isinstance(value, self._kinds):
            kinds = " or ".join(getattr(kind, "__name__", str(kind)) for kind in self._kinds)
            raise OptionTypeError(f"{owner}.{self.name} is {kinds}, not {value!r}")
        for number in value if isinstance(value, list) else [value]:
            if self._least is not None and (not isinstance(number, int) or number < self._least):
                raise OptionError(f"{owner}.{self.name} is {self._least} or more, not {value!r}")
        return value


class ConfigBase:
    """The base class of configurations, whose attributes are `Setting`s.

    Args:
        **settings: Values of settings. All other settings have their defaults.
    """

    def __init__(self, **settings: Any) -> None:
        self.__dict__["values"] = {}
        for name, value in settings.items():
            setattr(self, name, value)

    values: dict[str, Any]

    def __setattr__(self, name: str, value: Any) -> None:
        if not hasattr(type(self), name) or name.startswith("__"):
            raise AttributeError(
                f"{type(self).__name__} has no setting {name!r}; there are: {', '.join(self.names())}"
            )
        super().__setattr__(name, value)

    @classmethod
    def names(cls) -> Iterator[str]:
        """Yield the names of all settings."""
        return (name for name, member in vars(cls).items() if isinstance(member, Setting))

    def get(self, name: str, default: Any = None) -> Any:
        """Return the value of a setting.

        Args:
            name: The name of the setting.
            default: The value to return instead of None.
        """
        value = getattr(self, name)
        return default if value is None else value

    def merge(self, other: Self) -> Self:
        """Return a new configuration with the values that were set in either configuration.

        Args:
            other: A configuration of the same class, whose values take precedence.
        """
        return type(self)(**{**self.values, **other.values})

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.names())

    __hash__ = None  # type: ignore[assignment]  # a configuration is mutable

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={value!r}" for name, value in self.values.items())
        return f"{type(self).__name__}({values})"
