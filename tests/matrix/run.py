"""Run one fault with one seed, and compare the result with tarfile, the server's log and the statistics."""

from __future__ import annotations

import contextlib
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import ais_tar2tf as t2t
from ais_tar2tf.base.monitoring.stats import Stats
from ais_tar2tf.errors import Tar2TFError
from ais_tar2tf.options import Limits, Retry, Timeouts
from ais_tar2tf.streams.reader import ReadSession
from tests.matrix.catalogue import FAULTS
from tests.matrix.scene import CANARY, PUBLIC, SHARDS, RecordBytes, Scene, Setup, credentials, gzipped, records, shard
from tests.support.leftovers import our_threads

__all__ = ["Outcome", "run"]

_PIECE = 16 * 1024  # bytes in each range request if there are several connections
EXACT = "exact"


@dataclass
class Outcome:
    """The result and the statistics of a run that passed."""

    result: str  # "exact", or the name of the error
    retries: int
    resumes: int
    skipped: bool  # the error was counted, and reading continued
    stalls: list[float] = field(
        default_factory=list[float]
    )  # for each stall, the seconds from the idle time-out to its detection


def run(fault: str, way: str, seed: int) -> Outcome:
    """Run one fault.

    Raises:
        AssertionError: The run ended neither with the exact records nor with one allowed error, or the statistics
            do not match the requests.
    """
    try:
        with credentials(public=way == PUBLIC), contextlib.ExitStack() as stack:
            scene = Scene(way, seed, fault, stack)
            return _run(scene, FAULTS[fault](scene))
    except Exception as error:
        raise AssertionError(
            f"python -m tests.matrix --only {fault!r} --way {way} --seed {seed}: {type(error).__name__}: {error}"
        ) from error


def _run(scene: Scene, setup: Setup) -> Outcome:
    _fill(scene, setup)
    threads = our_threads()
    caught: list[Tar2TFError] = []
    skips = not setup.server_fails and scene.draw.random() < 0.5
    source = _opened(scene, setup, (lambda error: caught.append(error) or True) if skips else "raise")
    with source:
        found = _read(source.records(), caught)
        text = repr(source) + repr(source.stats)
    _check_end(scene, setup, caught)
    _check_records(scene, setup, found, bool(caught), skips)
    _check_stats(scene, source.stats, len(found), caught, skips)
    _check_requests(scene, setup, source.stats)
    _check_secrets(scene, text, caught)
    assert our_threads() <= threads, "a thread is left"
    for server in (scene.server, *scene.others):
        server.wait_until_no_client()
    result = type(caught[0]).__name__ if caught else EXACT
    stalls = [seconds - setup.idle for seconds in scene.server.stalls]
    return Outcome(result, source.stats.retries, source.stats.resumes, skips and bool(caught), stalls)


def _fill(scene: Scene, setup: Setup) -> None:
    for number in range(SHARDS):
        data = (gzipped if scene.zipped else shard)(number)
        broken = number == scene.faulty
        thing = setup.thing if broken and setup.thing is not None else scene.thing(data)
        scene.server.add(scene.name(number), thing, setup.faults if broken else ())
    scene.server.script[scene.first_request(scene.faulty)].extend(setup.first_server)


def _opened(scene: Scene, setup: Setup, on_error: Any) -> t2t.Source:
    connections = setup.connections or scene.connections
    tokens = iter([CANARY, f"{CANARY}-2"])
    token: Any = (lambda: next(tokens)) if setup.token_renewed else CANARY
    options: dict[str, Any] = {} if scene.way == "http" else {"endpoint": scene.server.url}
    if scene.way == "ais":
        options["token"] = token
    source = t2t.open(
        scene.template(),
        on_error=on_error,
        retry=Retry(attempts=setup.attempts, first_delay=0.001, max_delay=0.01),
        timeouts=Timeouts(connect=5, idle=setup.idle),
        limits=Limits(member_bytes=setup.member_bytes) if setup.member_bytes else None,
        connections=connections,
        **options,
    )
    opened = source.opened
    shards = replace(opened.shards, read=replace(opened.shards.read, range_bytes=_PIECE))
    source.opened = replace(opened, session=ReadSession(shards))
    return source


def _read(coming: Iterator[dict[str, Any]], caught: list[Tar2TFError]) -> list[RecordBytes]:
    found: list[RecordBytes] = []
    try:
        found.extend((record["__key__"], record.get("bin", b"")) for record in coming)
    except Tar2TFError as error:
        caught.append(error)
    assert next(coming, None) is None, "a record came after the end"
    return found


def _check_end(scene: Scene, setup: Setup, caught: list[Tar2TFError]) -> None:
    assert len(caught) <= 1, f"{len(caught)} errors: {caught}"
    if not caught:
        assert not setup.errors or setup.may_be_exact, "no error was raised"
        return
    error = caught[0]
    assert type(error) in setup.errors or (setup.damaged and isinstance(error, setup.errors)), repr(error)
    name = scene.name(scene.faulty).removeprefix("bucket/")
    assert setup.server_fails or name in str(error), f"it does not name {name}: {error}"


def _check_records(scene: Scene, setup: Setup, found: list[RecordBytes], failed: bool, skips: bool) -> None:
    """Check that all records before the failure and after the failed shard are exact, and no record is damaged."""
    expected = [records(number) for number in range(SHARDS)]
    if not failed:
        assert found == sum(expected, []), "not the exact records"  # noqa: RUF017  # three short lists
        return
    before = sum(expected[: scene.faulty], [])  # noqa: RUF017
    after = sum(expected[scene.faulty + 1 :], []) if skips else []  # noqa: RUF017
    stop = len(found) - len(after)
    if setup.server_fails:  # the failure may come before the faulty shard
        before = before[: len(found)]
    assert found[: len(before)] == before, "records before the failure are not exact"
    assert found[stop:] == after, "records after the failure are not exact"
    part = found[len(before) : stop]
    if not setup.damaged:
        assert part == expected[scene.faulty][: len(part)], "records of the shard that failed are not exact"


def _check_stats(scene: Scene, stats: Stats, emitted: int, caught: list[Tar2TFError], skips: bool) -> None:
    skipped = Counter(type(error).__name__ for error in caught) if skips else Counter[str]()
    assert stats.skipped == skipped, stats
    assert stats.records_emitted == emitted, stats
    assert stats.records_read == emitted + skipped.total(), stats
    assert stats.shards == SHARDS if skips or not caught else 1 <= stats.shards <= SHARDS, stats
    if not caught:
        assert stats.bytes == sum(len(scene.server.objects[scene.name(number)].data) for number in range(SHARDS))


def _check_requests(scene: Scene, setup: Setup, stats: Stats) -> None:
    """Check that the statistics count every request but the first of each shard as a retry."""
    assert stats.resumes <= stats.retries, stats
    one_by_one = (setup.connections or scene.connections) == 1
    ranges = any(each.range and not each.range.startswith("bytes=0-") for each in scene.server.requests)
    assert one_by_one or ranges or setup.errors, "no second range was requested"
    if not one_by_one or setup.first_server or setup.server_fails or not setup.counted:
        return
    names = {f"/{scene.name(number)}" for number in range(SHARDS)}
    requests = [each for each in scene.server.requests if _is_for_bytes(each.target, names) and each.method == "GET"]
    opened = len({each.target.partition("?")[0] for each in requests})
    again = len(requests) - opened - scene.server.closed_unanswered
    assert stats.retries == again, (
        f"{len(requests)} requests for {opened} shards, {scene.server.closed_unanswered} unanswered: {stats}"
    )
    resumed = sum(1 for each in requests if each.range is not None)
    if scene.server.objects[scene.name(scene.faulty)].headers.keys() & {"ETag", "Ais-Version"}:
        assert stats.resumes == resumed, f"{resumed} resumed: {stats}"
    else:  # without a validator, a broken download starts again from the beginning
        assert not resumed
        assert stats.resumes <= stats.retries


def _is_for_bytes(target: str, names: set[str]) -> bool:
    path, _, query = target.partition("?")
    return "pid=" in query if path.startswith("/v1/objects/") else path in names


def _check_secrets(scene: Scene, text: str, caught: list[Tar2TFError]) -> None:
    for error in caught:
        text += f"{error}{error!r}{error.args}{error.__dict__}" + "".join(traceback.format_exception(error))
    for secret in (CANARY, "a-secret", "X-Amz-Signature", "utm=1"):
        assert secret not in text, f"{secret} is shown: {text}"
    for server in scene.others:
        assert all(CANARY not in str(each.headers) + each.target for each in server.requests), (
            "the token was sent to another server"
        )
