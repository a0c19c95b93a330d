"""What zones offer: the API decides, and the catalogue of this version says the rest."""

from __future__ import annotations

import threading

import pytest

from tests.flows.nodes.memory_provider import ZONE, MemoryProvider
from tpuctl import accelerators
from tpuctl.catalogue.quotas import QuotaList
from tpuctl.errors import ConfigError, DeadlineError, UsageError
from tpuctl.flows.offers import Survey, ZoneOffer, default_of, read_quotas, survey_runtimes, survey_types

LIVE = ZoneOffer("a", ("v3-8", "v9-8"), ("v2-8", "v3-8"))
SILENT = ZoneOffer("b", None, ("v3-8",))


class Provider(MemoryProvider):
    """One whose zone `us-east1-d` does not answer, and which has a zone of its own."""

    def list_zones(self) -> list[str]:
        return [ZONE, "new-zone1-a"]

    def list_accelerator_types(self, zone: str) -> list[str]:
        if zone == "us-east1-d":
            raise DeadlineError("No answer.")
        return super().list_accelerator_types(zone)


class TestZone:
    def test_that_has_answered_offers_what_the_api_lists(self) -> None:
        assert (LIVE.names, LIVE.source) == (("v3-8", "v9-8"), "API")
        assert [LIVE.offers(name) for name in ("v3-8", "v9-8", "v2-8")] == [True, True, False]

    def test_that_has_not_answered_offers_what_the_catalogue_has(self) -> None:
        assert (SILENT.names, SILENT.source) == (("v3-8",), "catalogue")
        assert SILENT.offers("v3-8") is None

    @pytest.mark.parametrize(
        ("zone", "name", "sources"),
        [
            (LIVE, "v3-8", "API, catalogue"), (LIVE, "v9-8", "API"), (LIVE, "v2-8", "catalogue"),
            (LIVE, "v4-8", ""), (SILENT, "v3-8", "catalogue"), (SILENT, "v9-8", ""),
        ],
    )  # fmt: skip
    def test_names_the_sources_of_each(self, zone: ZoneOffer, name: str, sources: str) -> None:
        assert zone.sources(name) == sources


class TestSurvey:
    def test_has_the_zones_of_a_name_by_either_source(self) -> None:
        survey = Survey((LIVE, SILENT), {})
        assert survey.of("v3-8") == (LIVE, SILENT)
        assert survey.of("v2-8") == (LIVE,)
        assert survey.of("v4-8") == ()

    def test_names_are_in_the_order_of_the_catalogue_and_others_come_last(self) -> None:
        other = ZoneOffer("c", ("v10-8", "v3-32"), ())
        assert Survey((LIVE, other, SILENT), {}).names == ["v2-8", "v3-8", "v3-32", "v10-8", "v9-8"]

    def test_of_types_asks_every_zone_of_provider_and_catalogue(self) -> None:
        survey = survey_types(Provider())
        zones = [offer.zone for offer in survey.zones]
        assert zones == sorted({*accelerators.zones(), ZONE, "new-zone1-a"})
        by_zone = {offer.zone: offer for offer in survey.zones}
        assert by_zone[ZONE].live == ("v2-8", "v3-8")
        assert {"v2-8", "v3-8", "v6e-1"} <= set(by_zone[ZONE].catalogue)
        assert "v4-8" not in by_zone[ZONE].catalogue
        assert (by_zone["new-zone1-a"].live, by_zone["new-zone1-a"].catalogue) == ((), ())
        assert by_zone["us-east1-d"].live is None
        assert survey.silent == {"us-east1-d": "No answer."}

    def test_of_one_zone_asks_no_other(self) -> None:
        survey = survey_types(Provider(), ZONE)
        assert [offer.zone for offer in survey.zones] == [ZONE]
        assert survey.silent == {}

    def test_of_runtimes_has_each_once(self) -> None:
        (offer,) = survey_runtimes(MemoryProvider(), ZONE).zones
        assert offer.live == ("image-1", "image-2")
        assert offer.catalogue == ("tpu-ubuntu2204-base", "v2-alpha-tpuv6e")

    @pytest.mark.parametrize(
        ("zone", "hint"),
        [("us-central1-bb", "Did you mean us-central1-b?"), ("mars", "'tpuctl zones' lists all.")],
    )
    def test_of_a_zone_that_nobody_knows_is_refused(self, zone: str, hint: str) -> None:
        with pytest.raises(UsageError) as refused:
            survey_types(MemoryProvider(), zone)
        assert refused.value.message == f"There is no zone '{zone}' with TPUs."
        assert (refused.value.hint, refused.value.facts) == (hint, {"zone": zone})

    def test_asks_many_zones_at_once(self) -> None:
        meeting = threading.Barrier(12)

        class Slow(MemoryProvider):
            def list_accelerator_types(self, zone: str) -> list[str]:
                if zone in first:
                    meeting.wait(60)
                return []

        first = sorted({*accelerators.zones(), ZONE})[:12]
        assert survey_types(Slow()).silent == {}


def test_quotas_that_cannot_be_read_are_none_with_the_reason() -> None:
    quotas = QuotaList((), source="Service Usage")
    assert read_quotas(lambda: quotas) is quotas

    def refuse() -> QuotaList:
        raise ConfigError("You may not read quotas.", hint="Ask for a role.")

    def fail() -> QuotaList:
        raise DeadlineError("No answer.")

    assert read_quotas(refuse) == QuotaList((), reason="You may not read quotas. Ask for a role.")
    assert read_quotas(fail).reason == "No answer."


def test_a_runtime_is_the_default_of_generations() -> None:
    assert default_of("v2-alpha-tpuv6e") == ["v6e"]
    assert default_of("tpu-ubuntu2204-base") == ["v2", "v3", "v4"]
    assert default_of("nothing") == []
