"""What a retriever's user of the broker may do there, asked of a server with the command of compose.yaml."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import pytest
import redis
from celery import Celery
from celery.app.control import Control
from django.conf import settings
from kombu import Connection, Consumer, Queue
from kombu.exceptions import OperationalError
from redis.exceptions import NoPermissionError

from leaderboard.celery import app, own_settings
from leaderboard.settings.services import unacked_keys
from submissions.queue.queue import WORK
from tests.docker.compose_broker import ComposeBroker, start_compose_broker

OTHERS = ("score", "dispatch", "notices")


@pytest.fixture(scope="module")
def compose_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ComposeBroker]:
    """One for all tests of this module."""
    after: list[Callable[[], Any]] = []
    yield start_compose_broker(tmp_path_factory.mktemp("broker"), after.append)
    for each in after:
        each()


@pytest.fixture
def retriever(compose_broker: ComposeBroker) -> Iterator[redis.Redis]:
    """The server as a retriever's user sees it. It refuses loudly what is not tried on purpose."""
    compose_broker.refusals()
    with redis.Redis.from_url(compose_broker.retriever_url) as client:
        yield client
    with redis.Redis.from_url(compose_broker.site_url) as server:
        server.flushall()


def send_wakeup(url: str, queue: str) -> None:
    """Put a message into the queue, as `leaderboard.core.wakeup` does."""
    with Celery(broker=url, set_as_current=False) as producer:
        producer.conf.update(own_settings() | {"broker_url": url})
        producer.send_task(WORK, kwargs={"queue": queue}, queue=queue, retry=False, ignore_result=True, declare=[])


def test_a_retriever_sends_wakeups_everywhere_and_receives_its_own_queues(
    compose_broker: ComposeBroker, retriever: redis.Redis
) -> None:
    for queue in ("cpu", "gpu", *OTHERS):
        send_wakeup(compose_broker.retriever_url, queue)
    send_wakeup(compose_broker.site_url, "cpu")
    heard: list[Any] = []
    options = unacked_keys(compose_broker.retriever_url)
    with Connection(compose_broker.retriever_url, transport_options=options) as connection:
        channel = connection.channel()
        assert channel.queue_declare("notices").message_count == 1
        own = [Queue("cpu"), Queue("gpu")]
        with Consumer(channel, own, callbacks=[lambda body, message: heard.append(message)], accept=["json"]):
            while len(heard) < 3:
                connection.drain_events(timeout=10)
        heard[0].ack()
        heard[1].requeue()
        channel.qos.restore_visible(interval=1)  # what a worker that died had taken, under a lock
    assert retriever.llen("cpu") + retriever.llen("gpu") == 2  # the connection gave back what was not answered for
    assert compose_broker.refusals() == []


def refused_commands(client: redis.Redis) -> list[Callable[[], Any]]:
    """What is no business of retrievers."""
    pages = [
        lambda: client.get("runboard:1:page:1"),
        lambda: client.set("runboard:1:page:1", b"forged"),
        lambda: client.lpush("runboard:1:page:1", b"forged"),
        lambda: client.delete("runboard:1:throttle_anon"),
        lambda: client.evalsha("0" * 40, 1, "runboard:1:page:1"),
    ]
    others = [
        call
        for queue in OTHERS
        for call in (
            lambda queue=queue: client.lrange(queue, 0, -1),
            lambda queue=queue: client.brpop(queue, 1),
        )
    ]
    server = [
        ("CONFIG", "GET", "requirepass"), ("ACL", "LIST"), ("KEYS", "*"), ("SCAN", "0"), ("INFO",), ("MONITOR",),
        ("CLIENT", "LIST"), ("FLUSHALL",), ("SHUTDOWN", "NOSAVE"), ("MODULE", "LIST"), ("EVAL", "return 1", "0"),
        ("FUNCTION", "LIST"), ("PUBLISH", "/0.celery.pidbox", "x"), ("SUBSCRIBE", "/0.celery.pidbox"),
        ("RENAME", "cpu", "gpu"), ("DUMP", "cpu"), ("RANDOMKEY",), ("SCRIPT", "FLUSH"),
        ("SADD", "_kombu.binding.celery.pidbox", "x"), ("SADD", "_kombu.binding.score", "x"),
    ]  # fmt: skip
    # A key of another type would end every worker that reads it as a queue.
    server += [
        ("SET", "score", "x"), ("SET", "cpu", "x"), ("DEL", "score"), ("DEL", "dispatch"), ("SADD", "notices", "x"),
        ("HSET", "score\x06\x163", "a", "b"), ("ZADD", "dispatch", "1", "x"), ("RPUSH", "score", "x"),
        ("SADD", "unacked:retriever", "x"), ("ZADD", "unacked:retriever", "1", "x"), ("RENAME", "cpu", "score"),
    ]  # fmt: skip
    return pages + others + [lambda words=words: client.execute_command(*words) for words in server]


def test_a_retriever_reaches_no_page_no_other_queue_and_no_channel(
    compose_broker: ComposeBroker, retriever: redis.Redis
) -> None:
    send_wakeup(compose_broker.site_url, "score")
    for call in refused_commands(retriever):
        with pytest.raises(NoPermissionError):
            call()


def test_a_retriever_has_nothing_put_back_by_workers_of_the_site(
    compose_broker: ComposeBroker, retriever: redis.Redis
) -> None:
    """A worker puts back what nobody answered for, into the key that the entry names, with its own user's rights."""
    place, routed = "runboard:1:throttle_anon", {"exchange": "", "routing_key": "runboard:1:throttle_anon"}
    properties = {"delivery_tag": "1", "delivery_info": routed, "priority": 0}
    entry = json.dumps([{"body": "e30=", "headers": {}, "properties": properties}, "", place])
    own = unacked_keys(compose_broker.retriever_url)
    for keys, allowed in ((own, True), (unacked_keys(compose_broker.site_url), False)):
        with nullcontext() if allowed else pytest.raises(NoPermissionError):
            retriever.hset(keys["unacked_key"], "1", entry)
        with nullcontext() if allowed else pytest.raises(NoPermissionError):
            retriever.zadd(keys["unacked_index_key"], {"1": 1.0})
    site = unacked_keys(compose_broker.site_url)
    with Connection(compose_broker.site_url, transport_options=site) as connection:
        connection.channel().qos.restore_visible(interval=1)
    with redis.Redis.from_url(compose_broker.site_url) as server:
        assert not server.exists(place)
    with (
        Connection(compose_broker.retriever_url, transport_options=own) as connection,
        pytest.raises(NoPermissionError),
    ):
        connection.channel().qos.restore_visible(interval=1)


@pytest.mark.parametrize("question", ["ping", "conf", "shutdown"])
def test_a_retriever_sends_no_question_to_workers(
    compose_broker: ComposeBroker, retriever: redis.Redis, question: str
) -> None:
    with Celery(broker=compose_broker.retriever_url, set_as_current=False) as asker:
        ask: Callable[[Control], Any] = {
            "ping": lambda control: control.ping(timeout=1),
            "conf": lambda control: control.inspect(timeout=1).conf(),
            "shutdown": lambda control: control.shutdown(),
        }[question]
        with pytest.raises((NoPermissionError, OperationalError)):
            ask(asker.control)
    assert any("pidbox" in each or "publish" in each for each in compose_broker.refusals())


def test_celery_knows_its_own_settings_alone() -> None:
    known = app.conf.table(with_defaults=True, censored=False)
    assert known["broker_url"] == settings.REDIS_URL
    assert "SECRET_KEY" not in known
    assert settings.SECRET_KEY not in str(known)
    own = {name for name in dir(settings) if name.isupper() and not name.startswith("CELERY_")}
    assert own & set(known) == set()
    assert own_settings().keys() == {
        name.removeprefix("CELERY_").lower() for name in dir(settings) if name.startswith("CELERY_")
    }
