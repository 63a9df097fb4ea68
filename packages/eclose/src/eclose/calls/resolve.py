"""Resolve the name of a model to a reference: a model behind a server, or weights loaded into this process.

A reference sends nothing and loads nothing until it is opened, so the identity of a run is known before the first call.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from eclose.calls.http.endpoint import (
    Endpoint,
    ModelRoute,
    ServerAddress,
    find_model_route,
    open_endpoint,
)
from eclose.calls.local.microbatch import MicrobatchModel, open_continuous
from eclose.calls.local.vllm_model import VLLM, check_engine_settings
from eclose.calls.local.weights import (
    ADAPTER_WEIGHTS,
    describe_adapter_source,
    model_table_name,
    require_adapter_weights,
)
from eclose.errors import SettingError, UserError
from eclose.files.manifest import hash_file, hash_files
from eclose.values.identity import content_hash
from eclose.values.response import ResponseSource

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from eclose.calls.local.vllm_model import VllmModel
    from eclose.calls.model import ChatModel, LocalBatchModel

TRANSFORMERS = "transformers"
_ENGINES = (TRANSFORMERS, VLLM)
_IDENTITY_PATTERNS = ("*.safetensors", "*.gguf", "*.json", "*.jinja", "*.model")
"""Files in the folder of a model that decide its replies."""
_SELF_HOSTED = frozenset({"vllm"})
"""Named services that run on the user's own server."""


class ModelRef(Protocol):
    """A reference to a model. Creating one sends nothing and loads nothing."""

    @property
    def name(self) -> str:
        """Name of the model in records and call keys."""
        ...

    @property
    def source(self) -> ResponseSource:
        """Source written into the responses of this model."""
        ...

    @property
    def identity(self) -> dict[str, Any]:
        """Everything about the model that decides its responses, for the settings of a run."""
        ...

    @property
    def thinking(self) -> bool | None:
        """Value of the ``thinking`` setting to send; None to send none."""
        ...

    def open(self, *, deadline: float, concurrency: int) -> AbstractAsyncContextManager[ChatModel]:
        """Open the bare model: no retries, no cache, no budget."""
        ...


@dataclass(frozen=True)
class ServedModelRef:
    """A model behind HTTP."""

    route: ModelRoute
    base: str | None = None
    """Name of the base model on the same server, where the model is an adapter; else None."""
    recipe: Mapping[str, Any] = field(default_factory=dict)
    """Content of the adapter's recipe.json; empty for other models and where it is unknown."""
    known_source: ResponseSource | None = None
    """Source of the responses as given by the user; None to derive it."""

    @property
    def name(self) -> str:
        """Name of the model in records and call keys."""
        return self.route.name

    @property
    def source(self) -> ResponseSource:
        """Source of the responses. It leaves out the host, so that it joins with the same weights served elsewhere."""
        if self.known_source is not None:
            return self.known_source
        if self.base is None and not self.recipe:
            return ResponseSource(model_table_name(self.route.model) if self._is_own_server else self.name)
        backbone = self.recipe.get("model") or self.base or self.route.model
        return describe_adapter_source(model_table_name(str(backbone)), self.recipe, self.route.model)

    @property
    def identity(self) -> dict[str, Any]:
        """Everything about the model that decides its responses, for the settings of a run."""
        return {"model": self.name} | ({} if self.base is None else {"base_model": self.base})

    @property
    def thinking(self) -> bool | None:
        """False for a self-hosted server, None for providers, which refuse settings unknown to them."""
        return False if self._is_own_server else None

    @property
    def _is_own_server(self) -> bool:
        return self.route.provider is None or self.route.provider in _SELF_HOSTED

    async def with_model_name(self, deadline: float) -> ServedModelRef:
        """Return the reference with a model name; ask the server for the name where it is empty."""
        if self.route.model:
            return self
        async with await open_endpoint(self.route, deadline) as endpoint:
            return replace(self, route=replace(self.route, model=endpoint.name.partition("/")[2]))

    def base_ref(self) -> ServedModelRef:
        """Return a reference to the base model on the same server."""
        assert self.base is not None
        return ServedModelRef(replace(self.route, model=self.base))

    @asynccontextmanager
    async def open(self, *, deadline: float, concurrency: int) -> AsyncIterator[ChatModel]:  # noqa: ARG002
        """Open the bare model: no retries, no cache, no budget."""
        async with Endpoint(self.route, deadline=deadline) as endpoint:
            yield endpoint


@dataclass(frozen=True)
class LocalModelRef:
    """A model whose weights are loaded into this process."""

    engine: str
    weights: str
    """Folder, GGUF file or hub name."""
    adapter: Path | None
    recipe: Mapping[str, Any]
    """Content of the adapter's recipe.json."""
    dtype: str
    revision: str | None
    """Commit of a hub name."""
    content: str
    """Hash of the weights; hash of the name where they are on the hub."""
    known_source: ResponseSource | None = None
    """Source of the responses as given by the user; None to derive it."""
    context: int | None = None
    """Largest number of tokens of prompt and reply together; None for the engine's default."""
    engine_settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of vLLM that change no reply, such as ``tensor_parallel_size``."""

    @property
    def name(self) -> str:
        """Readable name with a hash of the content: cached replies are found by it."""
        return f"{self._label}@{content_hash(self.identity).removeprefix('sha256:')[:12]}"

    @property
    def _base(self) -> str:
        return model_table_name(self.weights)

    @property
    def _label(self) -> str:
        return self._base if self.adapter is None else f"{self._base}+{self.adapter.resolve().name}"

    @property
    def source(self) -> ResponseSource:
        """Source of the responses; for an adapter with its training method and seed."""
        if self.known_source is not None:
            return self.known_source
        if self.adapter is None:
            return ResponseSource(self._base)
        return describe_adapter_source(self._base, self.recipe, self.adapter.name)

    @property
    def identity(self) -> dict[str, Any]:
        """Everything about the model that decides its responses. Paths on this machine are not part of it."""
        identity: dict[str, Any] = {"engine": self.engine, "model": self._label, "weights": self.content}
        if self.adapter is not None:
            identity["adapter"] = hash_file(self.adapter / ADAPTER_WEIGHTS)
        if self.context is not None:
            identity["max_length"] = self.context
        return identity | {"dtype": self.dtype, "revision": self.revision}

    @property
    def thinking(self) -> bool | None:
        """None: the chat template turns thinking off for every engine."""
        return None

    @asynccontextmanager
    async def open(self, *, deadline: float, concurrency: int) -> AsyncIterator[ChatModel]:  # noqa: ARG002
        """Load the model and its adapter; raise where the adapter changes no prediction."""
        if self.engine != VLLM:
            yield MicrobatchModel(self._load(), name=self.name, batch_size=concurrency)
            return
        async with open_continuous(self._start_engine(), name=self.name) as model:
            yield model

    def _start_engine(self) -> VllmModel:
        from eclose.calls.local.vllm_model import VllmModel, read_adapter_rank  # noqa: PLC0415 - heavy

        rank = None if self.adapter is None else read_adapter_rank(self.adapter)
        settings = {**self.engine_settings, "dtype": self.dtype}
        settings |= {} if self.context is None else {"context": self.context}
        engine = VllmModel.load(self.weights, revision=self.revision, rank=rank, **settings)
        return engine if self.adapter is None else engine.with_adapter(self.adapter)

    def _load(self) -> LocalBatchModel:
        if missing := [name for name in ("torch", "transformers", "peft") if find_spec(name) is None]:
            raise UserError(f"a model in this process needs {', '.join(missing)}. Run: pip install 'eclose[local]'")
        from eclose.calls.local.transformers_model import TransformersModel  # noqa: PLC0415 - heavy

        model = TransformersModel.load(self.weights, revision=self.revision, dtype=self.dtype, context=self.context)
        return model if self.adapter is None else model.with_adapter(self.adapter)


def find_model_ref(
    name: str,
    *,
    base_url: str | ServerAddress | None = None,
    adapter: Path | None = None,
    recipe: Mapping[str, Any] | None = None,
    base_model: str | None = None,
    revision: str | None = None,
    dtype: str = "auto",
    source: ResponseSource | None = None,
    environ: Mapping[str, str] | None = None,
    keyless: bool = False,
    engine_settings: Mapping[str, Any] | None = None,
) -> ModelRef:
    """Return a reference to a model by its name. A provider's model needs a key unless ``keyless``.

    ``recipe`` is the recipe.json of an adapter, loaded here or served. ``source`` overrides the backbone, method and
    seed that it gives to the responses. Use ``keyless`` for runs that send nothing. ``engine_settings`` are those of
    vLLM in this process that change no reply: ``tensor_parallel_size``, ``gpu_memory_utilization``, ``max_num_seqs``.

    ========================  ====================================================================
    ``provider/model``        a provider's model (``openai/providers.py``), key from the environment
    ``http://host:port/v1``   the only model of that server
    folder or GGUF file       loaded here with Transformers
    ``transformers:NAME``     hub name, loaded here with Transformers
    ``vllm:NAME``             hub name or folder, loaded here with vLLM
    ========================  ====================================================================
    """
    engine, weights = _parse_engine(name)
    check_engine_settings(engine_settings or {}, engine)
    if engine is None:
        if adapter is not None:
            raise SettingError(
                f"--adapter: {name} is served, and adapters are loaded by their server. Name the adapter as the model, "
                "and the model it is on as base_model in a recipe."
            )
        route = find_model_route(name, base_url=base_url, environ=environ, keyless=keyless)
        return ServedModelRef(route, base_model, recipe or {}, source)
    if base_model is not None:
        raise SettingError(f"base_model: is for a served adapter, and {name} is loaded here. Give --adapter a folder.")
    if adapter is not None:
        require_adapter_weights(adapter)
    recipe = recipe or {}
    # The recipe's commit belongs to its own repository, so it applies only where the same weights are named.
    if revision is None and recipe.get("model") == weights:
        revision = recipe.get("revision")
    return LocalModelRef(
        engine=engine,
        weights=weights,
        adapter=adapter,
        recipe=recipe,
        dtype=dtype,
        revision=revision,
        content=_hash_weights(weights),
        known_source=source,
        engine_settings=engine_settings or {},
    )


async def resolve_model_ref(model: ModelRef | str, deadline: float) -> ModelRef:
    """Return a reference with a model name; ask the server for its only model where a base URL alone is given."""
    ref = find_model_ref(model) if isinstance(model, str) else model
    return await ref.with_model_name(deadline) if isinstance(ref, ServedModelRef) else ref


def index_models_by_name(models: Iterable[ModelRef]) -> dict[str, ModelRef]:
    """Return each model once, by name; raise where two models share a name, because replies are cached by it."""
    models_by_name: dict[str, ModelRef] = {}
    for model in models:
        if models_by_name.setdefault(model.name, model) != model:
            raise SettingError(f"{model.name}: two different servers have this name. Name one with ECLOSE_SERVER_NAME.")
    return models_by_name


def _parse_engine(name: str) -> tuple[str | None, str]:
    engine, colon, weights = name.partition(":")
    if colon and engine in _ENGINES:
        return engine, weights
    path = Path(name)
    # Files and folders come before served models: a name such as vllm/model may be a folder here.
    if name.endswith(".gguf") or (path / "config.json").is_file():
        return TRANSFORMERS, name
    if path.is_dir():
        raise UserError(f"{name}: this folder has no config.json, so it holds no model. Give the folder of a model.")
    return None, name


def _hash_weights(weights: str) -> str:
    path = Path(weights)
    if path.is_file():
        return hash_file(path)
    files = sorted({file for pattern in _IDENTITY_PATTERNS for file in path.glob(pattern)}) if path.is_dir() else []
    # By content, so that cached replies are found again when the folder moves, and not when its weights change.
    return content_hash(hash_files(files) if files else weights)
