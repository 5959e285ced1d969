"""Judging probes: the rules that do not differ between engines."""

from headrace.engines.contract import ProbeReply, ProbeVerdict


def judge(reply: ProbeReply, *, is_path_optional: bool = False) -> ProbeVerdict:
    """Judge a reply to a readiness path.

    1. No answer in time is BUSY: an engine under full load answers late, and evicting it makes the load worse.
    2. A refused or broken connection is DEAD: nothing listens.
    3. 2xx is READY.
    4. 503 and 429 are LOADING: something listens and says that it is not ready (starting, paused or leaving).
    5. 401 and 403 are READY: it is alive; that the credentials are wrong shows at the first request.
    6. 404 is READY where versions without the path are known: they serve, and cannot say more cheaply.
    7. Any other status is DEAD: whatever listens there does not serve.
    """
    if reply.is_timeout:
        return ProbeVerdict.BUSY
    if reply.is_refused or reply.status is None:
        return ProbeVerdict.DEAD
    if 200 <= reply.status < 300 or reply.status in (401, 403):
        return ProbeVerdict.READY
    if reply.status in (429, 503):
        return ProbeVerdict.LOADING
    if reply.status == 404 and is_path_optional:
        return ProbeVerdict.READY
    return ProbeVerdict.DEAD
