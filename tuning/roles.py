"""What a process is in a sweep: all of it, the chief, or a worker. KerasTuner's variables say so."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from tfr_moe.errors import UserError

_VARIABLES = ("KERASTUNER_TUNER_ID", "KERASTUNER_ORACLE_IP", "KERASTUNER_ORACLE_PORT")


@dataclass(frozen=True)
class Role:
    """One process of a sweep.

    Attributes:
        kind: `single` works alone, `chief` hands out trials, `worker` runs them.
        tuner_id: its name; the chief's has `chief` in it.
        address: HOST:PORT of the chief.
    """

    kind: Literal["single", "chief", "worker"] = "single"
    tuner_id: str = "tuner0"
    address: str = ""

    @classmethod
    def make(cls, tuner_id: str | None, address: str | None) -> Role:
        """A role from a name and the chief's address; none of both is `single`.

        Raises:
            UserError: if only one is given, or the address is not HOST:PORT.

        Example:
            >>> Role.make("chief", "10.0.0.1:8000").kind, Role.make(None, None).kind
            ('chief', 'single')
        """
        if tuner_id is None and address is None:
            return cls()
        if not tuner_id or not address:
            raise UserError(
                "a chief or worker needs both --tuner-id and --oracle HOST:PORT (or "
                f"{', '.join(_VARIABLES)})"
            )
        host, _, port = address.rpartition(":")
        if not host or not port.isdigit() or int(port) > 65535:
            raise UserError(f"--oracle {address!r}: must be HOST:PORT")
        return cls("chief" if "chief" in tuner_id else "worker", tuner_id, address)

    @classmethod
    def from_environment(
        cls,
        tuner_id: str | None = None,
        address: str | None = None,
        environment: Mapping[str, str] = os.environ,
    ) -> Role:
        """A role from KerasTuner's variables, where no flag says otherwise.

        Example:
            >>> Role.from_environment(environment={"KERASTUNER_TUNER_ID": "worker-2",
            ...     "KERASTUNER_ORACLE_IP": "10.0.0.1", "KERASTUNER_ORACLE_PORT": "8000"})
            Role(kind='worker', tuner_id='worker-2', address='10.0.0.1:8000')
        """
        name, host, port = (environment.get(variable) for variable in _VARIABLES)
        if (host is None) != (port is None):
            raise UserError("KERASTUNER_ORACLE_IP and KERASTUNER_ORACLE_PORT belong together")
        known = None if host is None else f"{host}:{port}"
        # A name alone is no role: KerasTuner reads it from the environment of a single process too.
        if address is None and known is None and tuner_id is None:
            return cls()
        return cls.make(tuner_id or name, address or known)

    def environment(self) -> dict[str, str]:
        """KerasTuner's variables for this role."""
        host, _, port = self.address.rpartition(":")
        return dict(zip(_VARIABLES, (self.tuner_id, host, port), strict=True))
