"""Two uploads of one version at once: one wins, or both succeed with the same."""

from __future__ import annotations

import threading
from pathlib import Path

from tests.flows.datasets.pets import PETS, exists, plan_pets, send
from tpuctl.cloud.endpoints import connect
from tpuctl.cloud.storage import Bucket
from tpuctl.config import load
from tpuctl.errors import ConflictError, TpuctlError
from tpuctl.flows.datasets.conversion import ConversionProgress
from tpuctl.flows.datasets.lookup import find_manifest
from tpuctl.flows.datasets.upload import Uploaded, upload


def test_of_two_uploads_at_once_one_wins_and_the_other_says_so(bucket: Bucket, pictures: Path) -> None:
    """Both are past their own look for a dataset when either begins to send."""
    results: dict[int, object] = {}
    met = threading.Barrier(2)

    def upload_it(seed: int) -> None:
        cloud = connect(load({}))
        waited: list[ConversionProgress] = []

        def wait_for_the_other(progress: ConversionProgress) -> None:
            if progress.records == 8 and not waited:
                waited.append(progress)
                met.wait(60)

        try:
            results[seed] = upload(cloud.bucket, plan_pets(pictures, seed=seed), wait_for_the_other)
        except TpuctlError as error:
            results[seed] = error
        cloud.close()

    threads = [threading.Thread(target=upload_it, args=(seed,), daemon=True) for seed in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (won,) = (result for result in results.values() if isinstance(result, Uploaded))
    (lost,) = (error for error in results.values() if isinstance(error, ConflictError))
    assert "Version 1.0.0 of the dataset 'pets' exists with other content" in lost.message
    assert find_manifest(bucket, PETS) == won.manifest
    assert exists(bucket)


def test_two_uploads_of_the_same_at_once_both_succeed(bucket: Bucket, pictures: Path) -> None:
    results: list[object] = []

    def upload_it() -> None:
        cloud = connect(load({}))
        try:
            results.append(send(cloud.bucket, plan_pets(pictures)).manifest)
        except TpuctlError as error:
            results.append(error)
        cloud.close()

    threads = [threading.Thread(target=upload_it, daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [find_manifest(bucket, PETS)] * 2
    assert exists(bucket)
