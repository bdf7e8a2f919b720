"""The models that the local server answers for, kept current with the folders that they come from."""

from __future__ import annotations

import gc
import logging
import threading
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import NamedTuple

import grpc

from tfr_moe.errors import UserError

from .loaded import LoadedModel
from .refusals import RefusedError, invalid, not_found, precondition
from .versions import models_of, versions_of

log = logging.getLogger(__name__)


class VersionState(NamedTuple):
    """What ModelService says of a version: the state's name, and why a load failed."""

    state: str
    message: str = ""


class Source(NamedTuple):
    """Where a model's versions are, and which of them are wanted.

    Attributes:
        folder: with a folder for each version.
        specific: these versions, or by `newest`.
        newest: so many of the newest; None for all.
        labels: versions by label.
    """

    folder: Path
    specific: frozenset[int] | None = None
    newest: int | None = None
    labels: Mapping[str, int] = {}

    def versions(self) -> list[int]:
        """The wanted versions that are there, oldest first."""
        if not self.folder.is_dir():
            return []
        found = versions_of(self.folder)
        if self.specific is not None:
            return [version for version in found if version in self.specific]
        return found if self.newest is None else found[-self.newest :]


class Repository:
    """Models in their versions: all that are below a root folder, until `reload` says which.

    `get`, `states` and the like may be called by any thread at any time.

    Args:
        root: the folder with NAME/<version>/ below it.
        notify: is told what is loaded and unloaded.
        batch_size: see `LoadedModel`.

    Raises:
        UserError: if there is no model that can be loaded.
    """

    def __init__(self, root: Path, notify: Callable[[str], None] = log.info, batch_size: int = 1):
        models_of(root)
        self._root = root
        self._notify = notify
        self._batch_size = batch_size
        self._sources: dict[str, Source] | None = None
        self._changing = threading.RLock()
        self._failed: set[tuple[str, int]] = set()
        self._models: dict[str, dict[int, LoadedModel]] = {}
        self._states: dict[str, dict[int, VersionState]] = {}
        self.refresh()
        if not any(self._models.values()):
            reasons = "; ".join(
                f"{name}/{version}: {state.message}"
                for name, versions in self._states.items()
                for version, state in versions.items()
            )
            raise UserError(f"models folder {root}: no version could be loaded ({reasons})")

    def refresh(self) -> None:
        """Loads what is new and drops what is gone.

        A version that failed is not tried again until it was gone or is published under another
        number. Requests that hold a dropped version finish with it. The last version of a model is
        kept until one that is there is loaded, so that the model never goes without.
        """
        with self._changing:
            sources = self._current()
            self._load_new(sources)
            self._drop_gone(sources)

    def reload(self, sources: Mapping[str, Source]) -> None:
        """Serves these models and no others. When it fails, all stays as it was.

        Raises:
            RefusedError: UNKNOWN if of a model no version can be loaded, FAILED_PRECONDITION if a
                label is for a version that is not available.
        """
        with self._changing:
            moved = [
                n for n, s in sources.items() if n in self._models and s.folder != self._folder(n)
            ]
            if moved:
                invalid(f"Illegal to change the base path of model {moved[0]} while it is served")
            self._failed.clear()
            try:
                self._load_new(sources)
                self._check_served(sources)
            except RefusedError:
                self._drop_gone(self._current())
                raise
            self._sources = dict(sources)
            self._drop_gone(sources)

    def _folder(self, name: str) -> Path:
        return self._root / name if self._sources is None else self._sources[name].folder

    def _current(self) -> Mapping[str, Source]:
        if self._sources is not None:
            return self._sources
        return {p.name: Source(p) for p in sorted(self._root.iterdir()) if p.is_dir()}

    def _check_served(self, sources: Mapping[str, Source]) -> None:
        for name, source in sources.items():
            wanted, loaded = source.versions(), self._models.get(name, {})
            if not set(wanted) & set(loaded):
                reasons = [self._states[name][version].message for version in wanted]
                raise RefusedError(
                    grpc.StatusCode.UNKNOWN,
                    f"no version of model {name} became available: {'; '.join(reasons) or 'none found'}",
                )
            for label, version in source.labels.items():
                if version not in loaded or version not in wanted:
                    precondition(
                        f"Request to assign label {label!r} to version {version} of model {name}, "
                        "which is not currently available for inference"
                    )

    def _load_new(self, sources: Mapping[str, Source]) -> None:
        for name, source in sources.items():
            for version in reversed(source.versions()):
                loaded = version in self._models.get(name, {})
                if not loaded and (name, version) not in self._failed:
                    self._load(name, version, source.folder)

    def _drop_gone(self, sources: Mapping[str, Source]) -> None:
        wanted = {name: set(source.versions()) for name, source in sources.items()}
        self._failed = {(n, v) for n, v in self._failed if v in wanted.get(n, ())}
        gone = [
            (name, version)
            for name, loaded in self._models.items()
            for version in sorted(set(loaded) - wanted.get(name, set()))
            if not self._stands_in(version, loaded, wanted.get(name, set()))
        ]
        for name, version in gone:
            self._put(name, version, None, VersionState("END"))
            self._notify(f"unloaded {name} version {version}")
        if gone:
            gc.collect()  # functions of TensorFlow refer to each other in circles

    @staticmethod
    def _stands_in(version: int, loaded: Collection[int], wanted: set[int]) -> bool:
        """Whether a version that is gone answers on: the newest, until a wanted one is loaded."""
        return bool(wanted) and not wanted & set(loaded) and version == max(loaded)

    def _load(self, name: str, version: int, folder: Path) -> None:
        self._put(name, version, None, VersionState("LOADING"))
        try:
            model = LoadedModel(folder / str(version), name, self._batch_size)
        except Exception as error:  # whatever is wrong with one version, the others go on serving
            reason = " ".join(str(error).split())
            self._failed.add((name, version))
            self._put(name, version, None, VersionState("END", reason))
            self._notify(f"could not load {name} version {version}: {reason}")
        else:
            self._put(name, version, model, VersionState("AVAILABLE"))
            self._notify(f"serving {name} version {version}")

    def _put(self, name: str, version: int, model: LoadedModel | None, state: VersionState) -> None:
        # Readers take no lock: they see a model's old dictionary or its new one, never one in change.
        loaded = {v: m for v, m in self._models.get(name, {}).items() if v != version}
        if model is not None:
            loaded[version] = model
        self._models = {**self._models, name: loaded}
        states = {**self._states.get(name, {}), version: state}
        self._states = {**self._states, name: states}

    def get(self, name: str, version: int | None = None) -> LoadedModel:
        """A model's newest version, or the one asked for.

        Raises:
            RefusedError: NOT_FOUND if it is not there.
        """
        versions = self._models.get(name, {})
        wanted = max(versions, default=None) if version is None else version
        if wanted is None or wanted not in versions:
            which = f"Latest({name})" if version is None else f"Specific({name}, {version})"
            not_found(f"Servable not found for request: {which}")
        return versions[wanted]

    def labelled(self, name: str, label: str) -> int:
        """The version that a label stands for.

        Raises:
            RefusedError: INVALID_ARGUMENT if there is no such label.
        """
        source = (self._sources or {}).get(name)
        if source is None or label not in source.labels:
            invalid(f"Unrecognized servable version label: {label}")
        return source.labels[label]

    def names(self) -> list[str]:
        """The models that are or were served."""
        return sorted(self._states)

    def knows(self, name: str) -> bool:
        """Whether a model of that name is or was served."""
        return bool(self._states.get(name))

    def states(self, name: str) -> dict[int, VersionState]:
        """The states of a model's versions, newest first; empty for an unknown model."""
        return dict(sorted(self._states.get(name, {}).items(), reverse=True))
