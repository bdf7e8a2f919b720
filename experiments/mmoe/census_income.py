"""The UCI Census-Income (KDD) set: its columns in file order and the tasks made of them.

Data and two small pure functions without an import, so that a Beam source and a study can share
them. The file has no header; a line is 42 values separated by a comma and a space, and ends in a
full stop.

`?` means not recorded and `Not in universe` that a question does not apply to the person. Both are
categories like any other here, since they carry information. All numeric columns are complete.

The tasks are those of the MMoE paper (Ma et al., KDD 2018, section on census-income): in group 1 a
person's income and marital status are predicted, in group 2 education and marital status, each from
the columns that are not a label of the group (`input_columns`).
"""

from __future__ import annotations

SEPARATOR = ", "

NUMERIC_COLUMNS = (
    "age",
    "wage_per_hour",
    "capital_gains",
    "capital_losses",
    "dividends_from_stocks",
    "num_persons_worked_for_employer",
    "weeks_worked_in_year",
)
"""Numbers; the employer's size is a rank from 0 (none) to 6 (1000 persons or more)."""

COLUMNS = (
    "age",
    "class_of_worker",
    "detailed_industry_code",
    "detailed_occupation_code",
    "education",
    "wage_per_hour",
    "enrolled_in_education_last_week",
    "marital_status",
    "major_industry_code",
    "major_occupation_code",
    "race",
    "hispanic_origin",
    "sex",
    "member_of_labor_union",
    "reason_for_unemployment",
    "full_or_part_time",
    "capital_gains",
    "capital_losses",
    "dividends_from_stocks",
    "tax_filer_status",
    "region_of_previous_residence",
    "state_of_previous_residence",
    "detailed_household_status",
    "household_summary",
    "instance_weight",
    "migration_change_in_msa",
    "migration_change_in_region",
    "migration_move_within_region",
    "same_house_one_year_ago",
    "migration_from_sunbelt",
    "num_persons_worked_for_employer",
    "parents_present",
    "country_of_birth_father",
    "country_of_birth_mother",
    "country_of_birth_self",
    "citizenship",
    "own_business_or_self_employed",
    "veterans_questionnaire",
    "veterans_benefits",
    "weeks_worked_in_year",
    "year",
    "income",
)
"""All 42 columns in the order of the file."""

WEIGHT_COLUMN = "instance_weight"
"""Number of people that a row represents; never an input (the data set's advice)."""

CATEGORICAL_COLUMNS = tuple(
    name for name in COLUMNS if name not in (*NUMERIC_COLUMNS, WEIGHT_COLUMN)
)
"""Ids, the label columns among them; `year` (94 or 95) and the numeric codes are ids too."""

TASKS = {
    "income": ("income", ("50000+",)),
    "marital_status": ("marital_status", ("Never married",)),
    "education": (
        "education",
        (
            "Some college but no degree",
            "Associates degree-occup /vocational",
            "Associates degree-academic program",
            "Bachelors degree(BA AB BS)",
            "Masters degree(MA MS MEng MEd MSW MBA)",
            "Prof school degree (MD DDS DVM LLB JD)",
            "Doctorate degree(PhD EdD)",
        ),
    ),
}
"""For each task its column and the values that count as 1.

Income above 50,000; never married; education at least college. The paper does not list the levels
that it counts as college: here everybody who attended one counts, with a degree or without.
"""

GROUPS = {1: ("income", "marital_status"), 2: ("education", "marital_status")}
"""The tasks of each group, the main task first."""


def input_columns(group: int) -> tuple[str, ...]:
    """The columns that predict a group's labels: all but its label columns and the instance weight.

    Args:
        group: 1 or 2.

    Returns:
        39 names in the order of the file. Education is an input in group 1, income in group 2.

    Raises:
        KeyError: for another group.

    Example:
        >>> "education" in input_columns(1), "education" in input_columns(2)
        (True, False)
        >>> len(input_columns(1))
        39
    """
    hidden = {WEIGHT_COLUMN, *(TASKS[task][0] for task in GROUPS[group])}
    return tuple(name for name in COLUMNS if name not in hidden)


def parse_line(line: str) -> dict[str, str]:
    """One line of the file as {column: value}, values without blanks around them.

    Raises:
        ValueError: where the line does not have 42 values.

    Example:
        >>> line = ", ".join(["7"] * 41 + [" - 50000."])
        >>> parse_line(line)["income"]
        '- 50000'
    """
    values = line.strip().removesuffix(".").split(SEPARATOR)
    if len(values) != len(COLUMNS):
        raise ValueError(f"has {len(values)} values, Census-Income has {len(COLUMNS)}")
    return {name: value.strip() for name, value in zip(COLUMNS, values, strict=True)}


def label(row: dict[str, str], task: str) -> int:
    """1 where the row has one of the task's positive values, else 0.

    Example:
        >>> label({"marital_status": "Never married"}, "marital_status")
        1
    """
    column, positive = TASKS[task]
    return int(row[column] in positive)
