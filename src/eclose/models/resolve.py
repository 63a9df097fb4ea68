"""From what a user writes to a model that can be asked: one that is served, or weights that are loaded here.

Finding one sends nothing and loads nothing, so what a run is known by is known before anybody is asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from eclose.core.identity import content_hash
from eclose.core.response import Source
from eclose.errors import SettingError, UserError
from eclose.models.local.microbatch import open_microbatch
from eclose.models.openai.endpoint import (
    SERVICES,
    Endpoint,
    EndpointSettings,
    Route,
    ServerAddress,
    find_route,
    open_endpoint,
)
from eclose.models.weights import ADAPTER_WEIGHTS, adapter_source, backbone_name, require_adapter
from eclose.store.runs.manifest import hash_file, hash_files

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from eclose.models.interface import BatchModel, ChatModel

TRANSFORMERS, VLLM = "transformers", "vllm"
_ENGINES = (TRANSFORMERS, VLLM)
_DECIDING = ("*.safetensors", "*.gguf", "*.json", "*.jinja", "*.model")
"""The files of a model's folder that decide what it says."""
_OWN = frozenset({"vllm"})
"""Services that are the user's own server under another name."""


class ModelRef(Protocol):
    """A model that can be asked, wherever it is. Naming one sends nothing and loads nothing."""

    @property
    def name(self) -> str:
        """What records and calls say of who answered."""
        ...

    @property
    def source(self) -> Source:
        """Where responses come from."""
        ...

    @property
    def identity(self) -> dict[str, Any]:
        """What decides the responses, for the settings of a run."""
        ...

    @property
    def thinking(self) -> bool | None:
        """Whether to tell it to think or not; None for no word of it."""
        ...

    def opened(self, *, deadline: float, concurrency: int) -> AbstractAsyncContextManager[ChatModel]:
        """The model as one that sends, without patience and without books."""
        ...


@dataclass(frozen=True)
class ServedModelRef:
    """A model behind HTTP."""

    route: Route
    base: str | None = None
    """The base model's name on the same server, where the model is an adapter on it."""
    recipe: Mapping[str, Any] = field(default_factory=dict)
    """What the served adapter was trained with; empty for a model that is no adapter, or when it is not known."""
    known_source: Source | None = None
    """The source of the responses, where the user has named it."""

    @property
    def name(self) -> str:
        """What records and calls say of who answered."""
        return self.route.name

    @property
    def source(self) -> Source:
        """Source of the responses: without the host, so that they join those of the same weights loaded elsewhere."""
        if self.known_source is not None:
            return self.known_source
        if self.base is None and not self.recipe:
            return Source(backbone_name(self.route.model) if self._is_own_server else self.name)
        backbone = self.recipe.get("model") or self.base or self.route.model
        return adapter_source(backbone_name(str(backbone)), self.recipe, self.route.model)

    @property
    def identity(self) -> dict[str, Any]:
        """What decides the responses, for the settings of a run."""
        return {"model": self.name} | ({} if self.base is None else {"base_model": self.base})

    @property
    def thinking(self) -> bool | None:
        """Off where the server is one's own; providers refuse what they do not know, so they are told nothing."""
        return False if self._is_own_server else None

    @property
    def _is_own_server(self) -> bool:
        known = {name for name, service in SERVICES.items() if service.base_url == self.route.base_url}
        return not known - _OWN

    async def settled(self, deadline: float) -> ServedModelRef:
        """The same with its model's name, which the server is asked for where it was not given."""
        if self.route.model:
            return self
        async with await open_endpoint(self.route, EndpointSettings(deadline=deadline)) as endpoint:
            return replace(self, route=replace(self.route, model=endpoint.name.partition("/")[2]))

    def at_base(self) -> ServedModelRef:
        """The base model beside it."""
        assert self.base is not None
        return ServedModelRef(replace(self.route, model=self.base))

    @asynccontextmanager
    async def opened(self, *, deadline: float, concurrency: int) -> AsyncIterator[ChatModel]:
        """The model as one that sends, without patience and without books."""
        async with Endpoint(self.route, EndpointSettings(deadline=deadline, connections=concurrency)) as endpoint:
            yield endpoint


@dataclass(frozen=True)
class LocalModelRef:
    """Weights that are loaded into this process."""

    engine: str
    weights: str
    """A folder, a GGUF file or a name on the hub."""
    adapter: Path | None
    recipe: Mapping[str, Any]
    """What the adapter was trained with."""
    dtype: str
    revision: str | None
    """The commit of a name on the hub."""
    content: str
    """The hash of the weights; of their name where they are on the hub."""
    known_source: Source | None = None
    """The source of the responses, where the user has named it."""
    context: int | None = None
    """Most tokens of prompt and reply together; None for the engine's default."""

    @property
    def name(self) -> str:
        """Readable, and another for other content: replies are kept by it."""
        return f"{self._shown}@{content_hash(self.identity).removeprefix('sha256:')[:12]}"

    @property
    def _base(self) -> str:
        return backbone_name(self.weights)

    @property
    def _shown(self) -> str:
        return self._base if self.adapter is None else f"{self._base}+{self.adapter.resolve().name}"

    @property
    def source(self) -> Source:
        """Source of the responses; of an adapter, with the method and the seed it was trained with."""
        if self.known_source is not None:
            return self.known_source
        if self.adapter is None:
            return Source(self._base)
        return adapter_source(self._base, self.recipe, self.adapter.name)

    @property
    def identity(self) -> dict[str, Any]:
        """What decides the responses, for the settings of a run. Where it lies on this machine does not."""
        told: dict[str, Any] = {"engine": self.engine, "model": self._shown, "weights": self.content}
        if self.adapter is not None:
            told["adapter"] = hash_file(self.adapter / ADAPTER_WEIGHTS)
        if self.context is not None:
            told["max_length"] = self.context
        return told | {"dtype": self.dtype, "revision": self.revision}

    @property
    def thinking(self) -> bool | None:
        """Never: the chat template is told so for every engine."""
        return None

    @asynccontextmanager
    async def opened(self, *, deadline: float, concurrency: int) -> AsyncIterator[ChatModel]:  # noqa: ARG002
        """The model, loaded, with its adapter proved to change what it says."""
        async with open_microbatch(self._load(), name=self.name, most=concurrency) as model:
            yield model

    def _load(self) -> BatchModel:
        if self.engine == VLLM:
            from eclose.models.local.vllm_model import VllmModel, adapter_rank  # noqa: PLC0415 - heavy

            rank = 16 if self.adapter is None else adapter_rank(self.adapter)
            limit = {} if self.context is None else {"context": self.context}
            engine = VllmModel.load(self.weights, revision=self.revision, rank=rank, dtype=self.dtype, **limit)
            return engine if self.adapter is None else engine.with_adapter(self.adapter)
        _require_torch()
        from eclose.models.local.transformers_model import TransformersModel  # noqa: PLC0415 - heavy

        model = TransformersModel.load(self.weights, revision=self.revision, dtype=self.dtype, context=self.context)
        return model if self.adapter is None else model.with_adapter(self.adapter)


def find_model(
    name: str,
    *,
    base_url: str | ServerAddress | None = None,
    adapter: Path | None = None,
    recipe: Mapping[str, Any] | None = None,
    base_model: str | None = None,
    revision: str | None = None,
    dtype: str = "auto",
    source: Source | None = None,
    environ: Mapping[str, str] | None = None,
    keyless: bool = False,
) -> ModelRef:
    """Return a model by its name. A provider's model needs a key unless ``keyless``, for runs that send nothing.

    ``recipe`` is the recipe.json of an adapter, loaded here or served; ``source`` overrides what it says of the
    responses' backbone, method and seed.

    ========================  ====================================================================
    ``provider/model``        a provider's, by its key in the environment; ``vllm/…`` at port 8000
    ``http://host:port/v1``   the only model that is served there
    a folder, a GGUF file     loaded here with Transformers
    ``transformers:NAME``     the same for a name on the hub
    ``vllm:NAME``             loaded here with vLLM
    ========================  ====================================================================
    """
    engine, weights = _engine(name)
    if engine is None:
        if adapter is not None:
            raise SettingError(
                f"--adapter: {name} is served, and adapters are loaded by their server. Name the adapter as the model, "
                "and the model it is on with --base-model."
            )
        route = find_route(name, base_url=base_url, environ=environ, keyless=keyless)
        return ServedModelRef(route, base_model, recipe or {}, source)
    if base_model is not None:
        raise SettingError(
            f"--base-model: is for a served adapter, and {name} is loaded here. Give --adapter a folder."
        )
    if adapter is not None:
        require_adapter(adapter)
    recipe = recipe or {}
    if revision is None and recipe.get("model") == weights:
        revision = recipe.get("revision")
    return LocalModelRef(engine, weights, adapter, recipe, dtype, revision, _content(weights), source)


async def resolve_model(model: ModelRef | str, deadline: float) -> ModelRef:
    """A model whose name is known: a server that was named without one is asked which it serves."""
    named = find_model(model) if isinstance(model, str) else model
    return await named.settled(deadline) if isinstance(named, ServedModelRef) else named


def index_by_name(models: Iterable[ModelRef]) -> dict[str, ModelRef]:
    """Each model once. Replies are kept by a model's name, so two that share one could not be told apart."""
    found: dict[str, ModelRef] = {}
    for model in models:
        if found.setdefault(model.name, model) != model:
            raise SettingError(f"{model.name}: two different servers answer to this name. Give them different names.")
    return found


def _engine(name: str) -> tuple[str | None, str]:
    """What loads a model, and where from; None for one that is served."""
    engine, colon, weights = name.partition(":")
    if colon and engine in _ENGINES:
        return engine, weights
    path = Path(name)
    if name.endswith(".gguf") or (path / "config.json").is_file():
        return TRANSFORMERS, name
    if path.is_dir():
        raise UserError(f"{name}: is a folder without config.json, so it holds no model.")
    return None, name


def _require_torch() -> None:
    if missing := [name for name in ("torch", "transformers", "peft") if find_spec(name) is None]:
        raise UserError(f"a model in this process needs {', '.join(missing)}. Run: pip install 'eclose[train]'")


def _content(weights: str) -> str:
    """What tells weights from others of the same name."""
    path = Path(weights)
    if path.is_file():
        return hash_file(path)
    files = sorted({file for pattern in _DECIDING for file in path.glob(pattern)}) if path.is_dir() else []
    return content_hash(hash_files(files) if files else weights)
