"""The handshake: each side proves that it knows the run's secret before the other interprets its data.

The listener sends the magic bytes and a nonce. The caller replies with its own nonce, its number, the number that it
calls, and its proof; the listener answers with its proof. All messages have a fixed size. A proof is an HMAC over the
role, the purpose, both nonces and both numbers. After the handshake, data are neither encrypted nor signed: see
docs/explanation/security.md.
"""

import hmac
import os
import secrets
import socket
import struct
import time

MAGIC = b"xmc_tf 1"
SECRET_BYTES = 32
HANDSHAKE_S = 5.0  # the time limit for a whole handshake
_NONCE_BYTES = PROOF_BYTES = 32
_NUMBERS = struct.Struct("<qq")
GREETING_BYTES = len(MAGIC) + _NONCE_BYTES
REPLY_BYTES = _NONCE_BYTES + _NUMBERS.size + PROOF_BYTES
_RETRY_S = 0.05


class StrangerError(ConnectionError):
    """The other side does not know this run's secret or does not use this protocol."""


class UnansweredProofError(ConnectionResetError):
    """The listener closed the connection when it had this side's proof: another secret, or a listener under load."""


def new_secret() -> bytes:
    return secrets.token_bytes(SECRET_BYTES)


def answer(connection: socket.socket, secret: bytes, purpose: str) -> tuple[int, int]:
    """Authenticate a caller. Return its number and the number that it calls. Set the connection to blocking mode."""
    end, nonce = time.monotonic() + HANDSHAKE_S, os.urandom(_NONCE_BYTES)
    connection.settimeout(_left(end))
    connection.sendall(MAGIC + nonce)
    received = _receive(connection, REPLY_BYTES, end)
    theirs, numbers = received[:_NONCE_BYTES], received[_NONCE_BYTES : _NONCE_BYTES + _NUMBERS.size]
    proof = _proof(secret, b"caller", purpose, nonce, theirs, numbers)
    if not hmac.compare_digest(proof, received[_NONCE_BYTES + _NUMBERS.size :]):
        raise StrangerError("it does not know the secret of this run")
    connection.settimeout(_left(end))
    connection.sendall(_proof(secret, b"listener", purpose, nonce, theirs, numbers))
    connection.settimeout(None)
    caller, called = _NUMBERS.unpack(numbers)
    return caller, called


def call(
    address: tuple[str, int],
    secret: bytes,
    purpose: str,
    *,
    caller: int,
    called: int = 0,
    patience_s: float = 2 * HANDSHAKE_S,
) -> socket.socket:
    """Return an authenticated connection in blocking mode. Retry, because a listener under load drops callers."""
    end = time.monotonic() + patience_s
    problem: OSError | None = None
    while True:
        try:
            return _attempt(address, secret, purpose, caller, called, min(end, time.monotonic() + HANDSHAKE_S))
        except (StrangerError, ConnectionRefusedError):
            raise
        except OSError as error:
            # The time limit may cut the last attempt short; the attempt before it says why there is no connection.
            if problem is None or not isinstance(error, TimeoutError):
                problem = error
        if time.monotonic() + _RETRY_S >= end:
            raise problem
        time.sleep(_RETRY_S)


def _attempt(
    address: tuple[str, int], secret: bytes, purpose: str, caller: int, called: int, end: float
) -> socket.socket:
    connection = socket.create_connection(address, timeout=_left(end))
    try:
        greeting = _receive(connection, GREETING_BYTES, end)
        if not greeting.startswith(MAGIC):
            raise StrangerError("it does not speak the protocol of xmc_tf")
        theirs, mine, numbers = greeting[len(MAGIC) :], os.urandom(_NONCE_BYTES), _NUMBERS.pack(caller, called)
        connection.settimeout(_left(end))
        connection.sendall(mine + numbers + _proof(secret, b"caller", purpose, theirs, mine, numbers))
        proof = _proof(secret, b"listener", purpose, theirs, mine, numbers)
        try:
            answered = _receive(connection, PROOF_BYTES, end)
        except ConnectionResetError as error:
            raise UnansweredProofError(str(error)) from None
        if not hmac.compare_digest(answered, proof):
            raise StrangerError("it does not know the secret of this run")
        connection.settimeout(None)
    except BaseException:
        connection.close()
        raise
    return connection


def _receive(connection: socket.socket, count: int, end: float) -> bytes:
    received = b""
    while len(received) < count:
        connection.settimeout(_left(end))
        if not (more := connection.recv(count - len(received))):
            raise ConnectionResetError("it closed the connection during the handshake")
        received += more
    return received


def _left(end: float) -> float:
    if (left := end - time.monotonic()) <= 0:
        raise TimeoutError("timed out")
    return left


def _proof(secret: bytes, role: bytes, purpose: str, listeners: bytes, callers: bytes, numbers: bytes) -> bytes:
    if len(secret) != SECRET_BYTES:
        raise ValueError(f"the secret has {len(secret)} bytes, not {SECRET_BYTES}")
    name = purpose.encode()
    message = MAGIC + role + len(name).to_bytes(2, "little") + name + listeners + callers + numbers
    return hmac.digest(secret, message, "sha256")
