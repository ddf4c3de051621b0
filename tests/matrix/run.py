"""One run: a fault, a way, a seed; held against tarfile's reading, the server's log and the account."""

from __future__ import annotations

import contextlib
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import ais_tar2tf as t2t
from ais_tar2tf.account import Stats
from ais_tar2tf.errors import Tar2TFError
from ais_tar2tf.options import Limits, Retry, Timeouts
from tests.leftovers import our_threads
from tests.matrix.catalogue import FAULTS
from tests.matrix.scene import CANARY, PUBLIC, SHARDS, Scene, Setup, Told, credentials, gzipped, records, shard

__all__ = ["Outcome", "run"]

_PIECE = 16 * 1024  # bytes asked for at once where there are several connections
EXACT = "exact"


@dataclass
class Outcome:
    """Of one run, proved."""

    what: str  # "exact", or the name of the error
    retries: int
    resumes: int
    skipped: bool  # the error was counted, and reading went on
    stalls: list[float] = field(default_factory=list[float])  # seconds beyond the idle time-out until found


def run(fault: str, way: str, seed: int) -> Outcome:
    """Raises AssertionError where it ends in anything but the exact bytes or one typed error, or does not add up."""
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
    goes_on = not setup.everything and scene.draw.random() < 0.5
    source = _opened(scene, setup, (lambda error: caught.append(error) or True) if goes_on else "raise")
    with source:
        found = _read(source.records(), caught)
        text = repr(source) + repr(source.stats)
    _check_end(scene, setup, caught)
    _check_records(scene, setup, found, bool(caught), goes_on)
    _check_account(scene, source.stats, len(found), caught, goes_on)
    _check_requests(scene, setup, source.stats)
    _check_secrets(scene, text, caught)
    assert our_threads() <= threads, "a thread is left"
    for server in (scene.server, *scene.others):
        server.wait_until_left()
    what = type(caught[0]).__name__ if caught else EXACT
    stalls = [seconds - setup.idle for seconds in scene.server.stalls]
    return Outcome(what, source.stats.retries, source.stats.resumes, goes_on and bool(caught), stalls)


def _fill(scene: Scene, setup: Setup) -> None:
    for number in range(SHARDS):
        data = (gzipped if scene.zipped else shard)(number)
        broken = number == scene.faulty
        thing = setup.thing if broken and setup.thing is not None else scene.thing(data)
        scene.server.add(scene.name(number), thing, setup.faults if broken else ())
    scene.server.script[scene.door(scene.faulty)].extend(setup.at_door)


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
    source._shards = replace(source._shards, read=replace(source._shards.read, range_bytes=_PIECE), tuning=None)
    return source


def _read(coming: Iterator[dict[str, Any]], caught: list[Tar2TFError]) -> list[Told]:
    found: list[Told] = []
    try:
        found.extend((record["__key__"], record.get("bin", b"")) for record in coming)
    except Tar2TFError as error:
        caught.append(error)
    assert next(coming, None) is None, "a record came behind the end"
    return found


def _check_end(scene: Scene, setup: Setup, caught: list[Tar2TFError]) -> None:
    assert len(caught) <= 1, f"{len(caught)} errors: {caught}"
    if not caught:
        assert not setup.errors or setup.may_be_exact, "no error came"
        return
    error = caught[0]
    assert type(error) in setup.errors or (setup.damaged and isinstance(error, setup.errors)), repr(error)
    name = scene.name(scene.faulty).removeprefix("bucket/")
    assert setup.everything or name in str(error), f"it does not name {name}: {error}"


def _check_records(scene: Scene, setup: Setup, found: list[Told], failed: bool, goes_on: bool) -> None:
    """Those of the whole shards exactly; of the one that failed what came before the failure."""
    expected = [records(number) for number in range(SHARDS)]
    if not failed:
        assert found == sum(expected, []), "not the exact records"  # noqa: RUF017  # three short ones
        return
    before = sum(expected[: scene.faulty], [])  # noqa: RUF017
    behind = sum(expected[scene.faulty + 1 :], []) if goes_on else []  # noqa: RUF017
    stop = len(found) - len(behind)
    if setup.everything:  # it may fail before the shard that was drawn
        before = before[: len(found)]
    assert found[: len(before)] == before, "records before the failure are not exact"
    assert found[stop:] == behind, "records behind the failure are not exact"
    part = found[len(before) : stop]
    if not setup.damaged:
        assert part == expected[scene.faulty][: len(part)], "records of the shard that failed are not exact"


def _check_account(scene: Scene, stats: Stats, emitted: int, caught: list[Tar2TFError], goes_on: bool) -> None:
    skipped = Counter(type(error).__name__ for error in caught) if goes_on else Counter[str]()
    assert stats.skipped == skipped, stats
    assert stats.records_emitted == emitted, stats
    assert stats.records_read == emitted + skipped.total(), stats
    assert stats.shards == SHARDS if goes_on or not caught else 1 <= stats.shards <= SHARDS, stats
    if not caught:
        assert stats.bytes == sum(len(scene.server.things[scene.name(number)].data) for number in range(SHARDS))


def _check_requests(scene: Scene, setup: Setup, stats: Stats) -> None:
    """Every request that the server saw is a shard's first one, or stands in the account as made again."""
    assert stats.resumes <= stats.retries, stats
    one_by_one = (setup.connections or scene.connections) == 1
    behind = any(each.range and not each.range.startswith("bytes=0-") for each in scene.server.requests)
    assert one_by_one or behind or setup.errors, "no second range was asked for"
    if not one_by_one or setup.at_door or setup.everything or not setup.counted:
        return
    names = {f"/{scene.name(number)}" for number in range(SHARDS)}
    asked = [each for each in scene.server.requests if _is_for_bytes(each.target, names) and each.method == "GET"]
    opened = len({each.target.partition("?")[0] for each in asked})
    again = len(asked) - opened - scene.server.hung_up
    assert stats.retries == again, (
        f"{len(asked)} requests for {opened} shards, {scene.server.hung_up} hung up: {stats}"
    )
    resumed = sum(1 for each in asked if each.range is not None)
    if scene.server.things[scene.name(scene.faulty)].stated.keys() & {"ETag", "Ais-Version"}:
        assert stats.resumes == resumed, f"{resumed} resumed: {stats}"
    else:  # without a validator the shard is asked for from its start again, also when its body broke off
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
            "the token went elsewhere"
        )
