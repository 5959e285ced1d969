"""The one table of real engines: engine kind -> how to install and start it."""

from types import MappingProxyType

from tests.real.sglang import RECIPE as SGLANG
from tests.real.vllm import RECIPE as VLLM

from headrace.domain.endpoint import EngineKind

RECIPES = MappingProxyType({EngineKind.VLLM.value: VLLM, EngineKind.SGLANG.value: SGLANG})
