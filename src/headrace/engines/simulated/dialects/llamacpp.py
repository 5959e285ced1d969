"""llama.cpp's language. Source: xllamacpp 2026.10 run on CPU, as recorded in the tests; llama.cpp's tools/server."""

import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import msgspec

from headrace.domain.undecodable import UNDECODABLE
from headrace.engines.simulated.ask import Api, Ask, AskError
from headrace.engines.simulated.dialects.contract import (
    Dialect,
    Ending,
    Host,
    Route,
    api_table,
    read_json,
    text_asked,
    tokens_asked,
)
from headrace.engines.simulated.formats import ChunkShape, Shape, encode_json
from headrace.engines.simulated.http import HttpRequest, Reply
from headrace.engines.simulated.pages.llamacpp import metrics_page

FILE_NAME = re.compile(r"[A-Za-z0-9._-]+\Z")
"""What a saved slot may be called. llama.cpp refuses paths too."""


FINGERPRINT: Mapping[str, object] = MappingProxyType({"system_fingerprint": "b0-simulated"})


class LlamacppDialect(Dialect):
    """`llama-server`."""

    apis = api_table(
        *(Api.CHAT, Api.COMPLETIONS, Api.RESPONSES, Api.MESSAGES),
        **{"/chat/completions": Api.CHAT, "/completions": Api.COMPLETIONS},
    )
    extensions = frozenset("cache_prompt grammar id_slot ignore_eos json_schema n_predict".split())
    id_prefixes = MappingProxyType({**dict.fromkeys(Api, "chatcmpl-"), Api.RESPONSES: "resp_"})
    owned_by = "llamacpp"
    continues_last_assistant = True
    echoes_continuation = True
    reports_transferred_as_cached = True
    head_waits_for_token = True
    shape = Shape(
        chat=ChunkShape(chunk=FINGERPRINT, whole=FINGERPRINT),
        completion=ChunkShape(chunk=FINGERPRINT, whole=FINGERPRINT, usage_rides=True),
        role_content=None,
        tool_content="",
        has_timings=True,
    )
    not_found = Reply.json({"error": {"message": "File Not Found", "type": "not_found_error", "code": 404}}, 404)

    def check_model(self, model: str | None) -> None:
        """One model, whatever it is called."""

    def too_long(self, ask: Ask, prompt_tokens: int) -> AskError:
        context = self.config.context_tokens
        message = (
            f"request ({prompt_tokens} tokens) exceeds the available context size ({context} tokens), try increasing it"
        )
        error = AskError(400, message, kind="exceed_context_size_error")
        error.members = {"n_prompt_tokens": prompt_tokens, "n_ctx": context}
        return error

    def no_embeddings(self) -> Reply:
        message = "This server does not support embeddings. Start it with `--embeddings`"
        return self.error(AskError(501, message, kind="not_supported_error"))

    def usage(self, prompt_tokens: int, completion_tokens: int, cached_tokens: int) -> dict[str, object]:
        return {
            "completion_tokens": completion_tokens,
            "prompt_tokens": prompt_tokens,
            "total_tokens": prompt_tokens + completion_tokens,
            "prompt_tokens_details": {"cached_tokens": cached_tokens},
        }

    def error_members(self, error: AskError) -> dict[str, object]:
        kinds = {"BadRequestError": "invalid_request_error", "ValidationError": "invalid_request_error"}
        kind = kinds.get(error.kind, "unavailable_error" if error.status == 503 else error.kind)
        return {"code": error.status, "message": error.message, "type": kind, **error.members}

    def error_event(self, error: AskError) -> bytes:
        """An error event ends the stream; no end mark follows."""
        return b"data: " + encode_json({"error": self.error_members(error)}) + b"\n\n"

    @property
    def ending(self) -> Ending:
        return Ending.STOPS_LISTENING

    def loading_share_listening(self) -> float:
        return 1.0

    def loading_reply(self, request: HttpRequest) -> Reply:
        return self.error(AskError(503, "Loading model", kind="unavailable_error"))

    def abort_delay_s(self, *, is_stream: bool) -> float:
        return 0.04 if is_stream else 1.0

    def model_card(self) -> dict[str, object]:
        meta = {"n_ctx": self.config.context_tokens, "n_ctx_train": self.config.context_tokens}
        name = self.config.served_model
        return {"id": name, "object": "model", "created": 0, "owned_by": self.owned_by, "meta": meta}

    def routes(self) -> Mapping[tuple[str, str], Route]:
        table: dict[tuple[str, str], Route] = {
            ("GET", "/health"): lambda _, __: Reply.json({"status": "ok"}),
            ("GET", "/v1/models"): self.models,
            ("GET", "/props"): self._props,
            ("GET", "/slots"): lambda host, _: Reply.json(host.slots()),
            ("GET", "/metrics"): lambda host, _: Reply.text(metrics_page(host.view())),
            ("POST", "/tokenize"): lambda _, request: Reply.json({"tokens": tokens_asked(read_json(request))}),
            ("POST", "/detokenize"): lambda _, request: Reply.json({"content": text_asked(read_json(request))}),
        }
        for slot in range(self.config.max_sequences):
            table["POST", f"/slots/{slot}"] = self._slot
        return table

    def _props(self, host: Host, request: HttpRequest) -> Reply:
        return Reply.json(
            {
                "total_slots": self.config.max_sequences,
                "model_path": self.config.served_model,
                "default_generation_settings": {"n_ctx": self.config.context_tokens},
                "build_info": self.config.version,
            }
        )

    def _slot(self, host: Host, request: HttpRequest) -> Reply:
        """Save or restore a slot's KV: here the tokens that it stands for, in a file that another engine can read."""
        slot = int(request.path.rpartition("/")[2])
        name = str(read_json(request).get("filename") or "")
        action = request.query.get("action")
        if action == "erase":
            host.restore_slot(slot, [])
            return Reply.json({"id_slot": slot, "n_erased": 0})
        if self.config.slot_dir is None:
            message = "This server does not support slots action. Start it with `--slot-save-path`"
            raise AskError(501, message, kind="not_supported_error")
        if not FILE_NAME.match(name) or name.startswith("."):
            raise AskError(400, "Invalid filename")
        path = self.config.slot_dir / name
        return self._save(host, slot, path) if action == "save" else self._restore(host, slot, path)

    def _save(self, host: Host, slot: int, path: Path) -> Reply:
        tokens = host.slot_tokens(slot)
        size = path.write_bytes(msgspec.json.encode(tokens))
        return Reply.json({"id_slot": slot, "filename": path.name, "n_saved": len(tokens), "n_written": size})

    def _restore(self, host: Host, slot: int, path: Path) -> Reply:
        try:
            tokens = msgspec.json.decode(path.read_bytes(), type=list[int])
        except (*UNDECODABLE, OSError) as error:
            message = "Unable to restore slot, no available space in KV cache or invalid slot save file"
            raise AskError(400, message) from error
        host.restore_slot(slot, tokens)
        size = len(tokens) * self.config.engine.kv.bytes_per_token
        return Reply.json({"id_slot": slot, "filename": path.name, "n_restored": len(tokens), "n_read": size})
