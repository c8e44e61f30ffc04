"""Tests of authenticated connections, also under attack."""

import os
import resource
import socket
import struct
import threading
from contextlib import contextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.clock import Clock
from tests.collective.threads import on_ranks, results_of
from tests.ranks.attacks import attack, connect, flood, send
from xmc_tf.ranks.channels import handshake
from xmc_tf.ranks.channels.addresses import addresses_by_host
from xmc_tf.ranks.channels.frames import frame, new_unpacker, receive
from xmc_tf.ranks.channels.handshake import StrangerError, UnansweredProofError, call, new_secret
from xmc_tf.ranks.channels.listener import MOST_HANDSHAKES, Listener

SECRET = new_secret()


class Server:
    """A listener that greets each authenticated caller with its two numbers."""

    def __init__(self):
        self.calls = []
        self.listener = Listener(["127.0.0.1"], SECRET, "test", self.welcome)
        self.address = "127.0.0.1", self.listener.ports["127.0.0.1"]

    def welcome(self, connection, caller, called):
        self.calls.append((caller, called))
        if caller == 13:
            raise ValueError("caller 13 fails")
        with connection:
            connection.sendall(frame({"caller": caller, "called": called}))

    def visit(self, caller, called=0, **options):
        with call(self.address, SECRET, "test", caller=caller, called=called, **options) as connection:
            return receive(connection, 10)


@pytest.fixture
def server():
    server = Server()
    yield server
    server.listener.close()
    with pytest.raises(ConnectionRefusedError):
        connect(server.address)


def is_closed(connection):
    """Return whether the other side closes the connection; its greeting is ignored."""
    try:
        while connection.recv(1000):
            pass
    except ConnectionResetError:
        pass
    except TimeoutError:
        return False
    return True


def test_callers_that_know_the_secret_are_handed_over_with_their_numbers(server):
    assert server.visit(3, 5) == {"caller": 3, "called": 5}
    assert server.visit(1 - 2**63, 2**63 - 1) == {"caller": 1 - 2**63, "called": 2**63 - 1}
    assert server.calls == [(3, 5), (1 - 2**63, 2**63 - 1)]


def test_garbage_and_half_open_connections_block_no_caller(server):
    with attack(server.address):
        assert [server.visit(number)["caller"] for number in range(5)] == list(range(5))
    assert server.visit(6)["caller"] == 6
    assert [caller for caller, _ in server.calls] == [0, 1, 2, 3, 4, 6]  # and no other


def test_another_secret_or_purpose_is_refused(server):
    for secret, purpose in ((new_secret(), "test"), (SECRET, "another"), (SECRET, "")):
        with pytest.raises(UnansweredProofError):
            call(server.address, secret, purpose, caller=1, patience_s=1)
    assert server.calls == []


def test_a_last_attempt_that_the_time_limit_cuts_short_hides_no_refusal(monkeypatch):
    problems, clock = [ConnectionResetError("refused"), TimeoutError("timed out")], Clock()

    def attempt(*_):
        problem = problems.pop(0)
        if not problems:
            clock.sleep(1)
        raise problem

    monkeypatch.setattr(handshake, "_attempt", attempt)
    monkeypatch.setattr(handshake, "time", clock)
    with pytest.raises(ConnectionResetError, match="refused"):
        call(("127.0.0.1", 1), SECRET, "test", caller=1, patience_s=1)
    assert problems == []


@contextmanager
def recorder(target):
    """Run a relay between one caller and a listener; yield its address and the bytes that the caller sends."""
    sent = bytearray()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def relay():
            with server.accept()[0] as caller, connect(target) as listener:

                def back():
                    while data := listener.recv(1000):
                        send(caller, data)

                thread = threading.Thread(target=back)
                thread.start()
                while len(sent) < handshake.REPLY_BYTES:
                    data = caller.recv(1000)
                    sent.extend(data)
                    listener.sendall(data)
                thread.join()

        thread = threading.Thread(target=relay)
        thread.start()
        yield server.getsockname(), sent
        thread.join()


def test_a_recorded_handshake_cannot_be_replayed(server):
    with recorder(server.address) as (address, sent), call(address, SECRET, "test", caller=7) as connection:
        assert receive(connection, 10) == {"caller": 7, "called": 0}
    assert server.calls == [(7, 0)]
    with connect(server.address) as replay:
        replay.sendall(sent)
        assert is_closed(replay)
    with connect(server.address) as replay:  # the same with the numbers of another rank
        replay.sendall(bytes(sent[:32]) + struct.pack("<qq", 8, 0) + bytes(sent[48:]))
        assert is_closed(replay)
    assert server.calls == [(7, 0)]


def test_sending_one_byte_at_a_time_does_not_extend_the_deadline(server, monkeypatch):
    monkeypatch.setattr(handshake, "HANDSHAKE_S", 0.5)
    with connect(server.address) as slow:
        slow.settimeout(0.05)
        for _ in range(handshake.REPLY_BYTES - 1):
            send(slow, b"x")
            if is_closed(slow):
                break
            assert server.visit(1)["caller"] == 1
        else:
            pytest.fail("the listener waited for all bytes")
    assert set(server.calls) <= {(1, 0)}


def test_a_listener_that_sends_one_byte_at_a_time_is_given_up(monkeypatch):
    """The caller too has one deadline for all bytes."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        over, sent = threading.Event(), []

        def drip():
            with server.accept()[0] as connection:
                while not over.wait(0.05):
                    send(connection, b"x")
                    sent.append(1)

        thread = threading.Thread(target=drip)
        thread.start()
        with pytest.raises((TimeoutError, ConnectionResetError)):  # the latter if the time ends between two attempts
            call(server.getsockname(), SECRET, "test", caller=1, patience_s=0.5)
        assert len(sent) < handshake.GREETING_BYTES
        over.set()
        thread.join()


def test_the_listener_must_know_the_secret_too():
    """An impostor at the port of a rank that has ended is refused."""
    for greeting in (b"HTTP/1.1 400 Bad Request\r\n\r\n" + bytes(100), handshake.MAGIC + bytes(32) + bytes(32)):
        with socket.create_server(("127.0.0.1", 0)) as server:

            def answer(server=server, greeting=greeting):
                with server.accept()[0] as connection:
                    connection.sendall(greeting)
                    is_closed(connection)

            thread = threading.Thread(target=answer)
            thread.start()
            with pytest.raises(StrangerError):
                call(server.getsockname(), SECRET, "test", caller=1)
            thread.join()


def test_a_flood_of_1000_connections_blocks_no_caller(server):
    with flood(server.address):
        assert [server.visit(number, patience_s=60)["caller"] for number in range(8)] == list(range(8))
        assert len(server.listener._open) <= MOST_HANDSHAKES


def test_a_failure_with_one_connection_does_not_end_the_listener(server):
    with call(server.address, SECRET, "test", caller=13) as connection:
        assert is_closed(connection)
    assert server.visit(14)["caller"] == 14


def test_a_process_without_file_descriptors_recovers(server):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with connect(server.address) as early:
        early.recv(handshake.GREETING_BYTES)
        blocked = socket.socket()
        highest = max(int(name) for name in os.listdir("/proc/self/fd"))
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1, hard))
        fillers = []
        try:
            while True:
                fillers.append(os.dup(0))
        except OSError:
            pass
        try:
            blocked.settimeout(20)
            blocked.connect(server.address)
            assert is_closed(early)  # dropped, so that another can be accepted
        finally:
            for filler in fillers:
                os.close(filler)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            blocked.close()
    assert server.visit(1)["caller"] == 1


fields = st.integers(1 - 2**63, 2**63 - 1) | st.text(max_size=30)


@given(st.lists(st.dictionaries(st.text(max_size=5), fields, max_size=5), max_size=5), st.data())
@settings(deadline=None, max_examples=50)
def test_messages_are_found_in_pieces_of_any_size(contents, data):
    sent, unpacker, found = b"".join(map(frame, contents)), new_unpacker(), []
    while sent:
        size = data.draw(st.integers(1, len(sent)))
        unpacker.feed(sent[:size])
        found += unpacker
        sent = sent[size:]
    assert found == contents


def test_ranks_of_one_host_use_the_loopback():
    def work(world):
        world.host = "here"
        return addresses_by_host(world)

    assert results_of(on_ranks(3, work)) == [{"here": "127.0.0.1"}] * 3


def test_other_hosts_get_the_address_on_the_route_to_them(monkeypatch):
    monkeypatch.delenv("HOROVOD_GLOO_IFACE", raising=False)
    monkeypatch.delenv("HOROVOD_IFACE", raising=False)
    for rank, found in enumerate(results_of(on_ranks(2, addresses_by_host))):
        assert set(found) == {"host0", "host1"}
        assert found[f"host{rank}"] == "127.0.0.1"
        for address in found.values():
            assert address not in ("", "0.0.0.0", "::")
            with socket.create_server((address, 0)):
                pass  # an address of this host
    monkeypatch.setenv("HOROVOD_GLOO_IFACE", "lo")
    assert results_of(on_ranks(2, addresses_by_host))[0] == {"host0": "127.0.0.1", "host1": "127.0.0.1"}
