"""Routes that only look: pipelines, graph, epochs, state, changes, events."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from typing import IO, Annotated

from fastapi import APIRouter, Depends, Path, Query
from fastapi.responses import StreamingResponse

from midstream.control import models, views
from midstream.control.access import Access, Here, reader
from midstream.control.hub import encode
from midstream.control.models import StepId
from midstream.control.problems import RESPONSES
from midstream.control.statepages import rows_of, tables_of
from midstream.errors import ChangeError, CheckpointError
from midstream.state.browse import export, table_of

Number = Annotated[int, Path(ge=1, le=2**53)]
EpochNumber = Annotated[int | None, Query(ge=0, le=2**53, description="Any that is retained; the last unless given.")]
TableName = Annotated[str | None, Query(max_length=128, description="The step's first table unless given.")]

router = APIRouter(prefix="/v1/pipelines/{name}", responses=RESPONSES, dependencies=[Depends(reader)])


@router.get("", summary="What a pipeline is and how it is doing")
def one(served: Here, access: Annotated[Access, Depends(reader)]) -> models.Pipeline:
    return served.pipeline(access.role)


@router.get("/graph", summary="The running graph with the last figures of each step")
def graph(served: Here) -> models.Graph:
    return served.graph()


@router.get("/steps")
def steps(served: Here) -> list[models.Step]:
    return served.graph().steps


@router.get("/steps/{step}")
def step(served: Here, step: StepId) -> models.Step:
    found = {step.id: step for step in served.graph().steps}
    if step not in found:
        raise ChangeError.unknown_step("look at a step", step, list(found))
    return found[step]


@router.get("/epochs", summary="The last epochs, oldest first")
def epochs(served: Here, last: Annotated[int, Query(ge=1, le=1000)] = 100) -> list[models.Epoch]:
    return [views.epoch(report) for report in served.run.epochs(last)]


@router.get("/changes", summary="Changes handed in, oldest first")
def changes(served: Here, last: Annotated[int, Query(ge=1, le=1000)] = 100) -> list[models.Modification]:
    return [views.modification(entry, served.run) for entry in served.run.history()[-last:]]


@router.get("/changes/{id}", summary="How far a change is, and the code that came with it")
def change(served: Here, id: Number) -> models.ModificationDetails:
    return views.details(served.run.change(id), served.run)


@router.get("/history", summary="Every change ever handed in, with its code")
def history(served: Here) -> list[models.ModificationDetails]:
    return [views.details(entry, served.run) for entry in served.run.history()]


@router.get("/shadows")
def shadows(served: Here) -> list[models.Shadow]:
    return served.shadows()


@router.get("/shadows/{shadow}")
def shadow(served: Here, shadow: Annotated[str, Path(max_length=64)]) -> models.Shadow:
    served.shadow(shadow)
    return next(found for found in served.shadows() if found.name == shadow)


@router.get("/state", summary="The tables of state there are")
def tables(served: Here) -> models.StateTables:
    return tables_of(served.run.manifest(), served.run.retained_epochs())


@router.get("/state/{step}", summary="Rows of a table of state at any retained epoch")
def rows(
    served: Here,
    step: StepId,
    table: TableName = None,
    epoch: EpochNumber = None,
    where: Annotated[list[str], Query(max_length=20, description="column=value; all must hold.")] = [],  # noqa: B006
    limit: Annotated[int, Query(ge=0, le=10_000)] = 100,
    offset: Annotated[int, Query(ge=0, le=2**53)] = 0,
) -> models.StateRows:
    manifest = served.run.manifest(epoch)
    return rows_of(served.run.store, manifest, step, table, filters(where), limit, offset)


@router.get(
    "/state/{step}/export",
    summary="A table of state as a Parquet file",
    response_class=StreamingResponse,
    responses={200: {"content": {"application/vnd.apache.parquet": {}}}},
)
def exported(
    served: Here,
    step: StepId,
    table: TableName = None,
    epoch: EpochNumber = None,
    where: Annotated[list[str], Query(max_length=20)] = [],  # noqa: B006
) -> StreamingResponse:
    manifest = served.run.manifest(epoch)
    name, _ = table_of(manifest, step, table)
    # On disk first: a file that breaks off in the middle would look like one.
    file = tempfile.TemporaryFile()  # noqa: SIM115, closed when all of it is sent
    for _ in export(served.run.store, manifest, step, table, file, filters(where)):
        pass
    size = file.tell()
    headers = {
        "Content-Disposition": f'attachment; filename="{step}-{name}-{manifest.epoch}.parquet"',
        "Content-Length": str(size),
    }
    return StreamingResponse(_chunks(file), media_type="application/vnd.apache.parquet", headers=headers)


@router.get(
    "/events",
    summary="Everything that happens, as server-sent events",
    response_class=StreamingResponse,
    responses={200: {"content": {"text/event-stream": {}}}},
)
async def events(served: Here, access: Annotated[Access, Depends(reader)]) -> StreamingResponse:
    hello = await asyncio.to_thread(served.pipeline, access.role)
    return StreamingResponse(served.hub.watch(encode("hello", hello)), media_type="text/event-stream")


def filters(where: list[str]) -> dict[str, str]:
    found = {}
    for text in where:
        column, equals, value = text.partition("=")
        if not equals:
            raise CheckpointError.bad_where(text)
        found[column] = value
    return found


def _chunks(file: IO[bytes]) -> Iterator[bytes]:
    with file:
        file.seek(0)
        while chunk := file.read(1 << 20):
            yield chunk
