"""Tests of authenticated connections, also under attack."""

import socket
import threading
from multiprocessing.connection import answer_challenge, deliver_challenge

import pytest

from tests.ranks.attacks import attack
from xmc_tf.ranks import channels
from xmc_tf.ranks.channels import ANYWHERE, LOOPBACK, Channel, Listener, StrangerError, address_towards, connect

SECRET, OTHER = bytes(32), bytes(range(32))


@pytest.fixture
def greeter():
    """Yield the address of a listener that answers each authenticated caller with its number."""

    def welcome(channel):
        number = channel.receive(20)["number"]
        if number == 13:
            raise ValueError("caller 13 fails")
        channel.send(number=number, text="\udcff", data=b"x" * number)

    listener = Listener(LOOPBACK, SECRET, welcome)
    yield listener
    listener.close()
    with pytest.raises(ConnectionRefusedError):
        connect(listener.address, SECRET)


def visit(listener, number):
    with connect(listener.address, SECRET, patience_s=60) as channel:
        channel.send(number=number)
        return channel.receive(20)


def test_messages_of_callers_that_know_the_secret_arrive_whole(greeter):
    for number in (3, 1_000_000):
        assert visit(greeter, number) == {"number": number, "text": "\udcff", "data": b"x" * number}
    with pytest.raises(ConnectionResetError):
        visit(greeter, 13)
    assert visit(greeter, 14)["number"] == 14


def test_garbage_and_half_open_connections_block_no_caller(greeter):
    with attack(greeter.address):
        assert [visit(greeter, number)["number"] for number in range(5)] == list(range(5))


def test_both_sides_must_know_the_secret(greeter):
    with pytest.raises(StrangerError):
        connect(greeter.address, OTHER)
    with socket.create_server((LOOPBACK, 0)) as server:  # an impostor, which learns nothing and proves nothing

        def pose():
            impostor = Channel(server.accept()[0])
            with pytest.raises(StrangerError):
                impostor.prove(OTHER, (deliver_challenge, answer_challenge), 20)
            impostor.close()

        thread = threading.Thread(target=pose)
        thread.start()
        with pytest.raises((StrangerError, ConnectionResetError)):
            connect(server.getsockname(), SECRET)
        thread.join()


def test_a_silent_side_is_given_up(monkeypatch):
    monkeypatch.setattr(channels, "HANDSHAKE_S", 0.1)
    with socket.create_server((LOOPBACK, 0)) as server, pytest.raises(TimeoutError):
        connect(server.getsockname(), SECRET, patience_s=0.1)
    listener = Listener(LOOPBACK, SECRET, lambda channel: None)
    with socket.create_connection(listener.address) as silent:
        silent.settimeout(60)
        while silent.recv(1000):
            pass  # the challenge, until the other side closes the connection
    listener.close()


def test_the_address_is_one_of_this_host_on_the_route():
    assert address_towards([]) == address_towards(["no-such-host.invalid"]) == LOOPBACK
    for host in ("localhost", ANYWHERE):
        with socket.create_server((address_towards([host]), 0)):
            pass
