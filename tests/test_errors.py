from __future__ import annotations

import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from tfr_moe.elwc.values import RowError
from tfr_moe.errors import UserError, describe, did_you_mean, error_line, named, validated


class Part(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str
    size: int = Field(1, ge=1)

    @field_validator("name")
    @classmethod
    def not_nothing(cls, name: str) -> str:
        if name == "nothing":
            raise ValueError("must not be 'nothing'")
        return name


class Whole(BaseModel):
    model_config = ConfigDict(extra="forbid")

    parts: tuple[Part, ...] = Field(min_length=1)


def line_for(data: dict) -> str:
    with pytest.raises(ValidationError) as caught:
        Whole.model_validate(data)
    return describe(caught.value, data)


def test_what_is_validated_has_its_type_or_the_error_says_where():
    assert validated(Part, {"name": "a", "size": "2"}, "file") == Part(name="a", size=2)
    assert validated(dict[str, int], {"a": "1"}, "file") == {"a": 1}
    with pytest.raises(UserError, match=r"^file: size: Input should be greater than or equal"):
        validated(Part, {"name": "a", "size": 0}, "file")
    with pytest.raises(UserError, match=r"^file: Input should be greater than or equal"):
        validated(Part, {"name": "a", "size": 0}, "file", hidden=("size",))


def test_errors_of_rows_are_user_errors():
    assert issubclass(RowError, UserError)


@pytest.mark.parametrize(
    ("location", "words"),
    [
        ((), ""),
        (("list_id",), "list_id"),
        (("parts", 1, "size"), "part 'b': size"),
        (("parts", 0, "size"), "parts[0]: size"),
        (("parts", 9, "size"), "parts[9]: size"),
        (("absent", "deeper"), "absent: deeper"),
    ],
)
def test_a_location_is_put_in_words(location: tuple, words: str):
    assert named(location, {"parts": [{"size": 1}, {"name": "b"}]}) == words


def test_an_entry_with_a_name_is_called_by_it():
    assert line_for({"parts": [{"name": "a"}, {"name": "b", "size": 0}]}) == (
        "part 'b': size: Input should be greater than or equal to 1"
    )


def test_an_unknown_key_is_reported_as_unknown():
    assert line_for({"parts": [{"name": "a", "sise": 2}]}) == "part 'a': sise: unknown key"


def test_a_validators_own_words_come_without_a_prefix():
    assert line_for({"parts": [{"name": "nothing"}]}) == (
        "part 'nothing': name: must not be 'nothing'"
    )


def test_several_errors_make_one_line():
    line = line_for({"parts": [{"name": "a", "size": "x"}], "more": 1})
    assert "\n" not in line
    first, second = line.split("; ")
    assert first.startswith("part 'a': size: ")
    assert second == "more: unknown key"


def test_entries_that_failed_are_not_also_reported_as_too_few():
    assert "too_short" not in line_for({"parts": [{"size": 1}]})
    assert line_for({"parts": []}).startswith("parts: ")


def test_an_error_of_many_lines_becomes_one():
    error = UserError("schema.json: two faults:\n    a: missing\n    b: missing\n")
    assert error_line(error) == "error: schema.json: two faults: a: missing b: missing"


def test_only_a_near_name_is_meant():
    assert did_you_mean("serch_id", ["user_id", "search_id"]) == "did you mean 'search_id'?"
    assert did_you_mean("search_id", ["brand", "price"]) == ""
    assert did_you_mean("price", ["q;price"]) == "are the columns separated by commas?"
