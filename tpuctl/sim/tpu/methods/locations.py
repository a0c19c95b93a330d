"""The methods that show what projects and zones offer."""

from __future__ import annotations

from google.cloud.location import locations_pb2
from google.protobuf.message import Message

from tpuctl.sim.accounts import project_number
from tpuctl.sim.tpu import messages
from tpuctl.sim.tpu.methods.group import Method, MethodGroup, filtered_page
from tpuctl.sim.tpu.methods.request_fields import FilteredListRequest, NameRequest, ParentRequest
from tpuctl.sim.world import api_error, names
from tpuctl.sim.world.capacity import availability


class LocationMethods(MethodGroup):
    """The methods that show what projects and zones offer."""

    def table(self) -> dict[str, Method]:
        return {
            "GenerateServiceIdentity": self._generate_service_identity,
            "GetAcceleratorType": self._get_accelerator_type,
            "ListAcceleratorTypes": self._list_accelerator_types,
            "GetRuntimeVersion": self._get_runtime_version,
            "ListRuntimeVersions": self._list_runtime_versions,
            "GetLocation": self._get_location,
            "ListLocations": self._list_locations,
        }

    async def _generate_service_identity(self, request: ParentRequest) -> Message:
        """The name of a project's service agent: Google's list of service agents."""
        number = project_number(names.parse(request.parent).project)
        email = f"service-{number}@cloud-tpu.iam.gserviceaccount.com"
        return self._messages.new("GenerateServiceIdentityResponse", identity={"email": email})

    async def _get_accelerator_type(self, request: NameRequest) -> Message:
        names.require_collection(request.name, "acceleratorTypes")
        name = names.parse(request.name)
        offered = availability.accelerator_types(name.zone)
        if name.id not in offered:
            raise api_error("not_found", name=request.name)
        return self._messages.accelerator_type(name.parent, offered[name.id])

    async def _list_accelerator_types(self, request: FilteredListRequest) -> Message:
        offered = availability.accelerator_types(names.parse(request.parent).zone)
        listed, next_token = filtered_page(
            request,
            {
                name: self._messages.accelerator_type(request.parent, accelerator)
                for name, accelerator in offered.items()
            },
        )
        return self._messages.new(
            "ListAcceleratorTypesResponse", accelerator_types=listed, next_page_token=next_token
        )

    async def _get_runtime_version(self, request: NameRequest) -> Message:
        names.require_collection(request.name, "runtimeVersions")
        name = names.parse(request.name)
        if name.id not in availability.RUNTIME_VERSIONS:
            raise api_error("not_found", name=request.name)
        return self._messages.runtime_version(name.parent, name.id)

    async def _list_runtime_versions(self, request: FilteredListRequest) -> Message:
        listed, next_token = filtered_page(
            request,
            {
                version: self._messages.runtime_version(request.parent, version)
                for version in availability.RUNTIME_VERSIONS
            },
        )
        return self._messages.new(
            "ListRuntimeVersionsResponse", runtime_versions=listed, next_page_token=next_token
        )

    async def _get_location(self, request: locations_pb2.GetLocationRequest) -> Message:
        name = names.parse(request.name)
        location: Message = messages.location(name.project, name.zone)
        return location

    async def _list_locations(self, request: locations_pb2.ListLocationsRequest) -> Message:
        project = names.parse(request.name).project
        by_zone = {zone: messages.location(project, zone) for zone in availability.zones()}
        listed, next_token = filtered_page(request, by_zone)
        response: Message = locations_pb2.ListLocationsResponse(locations=listed, next_page_token=next_token)
        return response
