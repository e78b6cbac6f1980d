"""Routes that change something. All of them are the operator's: a change is code that will be run."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Response

from midstream.control import models, views
from midstream.control.access import Access, Here, operator
from midstream.control.models import ChangeRequest, UndoRequest
from midstream.control.problems import RESPONSES
from midstream.control.watching import Number
from midstream.engine.changelog import Origin

ShadowName = Annotated[str, Path(max_length=64)]
Who = Annotated[Access, Depends(operator)]

router = APIRouter(prefix="/v1/pipelines/{name}", responses=RESPONSES, dependencies=[Depends(operator)])


@router.post("/plan", summary="What a change would do, without doing it")
def plan(served: Here, who: Who, request: ChangeRequest) -> models.Verdict:
    served.require_running()
    change, _ = served.change(request, who.by, "plan")
    return views.verdict(served.run.plan(change))


@router.post("/changes", status_code=202, summary="Change the pipeline at the next epoch boundary")
def submit(served: Here, who: Who, request: ChangeRequest, response: Response) -> models.Modification:
    served.require_running()
    change, origin = served.change(request, who.by, "change")
    submitted = served.run.apply(
        change,
        wait=False,
        allow_state_loss=request.allow_state_loss,
        time_limit=request.time_limit,
        origin=origin,
    )
    response.headers["Location"] = f"/v1/pipelines/{served.name}/changes/{submitted.id}"
    return served.modification(submitted.id)


@router.delete("/changes/{id}", summary="Drop a change that is not being applied yet")
def cancel(served: Here, id: Number) -> models.Modification:
    served.require_running()
    served.run.cancel(id)
    return served.modification(id)


@router.post("/undo", status_code=202, summary="Take a change back")
def undo(served: Here, who: Who, request: UndoRequest, response: Response) -> models.Modification:
    served.require_running()
    origin = Origin(who.by, request.id)
    submitted = served.run.undo(
        request.modification, wait=False, allow_state_loss=request.allow_state_loss, origin=origin
    )
    response.headers["Location"] = f"/v1/pipelines/{served.name}/changes/{submitted.id}"
    return served.modification(submitted.id)


@router.post("/shadows", status_code=201, summary="Run a change beside the pipeline and compare")
def shadow(served: Here, who: Who, request: ChangeRequest) -> models.Shadow:
    served.require_running()
    return served.start_shadow(request, who.by)


@router.post("/shadows/{shadow}/promote", status_code=202, summary="Make a shadow the plan, with its state")
def promote(served: Here, shadow: ShadowName) -> models.Modification:
    served.require_running()
    return served.modification(served.shadow(shadow).promote(wait=False).id)


@router.delete("/shadows/{shadow}", status_code=204, summary="End a shadow and leave nothing behind")
def discard(served: Here, shadow: ShadowName) -> None:
    served.discard(shadow)


@router.post("/stop", status_code=202, summary="End the pipeline; the epoch under way is committed first")
def stop(served: Here, who: Who) -> models.PipelineSummary:
    served.stop(who.by)
    return served.summary()
