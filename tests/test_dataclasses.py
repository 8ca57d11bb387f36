"""Dataclasses of the packages that compute are values: nobody changes them, and they have no room for more."""

import dataclasses
import importlib
import inspect
import pkgutil

import pytest

PACKAGES = ("core", "core.unfrozen", "tables", "values", "search")
CHANGING = {"Budget"}  # what a search uses up as it goes


def dataclasses_of(package: str) -> list[type]:
    """The dataclasses that are defined in a package."""
    folder = importlib.import_module(f"symcircuits.{package}")
    modules = [importlib.import_module(f"{folder.__name__}.{m.name}") for m in pkgutil.iter_modules(folder.__path__)]
    classes = [c for m in modules for _, c in inspect.getmembers(m, inspect.isclass) if c.__module__ == m.__name__]
    return [c for c in classes if dataclasses.is_dataclass(c)]


@pytest.mark.parametrize("package", PACKAGES)
def test_dataclasses_are_frozen_and_have_slots(package: str) -> None:
    for cls in dataclasses_of(package):
        frozen = cls.__dataclass_params__.frozen  # type: ignore[attr-defined]
        assert frozen is (cls.__name__ not in CHANGING), cls
        assert "__slots__" in vars(cls), cls


def test_there_are_dataclasses_to_look_at() -> None:
    found = {cls.__name__ for package in PACKAGES for cls in dataclasses_of(package)}
    assert {"Joints", "Term", "Architecture", *CHANGING} <= found
