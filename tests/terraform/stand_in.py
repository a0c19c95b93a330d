"""A stand-in for the providers hashicorp/google and google-beta, used by the real terraform.

It speaks Terraform's plugin protocol 6 over gRPC; terraform finds it through TF_REATTACH_PROVIDERS. It checks
configurations against the providers' schema and rules, and creates resources only in the state: nothing is
sent to Google. As a program it runs one command with the providers:

    python -m tests.terraform.stand_in terraform -chdir=terraform validate
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent import futures
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import grpc

from tests.terraform import provider_schema
from tests.terraform.provider_rules import problems
from tests.terraform.provider_schema import (
    CALLS,
    SERVICE,
    VERSIONS,
    ProviderSchema,
    decode,
    encode,
    filled,
    invented,
    message,
    schema_message,
)

PROVIDERS = ("google", "google-beta")
ERROR = 1

LIKE_GOOGLE = {
    # computed attributes that others depend on, in terms of the resource's attributes
    "google_artifact_registry_repository": {"name": "{repository_id}"},
    "google_compute_network": {"id": "projects/{project}/global/networks/{name}"},
    "google_compute_subnetwork": {"id": "projects/{project}/regions/{region}/subnetworks/{name}"},
    "google_project": {"number": "123456789012"},
    "google_project_iam_custom_role": {"id": "projects/{project}/roles/{role_id}"},
    "google_service_account": {
        "email": "{account_id}@{project}.iam.gserviceaccount.com",
        "name": "projects/{project}/serviceAccounts/{account_id}@{project}.iam.gserviceaccount.com",
        "member": "serviceAccount:{account_id}@{project}.iam.gserviceaccount.com",
    },
    "google_storage_bucket": {"url": "gs://{name}"},
    "google_storage_project_service_account": {
        "member": "serviceAccount:service-123456789012@gs-project-accounts.iam.gserviceaccount.com"
    },
}


class Provider:
    """The protocol's calls by their names; each takes and returns a message."""

    def __init__(self, schema: ProviderSchema, foresees: bool = False) -> None:
        self._schema = schema
        self._foresees = foresees

    @cached_property
    def _schemas(self) -> Any:
        """All schemas as one message: terraform asks for it several times a command."""
        answer = message("Schemas")(provider=schema_message(self._schema.provider))
        for name, block in self._schema.resources.items():
            answer.resource_schemas[name].CopyFrom(schema_message(block))
        for name, block in self._schema.data_sources.items():
            answer.data_source_schemas[name].CopyFrom(schema_message(block))
        return answer

    def GetProviderSchema(self, _: Any) -> Any:
        return self._schemas

    def ValidateProviderConfig(self, _: Any) -> Any:
        return message("ProviderConfigDiagnostics")()

    def ConfigureProvider(self, _: Any) -> Any:
        return message("Diagnostics")()

    def ValidateResourceConfig(self, request: Any) -> Any:
        return self._validated("resource", request)

    def ValidateDataResourceConfig(self, request: Any) -> Any:
        return self._validated("data", request)

    def UpgradeResourceState(self, request: Any) -> Any:
        return message("Upgraded")(upgraded_state=provider_schema.DYNAMIC(json=request.raw_state.json))

    def ReadResource(self, request: Any) -> Any:
        return message("ReadState")(new_state=request.current_state, private=request.private)

    def PlanResourceChange(self, request: Any) -> Any:
        block = self._schema.resources[request.type_name]
        planned = filled(block, decode(request.proposed_new_state), lambda *_: provider_schema.UNKNOWN)
        if self._foresees and planned is not None:
            planned |= dict(_foreseen(request.type_name, planned))
        return message("Planned")(planned_state=encode(planned), legacy_type_system=True)

    def ApplyResourceChange(self, request: Any) -> Any:
        applied = self._computed(self._schema.resources, request.type_name, decode(request.planned_state))
        return message("Applied")(new_state=encode(applied), legacy_type_system=True)

    def ReadDataSource(self, request: Any) -> Any:
        state = self._computed(self._schema.data_sources, request.type_name, decode(request.config))
        return message("DataState")(state=encode(state))

    def StopProvider(self, _: Any) -> Any:
        return message("Nothing")()

    def _validated(self, kind: str, request: Any) -> Any:
        configured = decode(request.config)
        diagnostics = [
            _diagnostic(*problem) for problem in problems(self._schema, kind, request.type_name, configured)
        ]
        return message("Diagnostics")(diagnostics=diagnostics)

    def _computed(self, blocks: Mapping[str, Any], name: str, planned: Any) -> Any:
        state = filled(blocks[name], planned, invented)
        if state is not None:
            state |= {key: form.format_map(state) for key, form in LIKE_GOOGLE.get(name, {}).items()}
        return state


def _foreseen(name: str, planned: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the attributes that follow from known ones."""
    known = {key: value for key, value in planned.items() if not provider_schema.is_unknown(value)}
    for key, form in LIKE_GOOGLE.get(name, {}).items():
        try:
            yield key, form.format_map(known)
        except KeyError:
            continue  # it follows from what is unknown


def _diagnostic(text: str, path: provider_schema.Path) -> Any:
    steps = [
        message("Step")(attribute_name=step)
        if isinstance(step, str)
        else message("Step")(element_key_int=step)
        for step in path
    ]
    return message("Diagnostic")(
        severity=ERROR, summary=text, attribute=message("AttributePath")(steps=steps)
    )


@contextmanager
def running(version: str, foresees: bool = False) -> Iterator[dict[str, str]]:
    """Run both providers in this process; yield the environment variables that point terraform to them.

    With `foresees` a plan has the names and addresses that are otherwise known after apply.
    """
    servers, addresses = [], {}
    try:
        for provider in PROVIDERS:
            schema = provider_schema.load(provider, version)
            server, port = _served(Provider(schema, foresees))
            servers.append(server)
            addresses[schema.source] = {
                "Protocol": "grpc",
                "ProtocolVersion": 6,
                "Pid": os.getpid(),
                "Test": True,  # terraform must not end this process
                "Addr": {"Network": "tcp", "String": f"127.0.0.1:{port}"},
            }
        yield {
            "TF_REATTACH_PROVIDERS": json.dumps(addresses),
            "TF_CLI_CONFIG_FILE": os.devnull,  # a developer's file must not change the checks
            "TF_IN_AUTOMATION": "1",
            "CHECKPOINT_DISABLE": "1",
        }
    finally:
        for server in servers:
            server.stop(0).wait()


def _served(provider: Provider) -> tuple[grpc.Server, int]:
    handlers = {name: _handler(getattr(provider, name), *kinds) for name, kinds in CALLS.items()}
    unlimited = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]
    server = grpc.server(futures.ThreadPoolExecutor(8), options=unlimited)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    return server, port


def _handler(call: Callable[[Any], Any], request: str, answer: str) -> grpc.RpcMethodHandler:
    return grpc.unary_unary_rpc_method_handler(
        lambda received, _: call(received), message(request).FromString, message(answer).SerializeToString
    )


if __name__ == "__main__":
    with running(VERSIONS[-1]) as environment:
        sys.exit(subprocess.run(sys.argv[1:], env=os.environ | environment, check=False).returncode)
